"""`swapformer cost`: what a configuration costs, counted, and what the arms of a study cost, measured."""
