"""Nothing from the future: all that a model is given at a place follows from the text up to it, in every task.

A model of the next token that is shown something of what comes reads its targets there. So the future is changed, and
what is given before it must stay: padding, documents, positions and tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import get_object

from swapformer.task import Batch, Task
from swapformer.task import seasons as generated
from swapformer.task import source_code as code
from swapformer.task.division import split_of
from swapformer.task.forecast import Forecast
from swapformer.task.labelled.base import LabelledTask
from swapformer.task.layout import ItemLayout
from swapformer.task.python_syntax import ParsedSource
from swapformer.task.reference import Dialogue
from swapformer.task.seasons import Seasons
from swapformer.task.synthetic import Synthetic
from swapformer.task.text import NextToken
from swapformer.task.text_task import BlockTask
from swapformer.task.tokeniser.base import TokenSpans
from task.test_code_tags import from_tree
from task.test_purity import YAMLS, build, node

EXEMPT = {
    **dict.fromkeys(("masked", "masked_nsp"), "hidden tokens are restored from both sides"),
    "roles": "a token is classified when the whole text has been read",
    **dict.fromkeys(("classification", "regression", "packages"), "the answer is about the whole text"),
}
"""Tasks that do not predict what comes next, and why nothing in them is the future."""

ALIKE = {"dialogue": {"speakers": 2, "topics": 2, "words": 2, "noise": 2, "lengths": [2, 3], "eval_lengths": []}}
"""Settings with which many items begin alike; those of other tasks have no more than padding beside their symbols."""

HEAD = "@one\ndef first(x):\n    if x:\n        return 1\n    else:\n        y = 2\n\n\nclass A:\n    pass\n\n\n"
ENDS = (
    "def f(x):\n    y = 1\n    return y\n\n\nif f:\n    match = 1\n",
    "def f(x):\n    y = 1\nfor y in x:\n    y = 3\n\nclass f: pass\n",
    'def f(x):\n    y = 1\nelif_ = yield_(); classy = 1; returns = match; x = ""\nif_ = y\n',
    "def f(x):\n    y = 1\n",
    "def f(x):\n    y = 1\nf(y)\ndef f(): pass\n",
    "def f(x):\n    y = 1\nf(y)\ndef z(): pass\n",
)
"""Ways in which a file goes on: first they are alike, and words and lines are cut short by what follows."""


def channels(batch: Batch) -> dict[str, torch.Tensor]:
    """All that is given beside the symbols."""
    held = {"padding": batch.padding, "document": batch.document, "position": batch.position, **batch.tags}
    return {name: channel for name, channel in held.items() if channel is not None}


def leaks_between(one: Batch, two: Batch) -> set[str]:
    """The channels that differ before the first input that does, in some row of two batches."""
    shape = min(one.inputs.shape[1], two.inputs.shape[1])
    apart = one.inputs[:, :shape] != two.inputs[:, :shape]
    apart = apart.any(2) if apart.dim() == 3 else apart
    same = apart.cumsum(1) == 0
    first, second = channels(one), channels(two)
    return {
        name
        for name in first.keys() | second.keys()
        if name not in first or name not in second or bool((same & (first[name] != second[name])[:, :shape]).any())
    }


def leaks_within(batch: Batch) -> set[str]:
    """The channels that differ between rows of a batch that are alike up to there, their source included."""
    source = batch.source
    heads = [b""] * len(batch.inputs) if source is None else [row.numpy().tobytes() for row in source.inputs]
    found, given = set(), channels(batch)
    for name, channel in given.items():
        seen: dict[tuple[bytes, bytes], float] = {}
        for head, inputs, values in zip(heads, batch.inputs.numpy(), channel.tolist(), strict=True):
            for place, value in enumerate(values):
                if seen.setdefault((head, inputs[: place + 1].tobytes()), value) != value:
                    found.add(name)
    return found


def evaluated(task: Task) -> Iterable[Batch]:
    return (one.batch(index) for one in task.evaluation("val") for index in range(min(2, one.batches or 2)))


def synthetic(path: Path, folder: Path) -> set[str]:
    """Rows that begin alike."""
    own = {"batch_size": 512, **ALIKE.get(path.stem, {})}
    ways = [{}, {"as_source": True}] if "as_source" in node(path) else [{}]
    tasks = [build(path, **own, **way) for way in ways]
    return set().union(*(leaks_within(batch) for task in tasks for batch in (task.train_batch(0, 0), *evaluated(task))))


def labelled(path: Path, folder: Path) -> set[str]:
    """Rows that begin alike."""
    task = build(path, batch_size=64)
    return set().union(*(leaks_within(batch) for batch in (task.train_batch(0, 0), *evaluated(task))))


def text(path: Path, folder: Path) -> set[str]:
    """The same file going on in several ways: from all of its places, in every way to pack and to evaluate it."""
    ways: list[dict[str, Any]] = [{}]
    if "packing" in node(path):
        ways += [{"packing": "documents"}, {"packing": "documents", "reset_positions": True}]
    found = set()
    for tokeniser in ("Characters", "Bytes"):
        for way in ways:
            tasks = [_on_files(path, folder, tokeniser, end, way) for end in ENDS]
            ids = [task.ids["train"] for task in tasks]
            for one, two in combinations(range(len(ENDS)), 2):
                # A sequence that begins behind the first difference has another past.
                shorter = min(len(ids[one]), len(ids[two]))
                last = int((ids[one][:shorter] != ids[two][:shorter]).argmax())
                for starts, length in ((torch.arange(0, last, 3), 16), (torch.zeros(1).long(), last + 16)):
                    drawn = (
                        tasks[number].batch("train", starts, length, torch.Generator().manual_seed(1))
                        for number in (one, two)
                    )
                    found |= leaks_between(*drawn)
    if "stride" in node(path):
        contents = ["ab " * 400 + end * 200 for end in ("a", "b")]
        slid = []
        for number, content in enumerate(contents):
            (folder / f"slid{number}.txt").write_text(content, encoding="utf-8")
            source = {"_target_": "swapformer.task.source.Files", "path": str(folder / f"slid{number}.txt")}
            slid.append(build(path, source=source, tokeniser=CHARACTERS, split=[0.5, 0.5, 0.0], block=16, stride=4))
        for one_batch, two_batch in zip(*map(evaluated, slid), strict=True):
            found |= leaks_between(one_batch, two_batch)
    return found


SPLIT = (0.5, 0.5, 0.0)
CHARACTERS = {"_target_": "swapformer.task.tokeniser.Characters", "min_count": 1}


def _on_files(path: Path, folder: Path, tokeniser: str, end: str, way: dict[str, Any]) -> Any:
    """A task on a file that goes on with `end`, of the same letters whichever it is, and on two others."""
    letters = "".join(sorted({*"".join(ENDS), *HEAD} - {"\n"}))
    contents = {"a.py": f"é = 1\n{HEAD}{end}", "b.py": f"# {letters}é\n", "c.py": f"x = 1  # {letters}\n"}
    place = folder / "source"
    place.mkdir(exist_ok=True)
    for (name, content), split in zip(contents.items(), ("train", "train", "val"), strict=True):
        endings = (f"{content}# {number}\n" for number in range(100, 999))  # a hash decides: until it is as wanted
        chosen = next(text for text in endings if split_of(sha256(text.encode()).hexdigest(), SPLIT) == split)
        (place / name).write_text(chosen, encoding="utf-8")
    made = {"_target_": f"swapformer.task.tokeniser.{tokeniser}"} if tokeniser == "Bytes" else CHARACTERS
    source = {"_target_": "swapformer.task.source.Files", "path": str(place / "*.py")}
    return build(path, source=source, tokeniser=made, split=SPLIT, block=16, **way)


def forecast(path: Path, folder: Path) -> set[str]:
    """The same series going on in two ways, after the part that its mean and deviation are of."""
    rows = np.random.default_rng(0).normal(size=400)
    tasks = []
    for number, jump in enumerate((0, 9)):
        series = np.concatenate([rows[:300], rows[300:] + jump])
        cells = ["" if place % 31 == 7 else str(value) for place, value in enumerate(series)]
        (folder / f"series{number}.csv").write_text("\n".join(["value", *cells]), encoding="utf-8")
        own = {"columns": ["value"], "across": False, "block": 30, "eval_lengths": [60], "season": 12}
        tasks.append(build(path, path=str(folder / f"series{number}.csv"), split=[0.5, 0.5, 0.0], **own))
    return set().union(*(leaks_between(one, two) for one, two in zip(*map(evaluated, tasks), strict=True)))


def seasons(path: Path, folder: Path) -> set[str]:
    """The same generated series going on in two ways, after the part that its mean and deviation are of."""
    draw = generated.seasons
    tasks = []
    for jump in (0, 9):

        def going_on(jump: int = jump, **settings: Any) -> Any:
            announced, values = draw(**settings)
            at = slice(int(0.75 * len(values)), None)
            values[at] += jump
            announced[at] ^= jump > 0
            return announced, values

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(generated, "seasons", going_on)
            tasks.append(build(path, length=2000, split=[0.5, 0.5, 0.0], block=90))
    return set().union(*(leaks_between(one, two) for one, two in zip(*map(evaluated, tasks), strict=True)))


LAWS: Sequence[tuple[type[Task], Callable[[Path, Path], set[str]]]] = (
    (Synthetic, synthetic), (LabelledTask, labelled), (BlockTask, text), (Seasons, seasons),
    (Forecast, forecast),
)  # fmt: skip
"""How the future is changed in the tasks of a kind, the first that a task is of."""


def leaks(path: Path, folder: Path) -> set[str]:
    """What a task gives away of its future."""
    kind = get_object(node(path)["_target_"])
    law = next(law for base, law in LAWS if issubclass(kind, base))
    return law(path, folder)


NEXT = [path for path in YAMLS if path.stem not in EXEMPT]


def test_every_task_that_predicts_what_comes_next_is_held_to_the_law() -> None:
    kinds = {path.stem: get_object(node(path)["_target_"]) for path in YAMLS}
    assert {name for name, kind in kinds.items() if not kind.predicts_next} == EXEMPT.keys()


@pytest.mark.parametrize("path", NEXT, ids=lambda path: path.stem)
def test_what_is_given_at_a_place_follows_from_the_text_up_to_it(path: Path, tmp_path: Path) -> None:
    assert leaks(path, tmp_path) == set()


def topic_beforehand(patch: pytest.MonkeyPatch) -> None:
    write = Dialogue.write

    def leaking(self: Dialogue, *arguments: Any) -> ItemLayout:
        found = write(self, *arguments)
        topic = found.tags["topic"]
        return replace(found, tags={**found.tags, "topic": torch.where(topic == self.topics, topic.roll(-1, 1), topic)})

    patch.setattr(Dialogue, "write", leaking)


def whole_statements(patch: pytest.MonkeyPatch) -> None:
    def leaking(parsed: ParsedSource, written: TokenSpans) -> Any:
        tags = from_tree(parsed.text)[0]
        return {name: values[written.starts] for name, values in tags.items()}

    patch.setattr(code, "tags_of_file", leaking)


def places_before_the_end(patch: pytest.MonkeyPatch) -> None:
    def leaking(self: NextToken, document: torch.Tensor) -> torch.Tensor:
        rows, length = document.shape
        ends = torch.ones_like(document, dtype=torch.bool)
        ends[:, :-1] = document[:, 1:] != document[:, :-1]
        place = torch.arange(length).expand(rows, -1)
        return torch.where(ends, place, length).flip(1).cummin(1).values.flip(1) - place

    patch.setattr(NextToken, "positions", leaking)


def padding_beforehand(kind: type[Any]) -> Callable[[pytest.MonkeyPatch], None]:
    name = "collate" if kind is Synthetic else "batch"

    def plant(patch: pytest.MonkeyPatch) -> None:
        method = getattr(kind, name)

        def leaking(self: Any, *arguments: Any) -> Batch:
            batch: Batch = method(self, *arguments)
            return batch if batch.padding is None else replace(batch, padding=batch.padding.roll(-1, 1))

        patch.setattr(kind, name, leaking)

    return plant


def events_beforehand(kind: type[Forecast]) -> Callable[[pytest.MonkeyPatch], None]:
    find = kind._find_events

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(kind, "_find_events", lambda self: np.roll(find(self), -1))

    return plant


def boundary_beforehand(patch: pytest.MonkeyPatch) -> None:
    collate = Dialogue.collate

    def leaking(self: Dialogue, *arguments: Any) -> Batch:
        batch = collate(self, *arguments)
        return replace(batch, tags={**batch.tags, "boundary": batch.tags["boundary"].roll(-1, 1)})

    patch.setattr(Dialogue, "collate", leaking)


def early(places: int, *names: str) -> Callable[[pytest.MonkeyPatch], None]:
    """What tags of source say of a character is said some places before it."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        tags = code.tags_of_file

        def leaking(parsed: ParsedSource, written: TokenSpans) -> Any:
            found = tags(parsed, written)
            return {**found, **{name: np.roll(found[name], -places) for name in names}}

        patch.setattr(code, "tags_of_file", leaking)

    return plant


FAULTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "a turn's topic at its speaker": ("dialogue", topic_beforehand, {"topic"}),
    "statements tagged from their first letter to their last": ("source_code", whole_statements, {"block", "scope"}),
    "places counted from the end of a document": ("text", places_before_the_end, {"position"}),
    "padding that begins one place early": ("dyck", padding_beforehand(Synthetic), {"padding"}),
    "an event before the value that jumps": ("elnino", events_beforehand(Forecast), {"event"}),
    "an event before it is announced": ("seasons", events_beforehand(Seasons), {"event"}),
    "the end of a turn before the next one": ("dialogue", boundary_beforehand, {"boundary"}),
    "what is read of a name, one character early": ("source_code", early(1, "name"), {"name"}),
    "parentheses before they open": ("source_code", early(1, "callee", "signature"), {"callee"}),
    "a definition before its name": ("source_code", early(2, "defined"), {"defined"}),
    "the end of a block before it": ("source_code", early(1, "level"), {"level"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_look_ahead_is_noticed(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, plant, seen = FAULTS[fault]
    plant(monkeypatch)
    (path,) = (path for path in YAMLS if path.stem == name)
    assert leaks(path, tmp_path) >= seen
