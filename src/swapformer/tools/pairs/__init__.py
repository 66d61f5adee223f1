"""`swapformer check pairs`: options of two slots go together, or are refused with the reason and a way out."""
