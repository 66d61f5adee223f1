"""Causal language modelling of Python source whose tokens say where in the syntax tree they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.task.annotated import Arrays, annotations_of
from swapformer.task.base import Batch, Split
from swapformer.task.code import TAGS, Parsed, syntax
from swapformer.task.code.syntax import of_tokens
from swapformer.task.division import shares
from swapformer.task.source import Source
from swapformer.task.text import Text
from swapformer.task.text_task import Packing
from swapformer.task.tokeniser import Tokeniser
from swapformer.task.tokeniser.base import Written

_KINDS = {"block": np.uint16, "scope": np.uint16, "definition": np.uint8}
_MOST = 1 << 16
"""Blocks of a file: two files' numbers never meet."""


class SourceCode(Text):
    """Predict each next token of Python source, as Text does.

    Tags of every place: `block`, the innermost compound statement; `scope`, the innermost function or class; no two
    files share a number. `definition`: 1 where the name of a function or class is defined. See swapformer.task.code.
    UsageError: a file that is no Python source, with its line.
    """

    tags = TAGS

    def __init__(
        self,
        *,
        source: Source,
        tokeniser: Tokeniser,
        split: Sequence[float] = (0.9, 0.05, 0.05),
        block: int = 64,
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 16,
        packing: Packing = "blocks",
        reset_positions: bool = False,
    ) -> None:
        super().__init__(
            source=source, tokeniser=tokeniser, split=split, block=block, eval_lengths=eval_lengths,
            batch_size=batch_size, packing=packing, reset_positions=reset_positions,
        )  # fmt: skip
        self.said = annotations_of(source, self.tokeniser, self.corpus, shares(split), _KINDS, tags_of)

    def fingerprint(self) -> str:
        """SHA-256 of the corpus and of the tags of its tokens."""
        return self.said.fingerprint

    def _batch(self, split: Split, places: Tensor, length: int) -> Batch:
        batch = super()._batch(split, places, length)
        numbers = {"definition": 0, "block": _MOST, "scope": _MOST}
        file = self.documents(split, places, length)
        tags = {name: self.said.take(split, name, places, length) + file * most for name, most in numbers.items()}
        return replace(batch, tags=tags)


def tags_of(parsed: Parsed, written: Written) -> Arrays:
    """The TAGS of the tokens of a file."""
    found = of_tokens(parsed.text, syntax(parsed), written.starts, written.ends)
    if found["block"].max(initial=0) >= _MOST:
        raise UsageError(f"a file must have fewer than {_MOST} blocks, but {parsed.name} has more; leave it out")
    return found
