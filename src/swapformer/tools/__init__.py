"""Commands that look at parts and configurations without training: check, show, cost."""
