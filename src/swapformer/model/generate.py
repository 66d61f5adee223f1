"""Generation: symbol after symbol, greedily, by sampling or by beam search, with a cache where the model has one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from swapformer.model.cache import Cache
from swapformer.model.ops import widen
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.ranges import Count, Fraction, Positive, check_settings

Choose = Callable[[Tensor], Tensor]
"""A rule of choice: logits [B, V] → symbols [B]."""


def greedy(logits: Tensor) -> Tensor:
    """The most probable symbol."""
    return logits.argmax(-1)


@dataclass(frozen=True)
class Sampler:
    """Draws a symbol from softmax(logits / temperature), restricted to the most probable ones.

    Attributes:
        generator: source of the randomness.
        temperature: above 0; below 1 sharpens.
        top_k: how many symbols may be drawn; None for all.
        top_p: the smallest set of symbols whose probability reaches this may be drawn (Holtzman et al. 2020,
            arXiv:1904.09751); 1 for all. It is taken among the `top_k`.

    Raises:
        ValueError: for a setting out of range.
    """

    generator: torch.Generator
    temperature: Positive = 1.0
    top_k: Count | None = None
    top_p: Fraction = 1.0

    def __post_init__(self) -> None:
        check_settings(Sampler, vars(self))

    def __call__(self, logits: Tensor) -> Tensor:
        probabilities = self.probabilities(logits)
        return torch.multinomial(probabilities, 1, generator=self.generator)[:, 0]

    def probabilities(self, logits: Tensor) -> Tensor:
        """The probabilities that symbols are drawn with, [B, V]."""
        ordered, symbols = (widen(logits) / self.temperature).sort(dim=-1, descending=True, stable=True)
        if self.top_k is not None:
            ordered[:, self.top_k :] = -math.inf
        p = ordered.softmax(-1)
        p = p.masked_fill(p.cumsum(-1) - p >= self.top_p, 0.0)
        return torch.zeros_like(p).scatter(-1, symbols, p / p.sum(-1, keepdim=True))


@dataclass(frozen=True, eq=False)
class Prompt:
    """The symbols that a generation continues, and the source of an encoder-decoder.

    Attributes:
        ids: [B, T] with T ≥ 1; shorter prompts are padded on the left.
        padding: True before a prompt begins, [B, T]; None if all are of one length.
        source: symbols that an encoder-decoder reads first, [B, S].
        source_tokens: the Tokens of the source.
        positions: ascending positions of all tokens, [T + steps], if they are drawn and not counted; None for
            0, 1, 2 …
    """

    ids: Tensor
    padding: Tensor | None = None
    source: Tensor | None = None
    source_tokens: Tokens | None = None
    positions: Tensor | None = None

    def repeat(self, times: int) -> Prompt:
        """The prompt with every row repeated `times` times."""

        def repeat_rows(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.repeat_interleave(times, 0)

        ids = self.ids.repeat_interleave(times, 0)
        tokens = self.source_tokens
        if tokens is not None and tokens.padding is not None:
            tokens = replace(tokens, padding=repeat_rows(tokens.padding))
        padding, source = repeat_rows(self.padding), repeat_rows(self.source)
        return replace(self, ids=ids, padding=padding, source=source, source_tokens=tokens)


class StepwiseGeneration:
    """The generation of one batch: gives the logits of the next symbol, and appends the symbols that were chosen.

    With a cache each token is computed once. `cached` is false if the model's parts cannot have one or none is wanted;
    then all tokens are computed for each symbol. Beyond the positions that the encodings have, only the last tokens
    that fit are read, as a separate sequence.

    Raises:
        ValueError: for an empty prompt, or patterns that read tags, which new tokens do not have.
    """

    def __init__(self, model: Topology, prompt: Prompt, *, cache: bool = True) -> None:
        stack = model.stack
        if not prompt.ids.shape[1]:
            raise ValueError("a prompt must have at least one symbol; begin with one.")
        if stack.tags:
            raise ValueError(
                f"the pattern reads the tags {', '.join(sorted(stack.tags))}, which new tokens do not have; use a "
                "pattern without tags, such as model/pattern=causal or window."
            )
        self.model, self.prompt, self.limit = model, prompt, stack.limit
        self.cached = cache and stack.can_cache
        self.ids = prompt.ids
        self._cache = Cache() if self.cached else None
        self._start = _starts(prompt)

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Logits of the next symbol, [B, V]."""
        length = self.ids.shape[1]
        first = max(0, length - int(min(self.limit, length)))
        if first:
            self.cached, self._cache = False, None
        read = 0 if self._cache is None or self._cache.tokens is None else len(self._cache.tokens)
        start = max(first, read)
        tokens = self._tokens(start, length, first)
        source = self.prompt.source, self.prompt.source_tokens
        out: Tensor = self.model(self.ids[:, start:], tokens, *source, self._cache)
        return out[:, -1]

    def append(self, symbols: Tensor) -> None:
        """Append symbols [B] to the rows."""
        self.ids = torch.cat([self.ids, symbols[:, None]], 1)

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        self.ids, self._start = self.ids[rows], self._start[rows]
        if self._cache is not None:
            self._cache.select(rows)

    def _tokens(self, start: int, end: int, first: int) -> Tokens:
        """The Tokens `start` … `end` − 1 of the sequence, whose order counts from `first` or the prompt's beginning."""
        index = torch.arange(start, end, device=self.ids.device)[None]
        order = index - self._start.clamp(min=first)[:, None]
        padding = order < 0
        order = order.clamp(min=0)
        position, extent = order, end - first
        if self.prompt.positions is not None:
            position, extent = self.prompt.positions[order], int(self.prompt.positions.max()) + 1
        if not bool(padding.any()) and not bool(self._start.any()):
            order, position = order[:1], position[:1]
        given = padding if self.prompt.padding is not None else None
        if position is order and given is not None:
            position = order.clone()  # rows begin at different places, so that those of a slice are not known
        return Tokens(order, position, extent, padding=given, consecutive=given is None and start == first)


def _starts(prompt: Prompt) -> Tensor:
    """The index of the first token of each row that is no padding, [B]."""
    if prompt.padding is None:
        return torch.zeros(len(prompt.ids), dtype=torch.int64, device=prompt.ids.device)
    if bool((prompt.padding[:, 1:] & ~prompt.padding[:, :-1]).any()):
        raise ValueError("shorter prompts must be padded on the left, but one has padding after its symbols.")
    return prompt.padding.sum(1)


def generate(model: Topology, prompt: Prompt, steps: int, choose: Choose, *, cache: bool = True) -> Iterator[Tensor]:
    """Generate the next `steps` symbols of every row, one [B] after the other, as they are chosen."""
    generation = StepwiseGeneration(model, prompt, cache=cache)
    for _ in range(steps):
        symbols = choose(generation.logits())
        yield symbols
        generation.append(symbols)


def complete(
    model: Topology, prompt: Prompt, steps: int, choose: Choose, *, stop: int | None = None, cache: bool = True
) -> Tensor:
    """The symbols generated after a prompt, [B, ≤ steps]: after a `stop` symbol every row holds `stop`."""
    generated: list[Tensor] = []
    done = torch.zeros(len(prompt.ids), dtype=torch.bool, device=prompt.ids.device)
    generation = StepwiseGeneration(model, prompt, cache=cache)
    while len(generated) < steps and not bool(done.all()):
        symbols = choose(generation.logits())
        if stop is not None:
            symbols = symbols.masked_fill(done, stop)
            done |= symbols == stop
        generated.append(symbols)
        generation.append(symbols)
    return torch.stack(generated, 1) if generated else prompt.ids[:, :0]


def beam_search(
    model: Topology,
    prompt: Prompt,
    steps: int,
    *,
    width: int,
    stop: int,
    length_penalty: float = 0.0,
    cache: bool = True,
) -> tuple[Tensor, Tensor]:
    """Search with `width` beams for the best answer of each row: symbols [B, ≤ steps] and their score [B].

    The score of an answer of n symbols, its `stop` included, is its log-probability divided by ((5 + n)/6)^penalty (Wu
    et al. 2016, arXiv:1609.08144, equation 14); 0 leaves it as it is. A finished answer keeps its beam. With as many
    beams as there are answers the search is exhaustive.

    Raises:
        ValueError: for fewer than one beam or step.
    """
    if width < 1 or steps < 1:
        raise ValueError(f"`width` must be at least 1 beam, and `steps` at least 1, but they are {width} and {steps}.")
    rows = len(prompt.ids)
    generation = StepwiseGeneration(model, prompt.repeat(width), cache=cache)
    device = prompt.ids.device
    total = torch.full((rows, width), -math.inf, dtype=torch.float64, device=device)
    total[:, 0] = 0.0  # all beams of a row begin alike: only one may branch
    length = torch.zeros(rows, width, dtype=torch.int64, device=device)
    done = torch.zeros(rows, width, dtype=torch.bool, device=device)
    begin = prompt.ids.shape[1]
    for _ in range(steps):
        if bool(done.all()):
            break
        step = generation.logits().double().log_softmax(-1).view(rows, width, -1)
        only_stop = torch.full_like(step, -math.inf)
        only_stop[..., stop] = 0.0
        step = torch.where(done[..., None], only_stop, step)
        longer = length + (~done).long()
        scores = _score(total[..., None] + step, longer[..., None], length_penalty).flatten(1)
        best = scores.topk(width, 1).indices
        beam, symbol = best // step.shape[-1], best % step.shape[-1]
        total = (total[..., None] + step).flatten(1).gather(1, best)
        length, done = longer.gather(1, beam), done.gather(1, beam) | (symbol == stop)
        generation.select((beam + width * torch.arange(rows, device=device)[:, None]).flatten())
        generation.append(symbol.flatten())
    final = _score(total, length, length_penalty)
    best = final.argmax(1)
    answers = generation.ids[:, begin:].view(rows, width, -1)[torch.arange(rows, device=device), best]
    return answers, final.gather(1, best[:, None])[:, 0]


def _score(total: Tensor, length: Tensor, penalty: float) -> Tensor:
    return total / ((5 + length.double()) / 6) ** penalty
