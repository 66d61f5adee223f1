"""Random streams, each seeded by a key that says what it is for, and by nothing else."""

from __future__ import annotations

import hashlib

import torch


def stream_seed(*key: object) -> int:
    """A 63-bit seed from the words and numbers of a key: the same in every process, on every machine.

    torch's CPU generator keeps 32 of the bits, so of the streams of one study two may coincide; nothing relies on that
    they do not.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def stream(*key: object) -> torch.Generator:
    """A separate CPU generator for a key such as `(seed, "train", step)`."""
    return torch.Generator().manual_seed(stream_seed(*key))
