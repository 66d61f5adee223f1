"""What is rebuilt of a trial whose data have changed or gone: its model writes on, and nothing is measured."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import swapformer
from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.probes import replay
from swapformer.results.config import read_config
from swapformer.results.record import RUNNING
from swapformer.results.store import Store
from swapformer.results.vocabulary import read_vocabulary, vocabulary_path
from swapformer.study.config import cost
from swapformer.task.language import kept_language
from swapformer.training import weights
from swapformer.training.assemble import build_task, rebuild_task
from swapformer.training.weights import restore, restore_writer

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "watching.md"

TINY = [
    *("model.num_layers=1", "model.d_model=16", "model.num_heads=2", "eval.batches=1", "eval.final_batches=1"),
    *("budget.steps=2", "schedule=constant", "schedule.warmup_steps=0", "task.batch_size=4", "task.block=8"),
    *("model/position=learned", "model/size=nano"),
]
TEXT = "abcdefgh" * 60
OTHER = "ABCDEFGH" * 60
LONGER = TEXT + "stuvwxyz" * 30

PROBE = {"head_similarity": {"_target_": "swapformer.probes.head_similarity.HeadSimilarity", "batches": 1}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and a store with one trial on it."""
    place = tmp_path_factory.mktemp("trained")
    (place / "x.txt").write_text(TEXT)
    assert main(["train", "task/source=files", f"task.source.path={place}/x.txt", *TINY, f"runs_dir={place}/runs"]) == 0
    return place


CHANGED = r"a trial's data must be what it was named by|x\.txt"
Change = Callable[[Path], None]
CHANGES: dict[str, Change] = {
    "other letters": lambda path: path.write_text(OTHER) and None,
    "more letters": lambda path: path.write_text(LONGER) and None,
    "no file": Path.unlink,
}


@pytest.fixture(params=CHANGES)
def trial(request: pytest.FixtureRequest, trained: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The store, and the folder of its trial, whose data have changed since."""
    (trained / "x.txt").write_text(TEXT)
    shutil.copytree(trained / "runs", tmp_path / "runs")
    CHANGES[request.param](trained / "x.txt")
    (folder,) = (path for path in (tmp_path / "runs" / "trials").iterdir() if not path.name.startswith("."))
    return tmp_path / "runs", folder


def test_a_model_writes_in_the_letters_that_it_learned(
    trial: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    runs, folder = trial
    sample = ["sample", folder.name, f"runs_dir={runs}", "--tokens", "20", "--prompt"]
    capsys.readouterr()
    assert main([*sample, "abc"]) == 0
    written = capsys.readouterr().out.strip("\n")
    assert written.startswith("abc") and len(written) == 23 and set(written) <= set("abcdefgh")
    assert main([*sample, "ABC"]) == 2
    assert "'A'" in capsys.readouterr().err


def test_a_model_is_exported_with_the_letters_that_it_learned(
    trial: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, folder = trial
    assert main(["export", folder.name, str(tmp_path / "out"), f"runs_dir={runs}", "--format", "gpt2"]) == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == 8


def test_nothing_is_measured_on_other_data(trial: tuple[Path, Path]) -> None:
    _, folder = trial
    config = read_config(folder)
    with pytest.raises(UsageError, match=CHANGED):
        restore(config, folder)
    with pytest.raises(UsageError, match=CHANGED):
        replay({**config, "probes": PROBE}, folder)
    assert not (folder / "artifacts").exists()


def test_nothing_is_counted_of_other_data(trial: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that did not compose the trial."""
    monkeypatch.setattr(cost, "TASKS", {})
    with pytest.raises(UsageError, match=CHANGED):
        cost.cost(read_config(trial[1]), "params")


def test_a_trial_from_before_it_kept_all_of_it_needs_its_data(
    trial: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    runs, folder = trial
    held = json.loads(read_vocabulary(folder) or "")
    vocabulary_path(folder).write_text(json.dumps({key: held[key] for key in held if key != "language"}))
    assert kept_language(folder) is None
    assert main(["sample", folder.name, f"runs_dir={runs}", "--prompt", "abc"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "a trial's data must be" in line or "x.txt" in line


def test_without_the_check_a_model_would_write_in_other_letters(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted faults: the data are not checked; then the symbols neither, as many as before."""
    (folder,) = (path for path in (trained / "runs" / "trials").iterdir() if not path.name.startswith("."))
    (trained / "x.txt").write_text(OTHER)
    config = read_config(folder)
    monkeypatch.setattr(weights, "rebuild_task", build_task)
    monkeypatch.setattr(weights, "kept_language", lambda folder: None)
    with pytest.raises(UsageError, match="the symbols of a trial's task must be those"):
        restore_writer(config, folder)
    monkeypatch.setattr(weights, "vocabulary_of", lambda task: None)
    monkeypatch.setattr(weights.torch, "load", lambda *args, load=weights.torch.load, **more: {
        **load(*args, **more), "vocabulary": None,
    })  # fmt: skip
    task, _ = restore_writer(config, folder)
    assert set(task.tokens) == set("ABCDEFGH")


def test_a_language_is_what_its_task_was(trained: Path) -> None:
    (trained / "x.txt").write_text(TEXT)
    (folder,) = (path for path in (trained / "runs" / "trials").iterdir() if not path.name.startswith("."))
    task, language = rebuild_task(read_config(folder)), kept_language(folder)
    assert language is not None
    for name in ("tokens", "vocab_size", "interface", "start_token", "end_token", "predicts_next", "separator"):
        assert getattr(language, name) == getattr(task, name), name
    assert language.decode(language.encode("hgfa")) == "hgfa" and language.encode("ah") == task.encode("ah")


def test_the_guide_to_watching_a_trial_runs(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands there, with the trial's id in place of TRIAL, where the trial was trained."""
    (trained / "x.txt").write_text(TEXT)
    (folder,) = (path for path in (trained / "runs" / "trials").iterdir() if not path.name.startswith("."))
    (code,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    monkeypatch.chdir(trained)
    capsys.readouterr()
    exec(code.replace("TRIAL", folder.name[:6]), found := {})
    shape, _, difference = capsys.readouterr().out.partition("\n")
    assert shape == "torch.Size([4, 2, 8, 8])" and "grad_fn" in difference
    restored = restore(read_config(folder), folder)[1].state_dict()
    assert all(torch.equal(weight, restored[name]) for name, weight in found["model"].state_dict().items())


def test_loading_a_trial_that_is_not_there_says_so(trained: Path) -> None:
    with pytest.raises(UsageError, match="no trial 'ffffffffffffffff'"):
        swapformer.load_trial("f" * 16, trained / "runs")


def test_importing_swapformer_brings_no_torch() -> None:
    code = (
        "import sys, swapformer; swapformer.load_trial; print(sorted({'torch', 'hydra', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


COPY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[]", "model.num_layers=1", "model.d_model=16"),
    *("model.num_heads=2", "budget.steps=3", "schedule.warmup_steps=0", "eval.final_batches=1"),
]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[str]]:
    """A store with two trials that differ only in their seed."""
    store = Store(tmp_path_factory.mktemp("two") / "runs")
    for seed in (0, 1):
        assert main(["train", *COPY, f"seed={seed}", f"runs_dir={store.runs_dir}"]) == 0
    return store, sorted(store.ids(), key=lambda trial: read_config(store.directory(trial))["seed"])


def begun(store: Store, trials: list[str], place: Path) -> tuple[Store, Path]:
    """A copy of the store in which the first trial was killed, and its checkpoint."""
    shutil.copytree(store.runs_dir, place / "runs")
    copied = Store(place / "runs")
    found = copied.read(trials[0])
    assert found is not None
    copied.write(found.but(status=RUNNING, metrics={}))
    return copied, copied.directory(trials[0]) / "checkpoints" / "last.ckpt"


def flip(path: Path) -> None:
    """Change one bit in the middle of the file's largest tensor."""
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda each: each.file_size)
    content = bytearray(path.read_bytes())
    content[largest.header_offset + 200 + largest.file_size // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["another trial's", "one bit"])
def test_a_foreign_or_damaged_checkpoint_is_set_aside_and_the_trial_comes_to_its_own_result(
    how: str, two: tuple[Store, list[str]], tmp_path: Path
) -> None:
    """S1 and S2 of the review: B's loss was reported for A, and a flipped bit was resumed."""
    (whole, trials), own = two, two[0].read(two[1][0])
    store, path = begun(whole, trials, tmp_path)
    if how == "one bit":
        flip(path)
    else:
        shutil.copy(store.directory(trials[1]) / "checkpoints" / "last.ckpt", path)
    complaint = "the sum of" if how == "one bit" else f"is another trial's, {trials[1]}"
    for command in (["export", trials[0], "out", "--format", "gpt2"], ["sample", trials[0], "--prompt", "1"]):
        runs = [f"runs_dir={store.runs_dir}"]
        assert main([*command, *runs]) == 2
    with pytest.raises(UsageError, match=complaint):
        weights.summarise_weights(path)
    assert main(["train", *COPY, "seed=0", f"runs_dir={store.runs_dir}"]) == 0
    found = store.read(trials[0])
    assert found is not None and own is not None and found.metrics == own.metrics
    (note,) = (each for each in found.notes if "set aside" in each)
    assert complaint in note
