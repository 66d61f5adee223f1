"""Patterns of what places are: speaker, turn, block, definition … in the integer channels that a task supplies."""

from __future__ import annotations

from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.pattern.base import Pattern, steps_ahead
from swapformer.model.tokens import Tokens


def _tag(tokens: Tokens, name: str) -> Tensor:
    if name not in tokens.tags:
        raise ValueError(
            f"a pattern by tag needs the channel {name!r}, but the task supplies {sorted(tokens.tags) or 'none'}; "
            "choose a task that tags its places, or another pattern."
        )
    return tokens.tags[name]


class TagWindow(Pattern):
    """A band of tag values: −before ≤ tag_j − tag_i ≤ after.

    With 0 and 0 the places of the same value (same speaker, same block); with a tag that counts turns the last ones.
    Says nothing of order: combine it with Causal where the future must stay hidden.

    Args:
        tag: name of the channel.
        before, after: smaller and larger values that are seen.

    Raises:
        ValueError: if a number is negative, or the places lack the channel.
    """

    def __init__(self, dims: Dims, *, tag: str, before: int, after: int = 0) -> None:
        if before < 0 or after < 0:
            raise ValueError(f"`before` and `after` must be at least 0, but they are {before} and {after}.")
        self.tag, self.before, self.after = tag, before, after
        self.tags = (tag,)

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        ahead = _tag(key, self.tag)[:, None, None, :] - _tag(query, self.tag)[:, None, :, None]
        return (ahead >= -self.before) & (ahead <= self.after)


class TaggedKeys(Pattern):
    """Places with one value of a tag are seen by all, and every place by itself: tag_j = value or j = i.

    Definitions in code, key events of a series. Says nothing of order: combine it with Causal where the future must
    stay hidden.

    Args:
        tag: name of the channel.
        value: the value that is seen.

    Raises:
        ValueError: if the places lack the channel.
    """

    def __init__(self, dims: Dims, *, tag: str, value: int) -> None:
        self.tag, self.value = tag, value
        self.tags = (tag,)

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        return (_tag(key, self.tag) == self.value)[:, None, None, :] | (steps_ahead(query, key) == 0)
