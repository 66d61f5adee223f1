"""Python source token by token: what is said of a token is what Python's tokeniser finds at its characters."""

from __future__ import annotations

import re
import tokenize
from hashlib import sha256
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from swapformer.errors import UsageError
from swapformer.task import IGNORE, Text
from swapformer.task.code_tags import TAGS, syntax_tags
from swapformer.task.division import SPLITS, split_of
from swapformer.task.python_syntax import ROLES
from swapformer.task.source import Files, Library
from swapformer.task.source_code import Roles, SourceCode
from swapformer.task.tokeniser import BPE, Bytes, Characters, Tokeniser
from texts import whole_strings

TOKENISERS: dict[str, Any] = {
    "characters": lambda: Characters(min_count=1),
    "bytes": Bytes,
    "bpe": lambda: BPE(vocab_size=400),
}
EXTRA = 'é = "ö"\nclass Über(dict):\n    def ß(self): return f"{self} é"\n\n\ndef plain(a):\n    return a\n'
FRACTIONS = (0.5, 0.3, 0.2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of the library, of several splits, and some with characters of several bytes."""
    for name, path in Library(packages=["json", "dbm"]).files:
        (tmp_path / name.replace("/", "_")).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    for number in range(6):
        (tmp_path / f"extra{number}.py").write_text(f"n = {number}\n{EXTRA}", encoding="utf-8")
    return tmp_path


def made(kind: Any, folder: Path, tokeniser: Tokeniser, **settings: Any) -> Any:
    return kind(**{"source": Files(path=str(folder)), "tokeniser": tokeniser, "split": FRACTIONS} | settings)


def documents(task: Any, split: str) -> list[tuple[str, list[tuple[int, int]]]]:
    """The text of each document and the characters that each of its tokens stands for, by reading ever more tokens."""
    begins, ids = task.begins[split], task.ids[split]
    found = []
    for first, last in pairwise(begins):
        own = ids[first:last]
        sizes = np.cumsum([0, *(task.corpus.learned.sizes[index] for index in own)])
        text = task.decode(own)
        # Sizes are bytes: the character that a byte belongs to.
        of_byte = np.repeat(np.arange(len(text) + 1), [*(len(one.encode()) for one in text), 1])
        spans = [(int(of_byte[a]), int(of_byte[b - 1]) + 1) for a, b in pairwise(sizes)]
        found.append((text, spans))
    return found


def python_tokens(text: str) -> list[tuple[int, str, int]]:
    """Kind, text and first character of every token of Python."""
    starts = np.cumsum([0, *(len(line) for line in text.splitlines(keepends=True))])
    return [
        (token.type, token.string, int(starts[token.start[0] - 1]) + token.start[1])
        for token in whole_strings(tokenize.generate_tokens(StringIO(text).readline))
    ]


@pytest.mark.parametrize("name", TOKENISERS)
def test_tags_of_tokens_are_those_of_their_characters_in_every_file(folder: Path, name: str) -> None:
    task = made(SourceCode, folder, TOKENISERS[name]())
    files = 0
    for split in SPLITS:
        place = 0
        for number, (text, spans) in enumerate(documents(task, split)):
            names = [
                start
                for (_, word, _), (_, _, start) in zip(python_tokens(text), python_tokens(text)[1:], strict=False)
                if word in ("def", "class")
            ]
            known = syntax_tags(text)
            following = [start for start, _ in spans[1:]]
            for (start, end), later in zip(spans, [*following, len(text)], strict=True):
                tags = {
                    tag: int(values[place]) for tag in task.tags for values in [task.annotations.of_split(split, tag)]
                }
                end = min(end, later)  # of the parts of a character, the last one tells
                plain = start if start < end else start - 1
                solid = next((at for at in range(start, end) if not text[at].isspace()), plain)
                places = ("block", "parent", "grandparent", "head", "level", "scope", "defined", "signature")
                assert all(tags[name] == (known[name][solid] if solid >= 0 else 0) for name in places)
                last = max(start, end) - 1
                assert all(tags[name] == (known[name][last] if last >= 0 else 0) for name in ("name", "callee"))
                first = next((n for n in names if start <= n < end), None)
                assert tags["definition"] == max(known["definition"][start:end], default=0)
                assert first is None or tags["definition"] == 1
                place += 1
            files += 1
            assert number < 100
        assert place == len(task.ids[split])
    assert files == len(list(folder.glob("*.py")))


def test_batches_have_the_tags_of_their_places_and_files_share_no_block(folder: Path) -> None:
    task = made(SourceCode, folder, Characters(min_count=1), block=40, packing="documents", eval_lengths=[20])
    blocks: dict[int, int] = {}
    for one in task.evaluation("val"):
        for index in range(one.batches or 0):
            batch = one.batch(index)
            assert set(batch.tags) == set(task.tags) == set(TAGS)
            for file, block in zip(
                batch.document.flatten().tolist(), batch.tags["block"].flatten().tolist(), strict=True
            ):
                assert blocks.setdefault(block, file) == file
    assert len(blocks) > 10
    joined = "".join(text for text, _ in documents(task, "train"))
    plain = task.annotations.of_split("train", "definition").tolist()
    for step in range(5):
        batch = task.train_batch(0, step)
        for ids, defined in zip(batch.inputs, batch.tags["definition"].tolist(), strict=True):
            found = [match.start() for match in re.finditer(re.escape(task.decode(ids)), joined)]
            assert any(defined == plain[at : at + 40] for at in found)


def test_links_between_tags_never_lead_from_one_file_to_another_and_none_links_to_nothing(folder: Path) -> None:
    task = made(SourceCode, folder, Characters(min_count=1), block=250, packing="documents")
    linked = 0
    for one in task.evaluation("val"):
        for index in range(one.batches or 0):
            batch = one.batch(index)
            file = batch.document.unsqueeze(2) == batch.document.unsqueeze(1)
            for query, key in (("name", "defined"), ("callee", "signature"), ("block", "head")):
                asks, answers = batch.tags[query].unsqueeze(2), batch.tags[key].unsqueeze(1)
                assert not ((asks == answers) & ~file).any()
                assert not ((asks == 0) & (answers == 0)).any()
                linked += int((asks == answers).sum())
    assert linked > 100


def test_tags_change_neither_inputs_nor_targets(folder: Path) -> None:
    tagged, plain = (made(kind, folder, Characters(min_count=1)) for kind in (SourceCode, Text))
    one, other = tagged.train_batch(1, 2), plain.train_batch(1, 2)
    assert torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)
    assert tagged.fingerprint() != plain.fingerprint()


@pytest.mark.parametrize("name", TOKENISERS)
def test_a_role_is_asked_for_where_a_token_of_python_begins_and_nowhere_else(folder: Path, name: str) -> None:
    task = made(Roles, folder, TOKENISERS[name]())
    kinds = {tokenize.NUMBER: "number", tokenize.COMMENT: "comment", tokenize.OP: "operator", tokenize.STRING: "string"}
    asked = 0
    for split in SPLITS:
        place = 0
        for text, spans in documents(task, split):
            begins = {start: kinds.get(kind, "") for kind, word, start in python_tokens(text) if word.strip()}
            taken: set[int] = set()
            for start, end in spans:
                label = int(task.annotations.of_split(split, "role")[place])
                first = next((at for at in range(start, end) if at in begins and at not in taken), None)
                # The bytes of one character are several tokens; the first of them is where a token of Python begins.
                taken |= set(range(start, end))
                assert (label == 255) == (first is None)
                if first is not None and begins[first]:
                    assert ROLES[label] == begins[first]
                elif first is not None:
                    assert ROLES[label] not in kinds.values()
                asked += first is not None
                place += 1
    assert asked > 3000 / (1 if name != "bpe" else 2)


def test_blocks_of_roles_are_read_whole_and_scored_where_there_is_a_role(folder: Path) -> None:
    task = made(Roles, folder, Characters(min_count=1), block=30, eval_lengths=[60])
    assert task.interface.readouts[""].kind == "classes" and task.interface.readouts[""].per == "position"
    assert task.predicts_next is False and task.classes == ROLES
    for split in ("val", "test"):
        sets = {one.name: one for one in task.evaluation(split)}
        scored = {
            name: torch.cat([one.batch(n).targets.flatten() for n in range(one.batches)]) for name, one in sets.items()
        }
        assert sets[""].batch(0).inputs.shape == sets[""].batch(0).targets.shape
        assert sets[""].batch(0).inputs.shape[1] == 30
        counts = {name: torch.bincount(found[found != IGNORE], minlength=len(ROLES)) for name, found in scored.items()}
        assert torch.equal(counts[""], counts["@60"]), "both lengths score the same text"
        assert 0.1 < float((scored[""] != IGNORE).float().mean()) < 0.6
    joined = "".join(text for text, _ in documents(task, "train"))
    seen = [task.decode(ids) for step in range(3) for ids in task.train_batch(0, step).inputs]
    assert all(len(piece) == 30 and piece in joined for piece in seen)


def test_files_keep_to_their_splits(folder: Path) -> None:
    task = made(Roles, folder, Characters(min_count=1))
    for split in SPLITS:
        expected = [
            text
            for path in sorted(folder.glob("*.py"))
            if split_of(sha256((text := path.read_text(encoding="utf-8")).encode()).hexdigest(), FRACTIONS) == split
        ]
        assert [text for text, _ in documents(task, split)] == expected


@pytest.mark.parametrize("kind", [SourceCode, Roles])
def test_what_is_no_python_is_named_with_its_line(folder: Path, kind: Any) -> None:
    (folder / "page.html").write_text("<p>\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"page.html', line 1 must be Python source, but: .*remove it"):
        made(kind, folder, Characters(min_count=1))
