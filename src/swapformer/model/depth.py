"""Depth: after how many layers a token's answer is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from swapformer.model.dims import Dims
from swapformer.model.ops import widen
from swapformer.ranges import Declared, Natural, Positive, Share


class Depth(Declared, nn.Module):
    """Base of the slot: every token goes through all layers.

    Facts:
        exits: numbers of layers after which answers are read early, ascending; 0 is before the first.
        loss: weight of the task's loss of each early answer in training.
        threshold: how certain an early answer must be for its token to leave in evaluation; None if none leaves.
    """

    exits: tuple[int, ...] = ()
    loss: float = 0.0
    threshold: float | None = None

    def __init__(self, dims: Dims) -> None:
        super().__init__()

    def confident(self, logits: Tensor) -> Tensor | None:
        """The tokens that leave, bool [B, T], by the logits [B, T, V] of an early answer; None if none may."""
        return None


class EarlyExit(Depth):
    """Tokens whose early answer is certain leave: their state stays as it is in all layers above.

    In training the task's loss of every early answer is added, L + loss · Σ_e L_e (BranchyNet, Teerapittayanon et al.
    2016, arXiv:1709.01686); all answers are read through the one final norm and head (LayerSkip, Elhoushi et al. 2024,
    arXiv:2404.16710). In evaluation a token leaves after the first of the `exits` where the two largest of its
    probabilities differ by at least `threshold`; layers above read its keys and values from the state that it left with
    (CALM, Schuster et al. 2022, arXiv:2207.07061, section 3). All layers are computed for all tokens and
    superfluous results are thrown away, so nothing gets faster; probes=early_exit counts the possible savings.

    Args:
        exits: numbers of layers, from 0, before any, to the last but one.
        loss: weight of each early answer's loss.
        threshold: 0 lets every token leave at the first exit; None lets none leave in evaluation.

    Raises:
        ValueError: if there is no exit or none of such a number, `loss` is not positive, or `threshold` not in [0, 1].
    """

    def __init__(self, dims: Dims, *, exits: Sequence[Natural], loss: Positive, threshold: Share | None) -> None:
        super().__init__(dims)
        if not exits or not all(isinstance(exit, int) and 0 <= exit < dims.num_layers for exit in exits):
            raise ValueError(
                f"`exits` of early_exit must be numbers of layers from 0 to {dims.num_layers - 1}, for the last of "
                f"{dims.num_layers} layers is the end, but they are {list(exits)}."
            )
        self.exits, self.loss, self.threshold = tuple(sorted(set(exits))), loss, threshold

    def confident(self, logits: Tensor) -> Tensor | None:
        if self.threshold is None:
            return None
        first, second = widen(logits).softmax(-1).topk(2, dim=-1).values.unbind(-1)
        return first - second >= self.threshold


class ExitTracker:
    """Runs a batch through the layers and records which tokens left at which exit.

    Args:
        depth: the exits, and when a token leaves.
        read: states [B, T, D] → logits of the main answer [B, T, V].
        training: whether early states are stored for their losses; otherwise tokens may leave.

    Attributes:
        early: the states at each exit, in training.
        layers: layers that each token has left through, int64 [B, T], after the run; None in training.
    """

    def __init__(self, depth: Depth, read: Callable[[Tensor], Tensor], *, training: bool) -> None:
        self._depth, self._read, self._training = depth, read, training
        self.early: list[Tensor] = []
        self.layers: Tensor | None = None

    def run(
        self, state: Tensor, layers: Sequence[Callable[[Tensor], Tensor]], close: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """The stream after all layers, in which tokens that left keep the state that they left with."""
        left: Tensor | None = None
        for number, layer in enumerate(layers):
            if number in self._depth.exits:
                left = self._left_by(number, close(state), left)
            after = layer(state)
            state = after if left is None else torch.where(left[..., None], state, after)
        if self.layers is not None and left is not None:
            self.layers = self.layers.masked_fill(~left, len(layers))
        return state

    def _left_by(self, number: int, states: Tensor, left: Tensor | None) -> Tensor | None:
        """The tokens that have left at this exit or an earlier one."""
        if self._training:
            self.early.append(states)
            return None
        confident = self._depth.confident(self._read(states))
        if confident is None:
            return left
        if left is None or self.layers is None:
            left, self.layers = torch.zeros_like(confident), torch.zeros_like(confident, dtype=torch.int64)
        self.layers = self.layers.masked_fill(confident & ~left, number)
        return left | confident
