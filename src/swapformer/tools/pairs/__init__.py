"""`swapformer check pairs`: options of two slots work together, or are refused with a reason and an alternative."""
