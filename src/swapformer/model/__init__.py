"""The Transformer as a few slots: torch modules that know nothing of configuration, training or logging."""
