"""Patterns with global tokens, which attend to all and are attended to by all: Longformer and BigBird."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.ops import Constants
from swapformer.model.pattern.base import Pattern, Reach, steps_ahead
from swapformer.model.tokens import Tokens
from swapformer.random import stream
from swapformer.ranges import Count, Natural

HOST = torch.device("cpu")


class Longformer(Pattern):
    """A band and global tokens, which attend to all and all attend to: −before ≤ j − i ≤ after, or i ∈ G, or j ∈ G.

    Beltagy et al. 2020 (arXiv:2004.05150, section 3.1), whose window of w is `before = after = w/2`. The paper gives
    global tokens projections of their own; here they share those of the others. Never causal, since global tokens
    attend to later ones: combine it with Causal, as the preset `longformer_causal` does.

    Args:
        before, after: earlier and later tokens in the band.
        places: G, positions of global tokens, counted from the first of the sequence.

    Raises:
        ValueError: if a number is negative.
    """

    anchored = True

    def __init__(self, dims: Dims, *, before: Natural, after: Natural = 0, places: Sequence[Natural]) -> None:
        self.before, self.after, self.places, self.constants = before, after, tuple(places), Constants()
        self.reach = Reach(before, after, landmarks=tuple(sorted(set(places))))

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        ahead = steps_ahead(query, key)
        chosen = self.constants.of(self.places, torch.int64, ahead.device)
        from_global = torch.isin(query.order, chosen)[:, None, :, None]
        to_global = torch.isin(key.order, chosen)[:, None, None, :]
        return ((ahead >= -self.before) & (ahead <= self.after)) | from_global | to_global


class BigBird(Pattern):
    """Blocks of tokens that attend to a band of blocks, the first and last blocks, and some random blocks.

    Zaheer et al. 2020 (arXiv:2007.14062, internal transformer construction). The first and last blocks also
    attend to everything. The random blocks of a block are drawn from a separate stream, so they are the same in every
    process, in training and evaluation, and those before it do not depend on the length. Never causal: combine
    it with Causal, as the preset `bigbird_causal` does.

    Args:
        block: tokens of a block.
        before, after: earlier and later neighbouring blocks in the band; 1 and 1 in the paper.
        random_before, random_after: blocks drawn from those outside the band, on either side.
        first, last: blocks at either end that are global; the end is that of the longest row, padding included.
        seed: names the random blocks.

    Raises:
        ValueError: if `block` is below 1 or another number negative.
    """

    anchored = True

    def __init__(
        self,
        dims: Dims,
        *,
        block: Count,
        before: Natural,
        after: Natural = 0,
        random_before: Natural,
        random_after: Natural = 0,
        first: Natural,
        last: Natural = 0,
        seed: Natural,
    ) -> None:
        self.block, self.before, self.after, self.seed = block, before, after, seed
        self.random_before, self.random_after, self.first, self.last = random_before, random_after, first, last
        self.depends_on_length = last > 0 or random_after > 0
        self._drawn: dict[tuple[int, torch.device], Tensor] = {}

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        i, j = query.order // self.block, key.order // self.block
        last = [len(each) - 1 if each.consecutive else int(each.order.max()) for each in (query, key)]
        count = max(last) // self.block + 1
        return self.blocks(count, i.device)[i[:, :, None], j[:, None, :]][:, None]

    def blocks(self, count: int, device: torch.device = HOST) -> Tensor:
        """The pairs of `count` blocks that may attend, bool [count, count]; drawn once for each count and device."""
        if (count, device) not in self._drawn:
            self._drawn[count, device] = self._draw(count).to(device)
        return self._drawn[count, device]

    # As `torch.compiler.assume_constant_result` marks it, which would import torch's compiler here.
    blocks._dynamo_marked_constant = True  # type: ignore[attr-defined]

    def _draw(self, count: int) -> Tensor:
        index = torch.arange(count)
        ahead = index[None, :] - index[:, None]
        ends = (index < self.first) | (index >= count - self.last)
        allowed = ((ahead >= -self.before) & (ahead <= self.after)) | ends[None, :] | ends[:, None]
        for b in range(count):
            allowed[b, self.random_blocks(b, count)] = True
        return allowed

    def random_blocks(self, b: int, count: int) -> Tensor:
        """The random blocks that block b may attend to, int64."""
        earlier = torch.arange(self.first, max(b - self.before, self.first))
        later = torch.arange(b + self.after + 1, max(count - self.last, b + self.after + 1))
        sides = (("before", earlier, self.random_before), ("after", later, self.random_after))
        return torch.cat(
            [
                side[torch.randperm(len(side), generator=stream("bigbird", self.seed, name, b))[:wanted]]
                for name, side, wanted in sides
            ]
        )
