"""Benchmarks and reliability tests of swapformer, as commands: `python -m benchmarks`. Tests never assert a time."""
