"""What a model is given of a batch."""

from __future__ import annotations

from torch import Tensor

from swapformer.model.tokens import Tokens
from swapformer.task.base import Batch, Sequences


def tokens_of(sequences: Sequences) -> Tokens:
    """Tokens: what a model needs to know of sequences besides their inputs."""
    return Tokens.of(
        sequences.inputs.shape[1],
        device=sequences.inputs.device,
        position=sequences.position,
        document=sequences.document,
        padding=sequences.padding,
        tags=sequences.tags,
        extent=sequences.extent,
    )


ModelInputs = tuple[Tensor, Tokens, Tensor | None, Tokens | None]
"""The arguments of a model's forward."""


def model_inputs(batch: Batch) -> ModelInputs:
    """The arguments of a model's forward for a batch."""
    source = batch.source
    here = batch.inputs, tokens_of(batch)
    return (*here, None, None) if source is None else (*here, source.inputs, tokens_of(source))
