"""Patterns with a few places that see everything and are seen by everything."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.pattern.base import Pattern, Reach, steps_ahead
from swapformer.model.tokens import Tokens
from swapformer.random import stream


class Longformer(Pattern):
    """A band, and global places that see all and are seen by all: −before ≤ j − i ≤ after, or i ∈ G, or j ∈ G.

    Beltagy et al. 2020 (arXiv:2004.05150, section 3.1), whose window of w is `before = after = w/2`. The paper gives
    global places projections of their own; here they share those of the others. Never causal, for global places look
    ahead: combine it with Causal, as the preset `longformer_causal` does.

    Args:
        before, after: earlier and later places that are seen.
        places: G, counted from the first place of the sequence.

    Raises:
        ValueError: if a number is negative.
    """

    anchored = True

    def __init__(self, dims: Dims, *, before: int, after: int = 0, places: Sequence[int]) -> None:
        if min(before, after, *places, 0) < 0:
            raise ValueError(
                f"`before`, `after` and `places` must be at least 0, but they are {before}, {after} and {places}."
            )
        self.before, self.after, self.places = before, after, tuple(places)
        self.reach = Reach(before, after, landmarks=tuple(sorted(set(places))))

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        ahead = steps_ahead(query, key)
        chosen = torch.tensor(self.places, dtype=torch.int64, device=ahead.device)
        asks, asked = torch.isin(query.order, chosen)[:, None, :, None], torch.isin(key.order, chosen)[:, None, None, :]
        return ((ahead >= -self.before) & (ahead <= self.after)) | asks | asked


class BigBird(Pattern):
    """Blocks of places that see a band of blocks, the first and last blocks, and some blocks at random.

    Zaheer et al. 2020 (arXiv:2007.14062, internal transformer construction). The first and last blocks also see
    everything. The random blocks of a block are drawn from a stream of its own, so they are the same in every process,
    in training and evaluation, and those before it do not depend on how long the sequence is. Never causal: combine it
    with Causal, as the preset `bigbird_causal` does.

    Args:
        block: places of a block.
        before, after: earlier and later neighbouring blocks that are seen; 1 and 1 in the paper.
        random_before, random_after: blocks drawn from those outside the band, on either side.
        first, last: blocks at either end that are global.
        seed: names the random blocks.

    Raises:
        ValueError: if `block` is below 1 or another number negative.
    """

    anchored = True

    def __init__(
        self,
        dims: Dims,
        *,
        block: int,
        before: int,
        after: int = 0,
        random_before: int,
        random_after: int = 0,
        first: int,
        last: int = 0,
        seed: int,
    ) -> None:
        if block < 1 or min(before, after, random_before, random_after, first, last) < 0:
            raise ValueError(f"`block` must be at least 1 and the counts at least 0, but `block` is {block}.")
        self.block, self.before, self.after, self.seed = block, before, after, seed
        self.random_before, self.random_after, self.first, self.last = random_before, random_after, first, last

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        i, j = query.order // self.block, key.order // self.block
        count = int(torch.maximum(i.max(), j.max())) + 1
        return self.blocks(count).to(i.device)[i[:, :, None], j[:, None, :]][:, None]

    def blocks(self, count: int) -> Tensor:
        """Which of `count` blocks sees which, bool [count, count]."""
        index = torch.arange(count)
        ahead = index[None, :] - index[:, None]
        ends = (index < self.first) | (index >= count - self.last)
        seen = ((ahead >= -self.before) & (ahead <= self.after)) | ends[None, :] | ends[:, None]
        for b in range(count):
            seen[b, self.drawn(b, count)] = True
        return seen

    def drawn(self, b: int, count: int) -> Tensor:
        """The random blocks that block b sees, int64."""
        earlier = torch.arange(self.first, max(b - self.before, self.first))
        later = torch.arange(b + self.after + 1, max(count - self.last, b + self.after + 1))
        sides = (("before", earlier, self.random_before), ("after", later, self.random_after))
        return torch.cat(
            [
                side[torch.randperm(len(side), generator=stream("bigbird", self.seed, name, b))[:wanted]]
                for name, side, wanted in sides
            ]
        )
