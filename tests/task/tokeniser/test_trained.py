"""A tokeniser that is taken from a trial writes as it did there."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.results.vocabulary import vocabulary_path
from swapformer.study.config.compose import compose
from swapformer.study.config.identity import trial_id
from swapformer.task.labelled import Classification
from swapformer.task.source import Files, Snippets
from swapformer.task.tokeniser import BPE, MASK, Bytes, Characters, Tokeniser, Trained, WordPiece
from texts import text

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
TOKENISERS: dict[str, Any] = {
    "characters": lambda special: Characters(min_count=5, special=special),
    "bytes": lambda special: Bytes(special=special),
    "bpe": lambda special: BPE(vocab_size=400, special=special),
    "wordpiece": lambda special: WordPiece(vocab_size=300, lowercase=True, special=special),
}


def kept(folder: Path, tokeniser: Tokeniser) -> tuple[Any, Path]:
    """A task, and a trial's folder with what it keeps."""
    task = text(inspect.getfile(inspect), tokeniser=tokeniser, split=[0.6, 0.2, 0.2])
    trial = folder / "trials" / "0123456789abcdef"
    trial.mkdir(parents=True)
    vocabulary_path(trial).write_text(task.vocabulary(), encoding="utf-8")
    return task, trial


@pytest.mark.parametrize("name", TOKENISERS)
def test_another_task_writes_and_reads_as_the_trial_did(tmp_path: Path, name: str) -> None:
    task, trial = kept(tmp_path, TOKENISERS[name](SPECIAL))
    other = Classification(
        source=Snippets(packages=["asyncio", "email"], lines=9), tokeniser=Trained(path=str(trial)), label="package"
    )
    assert other.tokens == task.tokens and other.vocab_size == task.vocab_size
    for words in ("def f(x):\n    return 'x'\n", "import Asyncio ü"):
        if name != "characters" or "ü" not in words:
            assert other.encode(words) == task.encode(words)
            assert other.decode(task.encode(words)) == task.decode(task.encode(words))
    held, passed_on = json.loads(task.vocabulary()), json.loads(other.vocabulary())
    assert {**passed_on, "language": None} == {**held, "language": None}, "so it can be handed on"
    assert (other.tokeniser.lossless, other.tokeniser.any_bytes) == (task.tokeniser.lossless, task.tokeniser.any_bytes)
    assert [other.tokens[index] for index in other.train_batch(0, 0).inputs[:, 0].tolist()] == ["[CLS]"] * 16


def test_the_beginning_of_a_trials_name_will_do(tmp_path: Path) -> None:
    task, trial = kept(tmp_path, Characters(min_count=5, special=SPECIAL))
    for path in (trial, trial.parent / "0123", vocabulary_path(trial)):
        assert Trained(path=str(path)).settings() == Trained(path=str(trial)).settings()
    file = tmp_path / "code.py"
    file.write_text("import this\n" * 200)
    one = text(file, tokeniser=Trained(path=str(trial)))
    two = text(file, tokeniser=Characters(min_count=5))
    assert one.tokens == task.tokens != two.tokens and one.fingerprint() != two.fingerprint()


def test_a_special_token_that_it_lacks_is_named(tmp_path: Path) -> None:
    _, trial = kept(tmp_path, Characters(min_count=5, special=[MASK]))
    with pytest.raises(UsageError, match=r"it has no \[PAD\], \[CLS\], \[SEP\]; train it with .*'\[PAD\]','\[CLS\]'"):
        Classification(source=Snippets(packages=["email"], lines=9), tokeniser=Trained(path=str(trial)))


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"tokeniser": 1}'])
def test_a_folder_without_one_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        vocabulary_path(tmp_path).write_text(content)
    with pytest.raises(UsageError, match="must be the folder of a trial whose task is written by a tokeniser"):
        Trained(path=str(tmp_path))


def test_a_trial_is_known_by_what_the_tokeniser_holds_not_by_where_it_lies(tmp_path: Path) -> None:
    _, trial = kept(tmp_path, Characters(min_count=5, special=SPECIAL))
    moved = tmp_path / "moved"
    trial.rename(moved)
    trial.mkdir()
    vocabulary_path(trial).write_text(vocabulary_path(moved).read_text(encoding="utf-8"), encoding="utf-8")
    overrides = ["task/source=files", f"task.source.path={inspect.getfile(Files)}", "task/tokeniser=trained"]
    ids = {trial_id(compose([*overrides, f"task.tokeniser.path={path}"])) for path in (trial, moved)}
    assert len(ids) == 1


def of_class(trial: Path, name: str) -> Path:
    """The same file, saying that its tokeniser is of another class."""
    held = json.loads(vocabulary_path(trial).read_text(encoding="utf-8"))
    path = trial / "other.json"
    path.write_text(json.dumps(held | {"tokeniser": name}), encoding="utf-8")
    return path


def test_a_file_cannot_have_code_run_that_was_not_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, trial = kept(tmp_path, Characters(min_count=5, special=SPECIAL))
    (tmp_path / "stranger.py").write_text(
        "from pathlib import Path\nfrom swapformer.task.tokeniser import Characters\n"
        f"Path({str(tmp_path / 'ran')!r}).touch()\n\nclass Mine(Characters):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    path = str(of_class(trial, "stranger.Mine"))
    with pytest.raises(UsageError, match=r"the tokeniser of .* stranger.Mine; if you trust it: SWAPFORMER_PACKAGES="):
        Trained(path=path)
    assert not (tmp_path / "ran").exists(), "it was not imported"
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "stranger")
    allowed = Trained(path=path)
    assert (tmp_path / "ran").exists()
    assert allowed.settings() == Trained(path=str(trial)).settings(), "what it holds is what it is known by"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("subprocess.Popen", "has subprocess.Popen; if you trust it: SWAPFORMER_PACKAGES=subprocess"),
        ("swapformer.task.tokeniser.Morse", "of a class that can be had: .*'Morse'"),
        ("swapformer.nowhere.Mine", "of a class that can be had: .* swapformer.nowhere.Mine$"),
        (
            "swapformer.task.tokeniser.LearnedTokens",
            "must be a Tokeniser, but 'swapformer.task.tokeniser.LearnedTokens' is not one",
        ),
        ("Mine", "if you trust it"),
        (None, "if you trust it"),
    ],
)
def test_a_class_that_is_none_of_ours_is_named(tmp_path: Path, name: str, message: str) -> None:
    _, trial = kept(tmp_path, Characters(min_count=5, special=SPECIAL))
    with pytest.raises(UsageError, match=message):
        Trained(path=str(of_class(trial, name)))
