"""swapformer: ablations of the Transformer's architecture, with honest statistics."""

__version__ = "0.1.0"
