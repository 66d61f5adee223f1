"""Patterns by tags of the task: speaker, turn, block, definition …"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from torch import Tensor

from swapformer.model.dims import Dims
from swapformer.model.pattern.base import Pattern, steps_ahead
from swapformer.model.tokens import Tokens
from swapformer.ranges import Natural


def _tag(tokens: Tokens, name: str) -> Tensor:
    if name not in tokens.tags:
        raise ValueError(
            f"a pattern by tag needs the channel {name!r}, but the task supplies {sorted(tokens.tags) or 'none'}; "
            "choose a task that tags its tokens, or another pattern."
        )
    return tokens.tags[name]


class TagWindow(Pattern):
    """A band of tag values: −before ≤ tag_j − tag_i ≤ after.

    With 0 and 0 the tokens of the same value (same speaker, same block); with a tag that counts turns the last ones. It
    ignores order: combine it with Causal for a causal model.

    Args:
        tag: name of the channel.
        before, after: how much smaller and larger the value of an allowed key may be.

    Raises:
        ValueError: if a number is negative, or the tokens lack the channel.
    """

    def __init__(self, dims: Dims, *, tag: str, before: Natural, after: Natural = 0) -> None:
        self.tag, self.before, self.after = tag, before, after
        self.tags = (tag,)

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        ahead = _tag(key, self.tag)[:, None, None, :] - _tag(query, self.tag)[:, None, :, None]
        return (ahead >= -self.before) & (ahead <= self.after)


class TaggedKeys(Pattern):
    """Every query may attend to the keys with one value of a tag, and to itself: tag_j = value or j = i.

    For definitions in code or key events of a series. It ignores order: combine it with Causal for a causal model.

    Args:
        tag: name of the channel.
        value: the value of allowed keys.

    Raises:
        ValueError: if the tokens lack the channel.
    """

    def __init__(self, dims: Dims, *, tag: str, value: int) -> None:
        self.tag, self.value = tag, value
        self.tags = (tag,)

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        return (_tag(key, self.tag) == self.value)[:, None, None, :] | (steps_ahead(query, key) == 0)


class TagLink(Pattern):
    """The keys whose tag has the value of one of the query's tags, and itself: key_j = query_i of some pair, or j = i.

    For links between different tags: a statement's parent and a block, a name that is used and one that is defined. It
    ignores order: combine it with Causal for a causal model.

    Args:
        query: names of channels of the query, any of which may agree.
        key: name of the channel of the key.

    Raises:
        ValueError: if no channel of the query is named, or the tokens lack a channel.
    """

    def __init__(self, dims: Dims, *, query: Sequence[str], key: str) -> None:
        if not query:
            raise ValueError(f"`query` of a link must list at least one tag, such as [name], but it is {query!r}.")
        self.query, self.key = tuple(query), key
        self.tags = tuple(dict.fromkeys((*self.query, key)))

    def allowed(self, query: Tokens, key: Tokens) -> Tensor:
        linked = (_tag(query, name)[:, None, :, None] == _tag(key, self.key)[:, None, None, :] for name in self.query)
        return reduce(or_, linked) | (steps_ahead(query, key) == 0)
