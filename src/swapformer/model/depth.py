"""Depth: how many layers a place goes through."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from swapformer.model.dims import Dims, require_positive


class Depth(nn.Module):
    """Base of the slot: every place goes through all layers.

    Facts:
        exits: numbers of layers behind which answers are read early, ascending; 0 is before the first.
        loss: weight of the task's loss of each early answer in training.
        threshold: how certain an early answer must be for its place to leave in evaluation; None where none leaves.
    """

    exits: tuple[int, ...] = ()
    loss: float = 0.0
    threshold: float | None = None

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def sure(self, logits: Tensor) -> Tensor | None:
        """Which places leave, bool [B, T], by the logits [B, T, V] of an early answer; None where none may."""
        return None


class EarlyExit(Depth):
    """Places whose early answer is certain leave: their state stays as it is in all layers above.

    In training the task's loss of every early answer is added, L + loss · Σ_e L_e (BranchyNet, Teerapittayanon et al.
    2016, arXiv:1709.01686); all answers are read through the one final norm and head (LayerSkip, Elhoushi et al. 2024,
    arXiv:2404.16710). In evaluation a place leaves behind the first of the `exits` where the two largest of its
    probabilities differ by at least `threshold`; layers above read its keys and values from the state that it left with
    (CALM, Schuster et al. 2022, arXiv:2207.07061, section 3). All layers are computed for all places and what would be
    skipped is thrown away, so the saving is counted, not felt: probes=early_exit counts it.

    Args:
        exits: numbers of layers, from 0, before any, to the last but one.
        loss: weight of each early answer's loss.
        threshold: 0 lets every place leave at the first exit; None lets none leave in evaluation.

    Raises:
        ValueError: if there is no exit or none of such a number, `loss` is not positive, or `threshold` not in [0, 1].
    """

    def __init__(self, dims: Dims, *, exits: Sequence[int], loss: float, threshold: float | None) -> None:
        super().__init__(dims)
        if not exits or not all(isinstance(exit, int) and 0 <= exit < dims.num_layers for exit in exits):
            raise ValueError(
                f"`exits` of early_exit must be numbers of layers from 0 to {dims.num_layers - 1}, for the last of "
                f"{dims.num_layers} layers is the end, but they are {list(exits)}."
            )
        require_positive(loss=loss)
        if threshold is not None and not 0 <= threshold <= 1:
            raise ValueError(f"`threshold` of early_exit must lie in [0, 1], or be null, but it is {threshold}.")
        self.exits, self.loss, self.threshold = tuple(sorted(set(exits))), loss, threshold

    def sure(self, logits: Tensor) -> Tensor | None:
        if self.threshold is None:
            return None
        wide = logits if logits.element_size() >= 4 else logits.float()
        first, second = wide.softmax(-1).topk(2, dim=-1).values.unbind(-1)
        return first - second >= self.threshold


class Journey:
    """The way of a batch's places through the layers, with the exits of a depth.

    Args:
        depth: where places may leave, and when.
        read: states [B, T, D] → logits of the main answer [B, T, V].
        training: whether early states are kept for their losses; else places may leave.

    Attributes:
        early: the states behind each exit, in training.
        layers: layers that each place has gone through, int64 [B, T], once all have been passed; None in training.
    """

    def __init__(self, depth: Depth, read: Callable[[Tensor], Tensor], *, training: bool) -> None:
        self._depth, self._read, self._training = depth, read, training
        self.early: list[Tensor] = []
        self.layers: Tensor | None = None

    def walk(
        self, state: Tensor, layers: Sequence[Callable[[Tensor], Tensor]], close: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """The stream behind all layers, where places that leave on the way stay as they were."""
        gone: Tensor | None = None
        for number, layer in enumerate(layers):
            if number in self._depth.exits:
                gone = self._leaving(number, close(state), gone)
            after = layer(state)
            state = after if gone is None else torch.where(gone[..., None], state, after)
        if self.layers is not None and gone is not None:
            self.layers = self.layers.masked_fill(~gone, len(layers))
        return state

    def _leaving(self, number: int, states: Tensor, gone: Tensor | None) -> Tensor | None:
        """Which places have left once this exit is behind."""
        if self._training:
            self.early.append(states)
            return None
        sure = self._depth.sure(self._read(states))
        if sure is None:
            return gone
        if gone is None or self.layers is None:
            gone, self.layers = torch.zeros_like(sure), torch.zeros_like(sure, dtype=torch.int64)
        self.layers = self.layers.masked_fill(sure & ~gone, number)
        return gone | sure
