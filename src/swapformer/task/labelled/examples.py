"""From rows to examples: divided, learned from, tokenised, and kept as arrays.

Which examples of validation and test are read in training too, word for word, and so are not judged."""

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
from swapformer.task import cache, code
from swapformer.task import source as sources
from swapformer.task import tokeniser as tokenisers
from swapformer.task.base import Places, Split
from swapformer.task.division import SPLITS, split_of
from swapformer.task.labelled.answers import Answers, Kind, answer_of
from swapformer.task.source import Source, text_of
from swapformer.task.tokeniser import Learned, Tokeniser

_ARRAYS = ("ids", "offsets", "answers")
_AT_ONCE = 1 << 20
"""Characters that are handed to the tokeniser together."""


@dataclass(frozen=True)
class Columns:
    """What is asked of a row besides its text: further `texts`, and `answers` of one kind."""

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
    learned: Learned
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
    stamp = source.stamp()
    names = tokeniser.all_special(special)
    packages = (sources, tokenisers, code)
    made_by = cache.code_of(
        str(Path(__file__).parent),
        inspect.getfile(split_of),
        *(str(Path(package.__file__).parent) for package in packages if package.__file__),
        *(inspect.getsourcefile(type(part)) for part in (source, tokeniser)),
    )
    kinds = [type(source).__qualname__, type(tokeniser).__qualname__]
    facts = [made_by, kinds, stamp.facts, tokeniser.settings(), names, fractions, asdict(columns)]
    make = partial(_build, source, tokeniser, names, fractions, columns)
    found = cache.kept(facts, stamp.changed, _ARRAYS, make)
    train, val, test = found.header["counts"]
    learned = found.header["learned"]
    return Examples(
        **{name: found.arrays[name].array for name in _ARRAYS},
        counts=(train, val, test),
        classes=tuple(found.header["classes"]),
        learned=Learned(**{**learned, "tokens": tuple(learned["tokens"]), "sizes": tuple(learned["sizes"])}),
        fingerprint=found.fingerprint,
    )


@dataclass(frozen=True)
class SplitRows:
    """The rows of a source with their splits, decided by a hash of what they are; any number of times."""

    source: Source
    fractions: Sequence[float]
    columns: Columns

    def __iter__(self) -> Iterator[tuple[Split, str, list[str], dict[str, Any]]]:
        """(split, place, texts, values)."""
        for document in self.source.documents(self.columns.all):
            values = dict(document.values)
            texts = [document.text(), *(text_of(document.name, name, values[name]) for name in self.columns.texts)]
            yield split_of(document.key, self.fractions), document.name, texts, values


@dataclass(frozen=True)
class _LearningTexts:
    """What a tokeniser may learn from; any number of times."""

    rows: SplitRows
    splits: Sequence[Split]

    def __iter__(self) -> Iterator[str]:
        return (text for split, _, texts, _ in self.rows if split in self.splits for text in texts)


def _build(
    source: Source,
    tokeniser: Tokeniser,
    special: Sequence[str],
    fractions: Sequence[float],
    columns: Columns,
    folder: Path,
) -> dict[str, Any]:
    rows, answers = SplitRows(source, fractions, columns), Answers(columns.kind)
    for split, place, _, values in rows:
        answers.add(split, place, answer_of(columns.kind, place, columns.answers, values))
    for split, fraction, count in zip(SPLITS, fractions, answers.counts, strict=True):
        if fraction > 0 and count == 0:
            raise UsageError(
                f"the {split} split of {source.description} must have rows, but a hash sends none of its "
                f"{sum(answers.counts)} there; give more rows, or another task.split"
            )
    classes = answers.classes()
    may_see = SPLITS if tokeniser.learns_from == "everything" else SPLITS[:1]
    learned = tokeniser.learn(_LearningTexts(rows, may_see), special, source.min_count)
    ids = _tokenise(rows, tokeniser.with_learned(learned))
    lengths = np.array([0, *(len(one) for split in SPLITS for one in ids[split])])
    dtype = np.min_scalar_type(len(learned.tokens) - 1)
    np.save(folder / "ids.npy", np.concatenate([one for split in SPLITS for one in ids[split]]).astype(dtype))
    np.save(folder / "offsets.npy", np.cumsum(lengths))
    np.save(folder / "answers.npy", answers.array(classes))
    return {"counts": answers.counts, "classes": classes, "learned": asdict(learned)}


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
"""Examples that are placed together."""
_JUDGED: tuple[Split, Split] = ("val", "test")

Place = Callable[[NDArray[np.int64]], Places]


def unseen(examples: Examples, place: Place, facts: Sequence[object]) -> dict[Split, NDArray[np.int64]]:
    """The examples of validation and test whose text is not that of a training example once it is cut to its places.

    `place`: what is read of examples with certain numbers; `facts`: JSON that identifies how. Kept between runs.
    UsageError: none is left of a split.
    """
    found = cache.kept([examples.fingerprint, *facts], 0, _JUDGED, partial(_find_unseen, examples, place))
    left = {split: np.array(found.arrays[split].array) for split in _JUDGED}
    for split, rows in left.items():
        if (count := len(examples.rows(split))) and not len(rows):
            raise UsageError(
                f"the {split} split must have rows that training has not, but all of its {count} are read in training "
                "too, word for word, once they are cut; raise task.block, or give more rows"
            )
    return left


def _find_unseen(examples: Examples, place: Place, folder: Path) -> Mapping[str, object]:
    seen = set(_read(examples, "train", place))
    for split in _JUDGED:
        known = np.fromiter((text in seen for text in _read(examples, split, place)), dtype=bool)
        np.save(folder / f"{split}.npy", examples.rows(split).start + np.flatnonzero(~known))
    return {}


def _read(examples: Examples, split: Split, place: Place) -> Iterator[bytes]:
    """What is read of each example of a split, as a digest."""
    rows = examples.rows(split)
    for start in range(rows.start, rows.stop, _ROWS_AT_ONCE):
        inputs = place(np.arange(start, min(start + _ROWS_AT_ONCE, rows.stop))).inputs
        yield from (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in inputs.numpy())
