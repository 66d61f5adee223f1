"""Examples made of the rows of a table: divided, learned from, tokenised, and cached as arrays."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swapformer.errors import UsageError
from swapformer.task import cache, python_syntax
from swapformer.task.base import Sequences, Split
from swapformer.task.corpus import code_of_parts
from swapformer.task.division import SPLITS, split_of_document
from swapformer.task.labelled.answers import ExampleAnswers, Kind, answer_of
from swapformer.task.source import Source, text_of
from swapformer.task.tokeniser import LearnedTokens, Tokeniser

_ARRAYS = ("ids", "offsets", "answers")
_AT_ONCE = 1 << 20
"""Characters that are handed to the tokeniser together."""


@dataclass(frozen=True)
class Columns:
    """The columns that are read of a row besides its text: further `texts`, and `answers` of one kind."""

    texts: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    kind: Kind = "none"

    @property
    def all(self) -> list[str]:
        """Their names."""
        return [*self.texts, *self.answers]


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of F texts each, training first, then validation, then test; usually mapped from a file.

    `ids` [n] and `offsets` [E·F+1]: text f of example e is ids[offsets[e·F+f]:offsets[e·F+f+1]]. `answers`: classes [E]
    or values [E,A]. `counts`: how many examples each split has. `fingerprint`: SHA-256 of all of this, in hex.
    """

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    answers: NDArray[Any]
    counts: tuple[int, int, int]
    classes: tuple[str, ...]
    learned: LearnedTokens
    fingerprint: str

    def rows(self, split: Split) -> range:
        """The examples of a split."""
        index = SPLITS.index(split)
        first = sum(self.counts[:index])
        return range(first, first + self.counts[index])


def examples_of(
    source: Source,
    tokeniser: Tokeniser,
    special: Sequence[str],
    fractions: tuple[float, float, float],
    columns: Columns,
) -> Examples:
    """The examples of a source, tokenised now or earlier.

    UsageError: what source and tokeniser say, a column or an answer that is missing, an empty split, a class that
    training lacks.
    """

    def build(folder: Path) -> dict[str, Any]:
        rows, answers = SplitRows(source, fractions, columns), ExampleAnswers(columns.kind)
        for split, name, _, values in rows:
            answers.add(split, name, answer_of(columns.kind, name, columns.answers, values))
        for split, fraction, count in zip(SPLITS, fractions, answers.counts, strict=True):
            if fraction > 0 and count == 0:
                raise UsageError(
                    f"the {split} split of {source.description} must have rows, but a hash sends none of its "
                    f"{sum(answers.counts)} there; give more rows, or another task.split"
                )
        classes = answers.classes()
        may_see = SPLITS if tokeniser.learns_from == "everything" else SPLITS[:1]
        learned = tokeniser.learn(_LearningTexts(rows, may_see), names, source.min_count)
        ids = _tokenise(rows, tokeniser.with_learned(learned))
        lengths = np.array([0, *(len(one) for split in SPLITS for one in ids[split])])
        dtype = np.min_scalar_type(len(learned.tokens) - 1)
        np.save(folder / "ids.npy", np.concatenate([one for split in SPLITS for one in ids[split]]).astype(dtype))
        np.save(folder / "offsets.npy", np.cumsum(lengths))
        np.save(folder / "answers.npy", answers.array(classes))
        return {"counts": answers.counts, "classes": classes, "learned": asdict(learned)}

    stamp = source.stamp()
    names = tokeniser.all_special(special)
    code = cache.code_hash(
        str(Path(__file__).parent),
        inspect.getfile(split_of_document),
        python_syntax.__file__,
        *code_of_parts(source, tokeniser),
    )
    kinds = [type(source).__qualname__, type(tokeniser).__qualname__]
    facts = [code, kinds, stamp.facts, tokeniser.settings(), names, fractions, asdict(columns)]
    found = cache.cached_arrays(facts, stamp.changed, _ARRAYS, build)
    train, val, test = found.header["counts"]
    return Examples(
        **{name: found.arrays[name].array for name in _ARRAYS},
        counts=(train, val, test),
        classes=tuple(found.header["classes"]),
        learned=LearnedTokens.from_json(found.header["learned"]),
        fingerprint=found.fingerprint,
    )


@dataclass(frozen=True)
class SplitRows:
    """The rows of a source with their splits; it can be gone through any number of times."""

    source: Source
    fractions: Sequence[float]
    columns: Columns

    def __iter__(self) -> Iterator[tuple[Split, str, list[str], dict[str, Any]]]:
        """(split, name of the row, texts, values)."""
        for document in self.source.documents(self.columns.all):
            values = dict(document.values)
            texts = [document.text(), *(text_of(document.name, name, values[name]) for name in self.columns.texts)]
            if not texts[0]:  # the split is one of the text: all such rows would be in the same
                raise UsageError(f"each example must have a text, but at {document.name} it is empty; remove that row")
            yield split_of_document(document, self.fractions), document.name, texts, values


@dataclass(frozen=True)
class _LearningTexts:
    """The texts that a tokeniser may learn from; it can be gone through any number of times."""

    rows: SplitRows
    splits: Sequence[Split]

    def __iter__(self) -> Iterator[str]:
        return (text for split, _, texts, _ in self.rows if split in self.splits for text in texts)


def _tokenise(rows: SplitRows, tokeniser: Tokeniser) -> dict[Split, list[NDArray[Any]]]:
    """The ids of every text of each split."""
    ids: dict[Split, list[NDArray[Any]]] = {split: [] for split in SPLITS}
    waiting: list[tuple[Split, str]] = []
    held = 0

    def write() -> None:
        for (split, _), written in zip(waiting, tokeniser.write([text for _, text in waiting]), strict=True):
            ids[split].append(written)
        waiting.clear()

    for split, _, texts, _ in rows:
        waiting += [(split, text) for text in texts]
        held += sum(map(len, texts))
        if held > _AT_ONCE:
            write()
            held = 0
    write()
    return ids


_ROWS_AT_ONCE = 1024
"""Examples that are read together."""
_EVALUATED: tuple[Split, Split] = ("val", "test")

Read = Callable[[NDArray[np.int64]], Sequences]


def unseen_examples(examples: Examples, read: Read, facts: Sequence[object]) -> dict[Split, NDArray[np.int64]]:
    """The examples of validation and test whose text is not that of a training example once it is cut.

    `read`: what is read of examples with certain numbers; `facts`: JSON that identifies how. Kept between runs.
    UsageError: none is left of a split.
    """
    found = cache.cached_arrays([examples.fingerprint, *facts], 0, _EVALUATED, partial(_find_unseen, examples, read))
    left = {split: np.array(found.arrays[split].array) for split in _EVALUATED}
    for split, rows in left.items():
        if (count := len(examples.rows(split))) and not len(rows):
            raise UsageError(
                f"the {split} split must have rows that training does not have, but all of its {count} are read in "
                "training too, word for word, once they are cut; raise task.block, or give more rows"
            )
    return left


def _find_unseen(examples: Examples, read: Read, folder: Path) -> Mapping[str, object]:
    seen = set(_digests(examples, "train", read))
    for split in _EVALUATED:
        known = np.fromiter((text in seen for text in _digests(examples, split, read)), dtype=bool)
        np.save(folder / f"{split}.npy", examples.rows(split).start + np.flatnonzero(~known))
    return {}


def _digests(examples: Examples, split: Split, read: Read) -> Iterator[bytes]:
    """A digest of the tokens that are read of each example of a split."""
    rows = examples.rows(split)
    for start in range(rows.start, rows.stop, _ROWS_AT_ONCE):
        inputs = read(np.arange(start, min(start + _ROWS_AT_ONCE, rows.stop))).inputs
        yield from (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in inputs.numpy())
