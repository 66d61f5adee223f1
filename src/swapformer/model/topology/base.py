"""The topology slot's base: from a task's inputs through embeddings and layers to its answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from swapformer.interface import MAIN, Readout
from swapformer.model.cache import Cache
from swapformer.model.depth import ExitTracker
from swapformer.model.dims import Side
from swapformer.model.init import Init, initialise
from swapformer.model.layers import Embedding, Linear, Role
from swapformer.model.ops import symbol_logits
from swapformer.model.plan import ModelPlan
from swapformer.model.stack import Stack
from swapformer.model.taps import Site, Tapped
from swapformer.model.tokens import Tokens
from swapformer.ranges import Positive


class Topology(Tapped):
    """Base of the slot: inputs [B, T] and their Tokens → logits [B, T, V], or other answers that a task asks for.

    Inputs are token ids, which are embedded, or values [B, T, C], which are mapped. Symbols are read by a matrix
    without bias, which may be the embedding table; classes and values by a linear map with one.

    Args:
        plan: how the layers are built, and the inputs and answers of the task.
        tie_embeddings: whether symbols are read by the embedding table.
        embedding_scale: factor on the embeddings before positions are added; √d_model in Vaswani et al. 2017.

    Facts:
        side: the kind of stack that its layers form.
        reads_source: whether it reads a source before it answers.
        reads_ahead: whether that source is its own input, so that each place is shown all later ones.
        reads_segments: whether it embeds the tag `segment`.
        has_slots: whether it is made of the parts in the model's slots.
    """

    side: ClassVar[Side] = Side.DECODER
    reads_source: ClassVar[bool] = False
    reads_segments: ClassVar[bool] = False
    reads_ahead: bool = False
    has_slots: ClassVar[bool] = True

    stack: Stack
    """The layers whose last states are read."""

    notes: tuple[str, ...] = ()
    """What the record of a training should say of the model."""

    layers_passed: Tensor | None
    """Layers that each token went through in the last forward in evaluation, [B, T]; None if none could leave."""

    def __init__(self, plan: ModelPlan, *, tie_embeddings: bool, embedding_scale: Positive) -> None:
        super().__init__()
        self.dims, self.interface, self.depth = plan.dims, plan.interface, plan.depth(plan.dims)
        self._early: list[tuple[Tensor, Tokens]] = []
        self.layers_passed: Tensor | None = None
        self.tie_embeddings, self.embedding_scale = tie_embeddings, embedding_scale
        self.embedding = self._input_layer()

    def start(self, init: Init, seed: int, starts: Mapping[str, float] | None = None) -> None:
        """Set every weight to its starting value under a seed: as `initialise` does, unless it is not ours to draw."""
        initialise(self, init, seed, starts)

    def _input_layer(self) -> Embedding | Linear:
        """The layer from inputs to the first state of the stream: a table for symbols, a linear map for values."""
        if self.interface.channels:
            return Linear(self.interface.channels, self.dims.d_model, Role.TOKEN_EMBEDDING, bias=True)
        return Embedding(self.dims.vocab_size, self.dims.d_model, Role.TOKEN_EMBEDDING)

    def _add_readouts(self) -> None:
        """Make the layers that read the answers; called last in a constructor."""
        readouts = {name: self._readout(readout) for name, readout in self.interface.readouts.items()}
        self.head = readouts.pop(MAIN)
        self.readouts = nn.ModuleDict({name: module for name, module in readouts.items() if module is not None})

    def _readout(self, readout: Readout) -> Linear | None:
        """The layer that reads an answer from the stream; None if the embedding table does."""
        symbols = readout.kind == "symbols"
        if symbols and self.tie_embeddings and not self.interface.channels:
            return None
        return Linear(self.dims.d_model, readout.size, Role.HEAD, bias=not symbols)

    def embed(self, inputs: Tensor, tokens: Tokens) -> Tensor:
        """The stream before positions, [B, T, D]."""
        x: Tensor = self.embedding(inputs)
        return x if self.embedding_scale == 1 else self.embedding_scale * x

    def states(
        self,
        inputs: Tensor,
        tokens: Tokens,
        source: Tensor | None = None,
        source_tokens: Tokens | None = None,
        cache: Cache | None = None,
        exits: ExitTracker | None = None,
    ) -> Tensor:
        """The last layer's states, [B, T, D], from which answers are read; `exits` is for their stack."""
        return self.stack(self.embed(inputs, tokens), tokens, cache=cache, exits=exits)

    def forward(
        self,
        inputs: Tensor,
        tokens: Tokens | None = None,
        source: Tensor | None = None,
        source_tokens: Tokens | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The main answer, [B, T, size] or [B, size]: logits, or values.

        With a cache, the T tokens follow those that it holds.
        """
        return self.tap("hook_logits", self._read(MAIN, *self._run(inputs, tokens, source, source_tokens, cache)))

    def answers(
        self,
        inputs: Tensor,
        tokens: Tokens | None = None,
        source: Tensor | None = None,
        source_tokens: Tokens | None = None,
    ) -> dict[str, Tensor]:
        """Every answer that the task asks for, by name."""
        run = self._run(inputs, tokens, source, source_tokens)
        found = {name: self._read(name, *run) for name in self.interface.readouts}
        return {**found, MAIN: self.tap("hook_logits", found[MAIN])}

    def take_early_answers(self) -> list[dict[str, Tensor]]:
        """Every answer as it was read at each exit in the last forward in training; forgets them."""
        early, self._early = self._early, []
        return [{name: self._read(name, *run) for name in self.interface.readouts} for run in early]

    def _run(
        self,
        inputs: Tensor,
        tokens: Tokens | None,
        source: Tensor | None,
        source_tokens: Tokens | None,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Tokens]:
        tokens = Tokens.of(inputs.shape[1], device=inputs.device) if tokens is None else tokens
        if source is not None and source_tokens is None:
            source_tokens = Tokens.of(source.shape[1], device=source.device)
        if not self.depth.exits:
            return self.states(inputs, tokens, source, source_tokens, cache), tokens
        exits = ExitTracker(self.depth, lambda states: self._read(MAIN, states, tokens), training=self.training)
        states = self.states(inputs, tokens, source, source_tokens, cache, exits)
        self._early = [(early, tokens) for early in exits.early]
        self.layers_passed = exits.layers
        return states, tokens

    def _read(self, name: str, states: Tensor, tokens: Tokens) -> Tensor:
        readout = self.interface.readouts[name]
        reader: Any = self.head if name == MAIN else dict(self.readouts.items()).get(name)
        if readout.kind == "symbols":
            return self.symbols(states, tokens, (self.embedding if reader is None else reader).weight)
        out: Tensor = reader(self.summary(states, tokens) if readout.per == "sequence" else states)
        return out

    def sites(self) -> Iterator[Site]:
        yield from self.stack.sites("blocks.")
        yield self._answer_site()

    def _answer_site(self) -> Site:
        main = self.interface.readouts[MAIN]
        axes = "B T V" if main.kind == "symbols" else "B T C" if main.per == "position" else "B C"
        return Site("hook_logits", self, "hook_logits", axes)

    def example(
        self, rows: int, length: int, device: torch.device | str
    ) -> tuple[Tensor, Tokens, Tensor | None, Tokens | None]:
        """The arguments of a forward, filled with zeros, for counting operations and memory."""
        shape = (rows, length, self.interface.channels) if self.interface.channels else (rows, length)
        dtype = next(self.parameters()).dtype if self.interface.channels else torch.int64
        inputs = torch.zeros(shape, dtype=dtype, device=device)
        names = {*self.stack.tags, *(["segment"] if self.interface.segments else [])}
        tags = {name: torch.zeros(1, length, dtype=torch.int64, device=device) for name in names}
        tokens = Tokens.of(length, device=device, tags=tags)
        takes_source = self.reads_source and not self.reads_ahead
        return (inputs, tokens, inputs, tokens) if takes_source else (inputs, tokens, None, None)

    def summary(self, states: Tensor, tokens: Tokens) -> Tensor:
        """The state that an answer for a whole sequence is read from, [B, D]: that of the last token but padding."""
        if tokens.padding is None:
            return states[:, -1]
        last = (~tokens.padding).long().cumsum(-1).argmax(-1)
        return states[torch.arange(len(states), device=states.device), last.expand(len(states))]

    def symbols(self, states: Tensor, tokens: Tokens, weight: Tensor) -> Tensor:
        """Logits of symbols [B, T, V] from states and the matrix that reads them, [V, D]."""
        return symbol_logits(states, weight)


def take_auxiliary_loss(model: nn.Module) -> Tensor | None:
    """Sum the auxiliary losses of the last forward in training, and forget them; None without any.

    Any module may leave a scalar in its attribute `auxiliary_loss`, weighted as it enters the training loss. Records
    and metrics hold the task's loss alone.
    """
    total: Tensor | None = None
    for module in model.modules():
        loss = getattr(module, "auxiliary_loss", None)
        if loss is not None:
            module.auxiliary_loss = None  # type: ignore[assignment]
            total = loss if total is None else total + loss
    return total
