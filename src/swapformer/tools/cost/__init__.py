"""`swapformer cost`: counts the costs of a configuration, and measures those of a study's arms."""
