"""Writing: symbol after symbol, each chosen from what the model expects after those before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from swapformer.model.cache import Cache
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology

Choose = Callable[[Tensor], Tensor]
"""Logits [B, V] → symbols [B]."""


def greedy(logits: Tensor) -> Tensor:
    """The most probable symbol."""
    return logits.argmax(-1)


@dataclass(frozen=True)
class Sampler:
    """Draws a symbol from softmax(logits / temperature), restricted to the most probable ones.

    Attributes:
        generator: where the randomness comes from.
        temperature: above 0; below 1 sharpens.
        top_k: how many symbols may be drawn; None for all.
        top_p: the smallest set of symbols whose probability reaches this may be drawn (Holtzman et al. 2020,
            arXiv:1904.09751); 1 for all. It is taken among the `top_k`.

    Raises:
        ValueError: for a setting out of range.
    """

    generator: torch.Generator
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(
                f"`temperature` must be above 0, but it is {self.temperature}; greedy choice is the limit."
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"`top_k` must be at least 1, but it is {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"`top_p` must lie in (0, 1], but it is {self.top_p}.")

    def __call__(self, logits: Tensor) -> Tensor:
        probabilities = self.probabilities(logits)
        return torch.multinomial(probabilities, 1, generator=self.generator)[:, 0]

    def probabilities(self, logits: Tensor) -> Tensor:
        """What symbols are drawn from, [B, V]."""
        wide = logits.float() if logits.element_size() < 4 else logits
        ordered, symbols = (wide / self.temperature).sort(dim=-1, descending=True, stable=True)
        if self.top_k is not None:
            ordered[:, self.top_k :] = -math.inf
        p = ordered.softmax(-1)
        p = p.masked_fill(p.cumsum(-1) - p >= self.top_p, 0.0)
        return torch.zeros_like(p).scatter(-1, symbols, p / p.sum(-1, keepdim=True))


@dataclass(frozen=True, eq=False)
class Prompt:
    """What is there before anything is written.

    Attributes:
        ids: [B, T] with T ≥ 1; shorter prompts stand to the right.
        padding: True where a prompt has not begun, [B, T]; None where all are of one length.
        source: what an encoder-decoder reads first, [B, S].
        source_tokens: its places.
        positions: positions of all places that will be written to, ascending [T + steps], where they are drawn and not
            counted; None for 0, 1, 2 …
    """

    ids: Tensor
    padding: Tensor | None = None
    source: Tensor | None = None
    source_tokens: Tokens | None = None
    positions: Tensor | None = None

    def repeated(self, times: int) -> Prompt:
        """Every row `times` times in a row."""

        def again(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.repeat_interleave(times, 0)

        ids = self.ids.repeat_interleave(times, 0)
        tokens = self.source_tokens
        if tokens is not None and tokens.padding is not None:
            tokens = replace(tokens, padding=again(tokens.padding))
        return replace(self, ids=ids, padding=again(self.padding), source=again(self.source), source_tokens=tokens)


class Writer:
    """A model at work on a prompt: gives the logits of the next symbol, and takes the symbols that were chosen.

    With a cache each place is computed once; `cached` is false where the model's parts cannot have one, or none is
    wanted, and then all places are computed for each symbol. Beyond the positions that the encodings have, only the
    last places that fit are read, as from a text of their own.

    Raises:
        ValueError: for a prompt without places, or patterns that read tags, which nobody could give to new places.
    """

    def __init__(self, model: Topology, prompt: Prompt, *, cache: bool = True) -> None:
        stack = model.stack
        if not prompt.ids.shape[1]:
            raise ValueError("a prompt must have at least one symbol; begin with one.")
        if stack.tags:
            raise ValueError(
                f"the pattern reads the tags {', '.join(sorted(stack.tags))}, which new places do not have; use a "
                "pattern without tags, such as model/pattern=causal or window."
            )
        self.model, self.prompt, self.limit = model, prompt, stack.limit
        self.cached = cache and stack.can_cache
        self.ids = prompt.ids
        self._cache = Cache() if self.cached else None
        self._begun = _begins(prompt)

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Logits of the next symbol, [B, V]."""
        length = self.ids.shape[1]
        first = max(0, length - int(min(self.limit, length)))
        if first:
            self.cached, self._cache = False, None
        read = 0 if self._cache is None or self._cache.tokens is None else len(self._cache.tokens)
        start = max(first, read)
        places = self._places(start, length, first)
        given = self.prompt.source, self.prompt.source_tokens
        out: Tensor = self.model(self.ids[:, start:], places, *given, self._cache)
        return out[:, -1]

    def take(self, symbols: Tensor) -> None:
        """Write symbols [B] behind what is there."""
        self.ids = torch.cat([self.ids, symbols[:, None]], 1)

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, in this order."""
        self.ids, self._begun = self.ids[rows], self._begun[rows]
        if self._cache is not None:
            self._cache.select(rows)

    def _places(self, start: int, end: int, first: int) -> Tokens:
        """The places `start` … `end` − 1 of the sequence, counted from `first`, or from where a prompt begins."""
        index = torch.arange(start, end, device=self.ids.device)[None]
        order = index - self._begun.clamp(min=first)[:, None]
        padding = order < 0
        order = order.clamp(min=0)
        position, extent = order, end - first
        if self.prompt.positions is not None:
            position, extent = self.prompt.positions[order], int(self.prompt.positions.max()) + 1
        if not bool(padding.any()) and not bool(self._begun.any()):
            order, position = order[:1], position[:1]
        there = padding if self.prompt.padding is not None else None
        return Tokens(order, position, extent, padding=there, consecutive=there is None and start == first)


def _begins(prompt: Prompt) -> Tensor:
    """The first place of each row that is no padding, [B]."""
    if prompt.padding is None:
        return torch.zeros(len(prompt.ids), dtype=torch.int64, device=prompt.ids.device)
    if bool((prompt.padding[:, 1:] & ~prompt.padding[:, :-1]).any()):
        raise ValueError("shorter prompts must stand to the right, but one has padding behind its symbols.")
    return prompt.padding.sum(1)


def write(model: Topology, prompt: Prompt, steps: int, choose: Choose, *, cache: bool = True) -> Iterator[Tensor]:
    """The next `steps` symbols of every row, one [B] after the other, as they are chosen."""
    writer = Writer(model, prompt, cache=cache)
    for _ in range(steps):
        symbols = choose(writer.logits())
        yield symbols
        writer.take(symbols)


def complete(
    model: Topology, prompt: Prompt, steps: int, choose: Choose, *, stop: int | None = None, cache: bool = True
) -> Tensor:
    """What is written after a prompt, [B, ≤ steps]: behind a `stop` symbol every row holds `stop`."""
    written: list[Tensor] = []
    done = torch.zeros(len(prompt.ids), dtype=torch.bool, device=prompt.ids.device)
    writer = Writer(model, prompt, cache=cache)
    while len(written) < steps and not bool(done.all()):
        symbols = choose(writer.logits())
        if stop is not None:
            symbols = symbols.masked_fill(done, stop)
            done |= symbols == stop
        written.append(symbols)
        writer.take(symbols)
    return torch.stack(written, 1) if written else prompt.ids[:, :0]


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
    """For each row the best of what `width` beams find: symbols [B, ≤ steps] and their score [B].

    The score of an answer of n symbols, its `stop` included, is its log-probability divided by ((5 + n)/6)^penalty (Wu
    et al. 2016, arXiv:1609.08144, equation 14); 0 leaves it as it is. A finished answer keeps its beam. With as many
    beams as there are answers the search is exhaustive.

    Raises:
        ValueError: for fewer than one beam or step.
    """
    if width < 1 or steps < 1:
        raise ValueError(f"beam search needs at least one beam and one step, but has {width} and {steps}.")
    rows = len(prompt.ids)
    writer = Writer(model, prompt.repeated(width), cache=cache)
    device = prompt.ids.device
    total = torch.full((rows, width), -math.inf, dtype=torch.float64, device=device)
    total[:, 0] = 0.0  # all beams of a row begin alike: only one may branch
    length = torch.zeros(rows, width, dtype=torch.int64, device=device)
    done = torch.zeros(rows, width, dtype=torch.bool, device=device)
    begin = prompt.ids.shape[1]
    for _ in range(steps):
        if bool(done.all()):
            break
        step = writer.logits().double().log_softmax(-1).view(rows, width, -1)
        only_stop = torch.full_like(step, -math.inf)
        only_stop[..., stop] = 0.0
        step = torch.where(done[..., None], only_stop, step)
        longer = length + (~done).long()
        scores = _score((total[..., None] + step), longer[..., None], length_penalty).flatten(1)
        kept = scores.topk(width, 1).indices
        beam, symbol = kept // step.shape[-1], kept % step.shape[-1]
        total = (total[..., None] + step).flatten(1).gather(1, kept)
        length, done = longer.gather(1, beam), done.gather(1, beam) | (symbol == stop)
        writer.select((beam + width * torch.arange(rows, device=device)[:, None]).flatten())
        writer.take(symbol.flatten())
    final = _score(total, length, length_penalty)
    best = final.argmax(1)
    answers = writer.ids[:, begin:].view(rows, width, -1)[torch.arange(rows, device=device), best]
    return answers, final.gather(1, best[:, None])[:, 0]


def _score(total: Tensor, length: Tensor, penalty: float) -> Tensor:
    return total / ((5 + length.double()) / 6) ** penalty
