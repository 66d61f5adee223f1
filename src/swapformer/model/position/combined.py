"""Position encodings made of other encodings: their sum, and an encoding of positions drawn at random."""

from __future__ import annotations

from torch import Tensor

from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.ops import total
from swapformer.model.position.base import Position, shared_bias
from swapformer.model.tokens import Tokens
from swapformer.ranges import Count


class Sum(Position):
    """Two encodings at once, such as an absolute and a relative one: their terms are added, and both rotate q and k.

    Choose them with `model/position@model.position.first=learned` and `…second=t5`; their settings are
    `model.position.first.…`. An absolute beside a relative encoding: Ke et al. 2021 (TUPE), arXiv:2006.15595.

    Args:
        first, second: the encodings. An encoding that several layers or sums use is one and is added once.

    Raises:
        ValueError: if one draws its positions and the other does not, for both see the same.
    """

    combines = ("first", "second")

    def __init__(self, dims: Dims, *, first: Position, second: Position) -> None:
        super().__init__(dims)
        if first.drawn_from != second.drawn_from:
            raise ValueError(
                "both encodings of a sum see the same positions, but one draws them from "
                f"{first.drawn_from} and the other from {second.drawn_from}; "
                "choose position=randomized with the sum as its encoding."
            )
        self.first, self.second = first, second
        self.embeds = first.embeds or second.embeds
        self.sees_positions = first.sees_positions or second.sees_positions
        self.pairwise = first.pairwise and second.pairwise
        self.relative = first.relative and second.relative
        self.has_scores = first.has_scores or second.has_scores
        self.has_bias = first.has_bias or second.has_bias
        self.drawn_from = first.drawn_from
        self.depends_on_length = first.depends_on_length or second.depends_on_length
        self.limit = min((part.limit for part in (first, second) if part.limit is not None), default=None)

    def encodings(self) -> tuple[Position, ...]:
        return (*self.first.encodings(), *self.second.encodings())

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        for encoding in dict.fromkeys(self.encodings()):
            x = encoding.embed(x, tokens)
        return x

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.second.rotate(*self.first.rotate(q, k, context), context)

    def scores(self, q: Tensor, k: Tensor, context: Context) -> Tensor | None:
        return total(self.first.scores(q, k, context), self.second.scores(q, k, context))

    def bias(self, context: Context) -> Tensor | None:
        return total(shared_bias(self.first, context), shared_bias(self.second, context))


class Randomized(Position):
    """Another encoding of positions that are drawn at random, in order and without repetition, from a larger range.

    A batch of T tokens gets T sorted numbers of 0 … drawn_from − 1, so that training includes the distances of longer
    sequences. Ruoss et al. 2023, arXiv:2305.16843. Training and evaluation draw alike; the draw
    belongs to the batch, whose step and data seed alone decide it. Choose the encoding with
    `model/position@model.position.encoding=alibi`.

    Args:
        encoding: the encoding of the drawn positions.
        drawn_from: size of the range; more than the longest sequence.

    Raises:
        ValueError: if the encoding draws positions itself.
    """

    combines = ("encoding",)

    def __init__(self, dims: Dims, *, encoding: Position, drawn_from: Count) -> None:
        super().__init__(dims)
        if encoding.drawn_from is not None:
            raise ValueError("the encoding inside randomized draws positions itself; leave one of the two out.")
        self.encoding, self.drawn_from = encoding, drawn_from
        self.embeds, self.sees_positions = encoding.embeds, encoding.sees_positions
        self.relative, self.limit = encoding.relative, encoding.limit
        self.depends_on_length = encoding.depends_on_length
        self.pairwise = encoding.pairwise
        self.has_scores, self.has_bias = encoding.has_scores, encoding.has_bias

    def encodings(self) -> tuple[Position, ...]:
        return self.encoding.encodings()

    def embed(self, x: Tensor, tokens: Tokens) -> Tensor:
        return self.encoding.embed(x, tokens)

    def rotate(self, q: Tensor, k: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        return self.encoding.rotate(q, k, context)

    def scores(self, q: Tensor, k: Tensor, context: Context) -> Tensor | None:
        return self.encoding.scores(q, k, context)

    def bias(self, context: Context) -> Tensor | None:
        return shared_bias(self.encoding, context)
