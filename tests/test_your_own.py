"""The walks of docs/guides/your_own.md: their files are written, their commands run, what they promise is checked."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import walks
from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.config.compose import compose
from swapformer.study.config.identity import trial_id
from swapformer.study.launch.provenance import current_provenance
from swapformer.study.launch.trial import execute
from swapformer.study.plan import make_trial

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "guides" / "your_own.md"
OWN = {
    "A task": ("mine/delay.py", ["task=delay"]),
    "A data source": ("mine/packages.py", ["task/source=packages", "task.block=64"]),
    "A measurement": ("mine/entropy.py", ["measure=entropy", "task=copy"]),
    "An optimiser": ("mine/signum.py", ["optim=signum", "task=copy"]),
    "A schedule": ("mine/exponential.py", ["schedule=exponential", "task=copy"]),
    "A callback": ("mine/noise.py", ["callbacks=noise", "task=copy"]),
    "A logger": ("mine/json_lines.py", ["logger=json_lines", "task=copy"]),
}
"""Heading → the module of its class, and the overrides that choose it."""
SEARCH = "hydra.searchpath=[file://conf]"


def files() -> dict[str, str]:
    """Name → content of all files of the page."""
    return walks.files(GUIDE.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's folder with the page's files, where Python finds them and nothing that another test has imported."""
    walks.write(tmp_path, files())
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "mine")
    monkeypatch.setenv("SWAPFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    """Have this process read the user's package again, as the next command would."""
    for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:
        del sys.modules[name]


def run(heading: str) -> dict[str, Any]:
    """Type the commands of a walk, in this process; the record of each trial by its id."""
    for program, command, *words in walks.commands(walks.section(GUIDE, heading)):
        assert program == "swapformer"
        if command == "study":
            words.append("hydra/launcher=basic")
        assert main([command, *words]) == 0
    found = {path.parent.name: json.loads(path.read_text()) for path in Path("runs").glob("trials/*/record.json")}
    assert found and all(record["status"] == "finished" for record in found.values())
    return found


def history(trial: str, name: str) -> list[tuple[int, float]]:
    """Step and value of each row of a trial's history that has a name."""
    with Path("runs/trials", trial, "metrics.csv").open() as file:
        return [(int(row["step"]), float(row["value"])) for row in csv.DictReader(file) if row["name"] == name]


def test_every_heading_of_the_page_is_walked_here() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")] == list(OWN)
    assert walks.commands(text)[0] == ["export", "SWAPFORMER_PACKAGES=mine"]
    for heading, (module, _) in OWN.items():
        assert module in walks.files(walks.section(GUIDE, heading))


@pytest.mark.evidence
def test_a_task_is_shown_studied_and_claimed_about(capsys: pytest.CaptureFixture[str]) -> None:
    found = run("A task")
    assert "Delay" in capsys.readouterr().out and len(found) == 4
    assert all(record["metrics"].keys() >= {"val/loss", "val/accuracy"} for record in found.values())
    page = Path("runs/studies/delay_study/report/report.html").read_text()
    assert "rotated queries and keys answer more" in page


def test_the_task_says_what_was_read_some_places_ago() -> None:
    """Held to the definition: a loop over places."""
    from mine.delay import Delay  # type: ignore[import-not-found]

    batch = Delay(symbols=5, delay=3, length=9, batch_size=4).train_batch(0, 0)
    for row, asked in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert asked == [-100 if place < 3 else row[place - 3] for place in range(9)]


def test_a_source_gives_the_documents_that_a_text_task_trains_on() -> None:
    from importlib.metadata import metadata

    (record,) = run("A data source").values()
    assert 0 < record["metrics"]["val/loss"] < 2 * math.log(10_000)
    from mine.packages import Packages  # type: ignore[import-not-found]

    documents = {document.name: document for document in Packages(initials="t").documents(["name"])}
    assert "torch" in documents and all(name.lower().startswith("t") for name in documents)
    assert documents["torch"].text() == metadata("torch")["Description"]
    assert documents["torch"].values == {"name": "torch"}


def test_a_measurement_is_what_it_says_and_trains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run("A measurement")
    assert len(found) == 10 and all(record["steps"] == 0 for record in found.values())
    vocabulary = 29  # of copying 26 symbols, with the separator, the end and filler
    assert all(0 < record["metrics"]["entropy/mean"] <= math.log(vocabulary) for record in found.values())
    configs = {trial: yaml.safe_load(Path("runs/trials", trial, "config.yaml").read_text()) for trial in found}
    guessing = [
        found[trial]["metrics"]["entropy/mean"]
        for trial, config in configs.items()
        if config["model"]["init"]["_target_"].endswith("GPT2")
    ]
    assert len(guessing) == 5 and min(guessing) > 0.98 * math.log(vocabulary)


def test_an_optimiser_steps_by_the_sign_of_its_momentum() -> None:
    """Held to its formula, as a loop over numbers in float64; and it trains."""
    run("An optimiser")
    from mine.signum import Signum  # type: ignore[import-not-found]

    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    optimiser = Signum([weight], lr=0.1, momentum=0.5, weight_decay=0.2)
    w, m = weight.tolist(), [0.0, 0.0, 0.0]
    for g in ([1.0, -1.0, 0.5], [-3.0, 2.0, 0.25]):
        weight.grad = torch.tensor(g, dtype=torch.float64)
        optimiser.step()
        m = [0.5 * a + 0.5 * b for a, b in zip(m, g, strict=True)]
        w = [a - 0.1 * (math.copysign(1, b) + 0.2 * a) for a, b in zip(w, m, strict=True)]
    assert weight.tolist() == pytest.approx(w)


def test_a_schedule_sets_the_learning_rate() -> None:
    (trial,) = run("A schedule")
    seen = history(trial, "train/lr")
    assert [step for step, _ in seen] == [5, 10, 15, 20]
    for step, rate in seen:  # the rate of the last of the steps that a row averages, counted from 0
        factor = step / 6 if step <= 5 else 0.01 ** ((step - 1 - 5) / 15)
        assert rate == pytest.approx(1e-3 * factor)


def test_a_callback_changes_the_training() -> None:
    (noisy,) = run("A callback")
    walk = walks.commands(walks.section(GUIDE, "A callback"))[0]
    assert main([word for word in walk[1:] if word != "callbacks=noise"]) == 0
    (plain,) = {path.name for path in Path("runs/trials").iterdir() if (path / "record.json").exists()} - {noisy}
    assert history(noisy, "train/loss") != history(plain, "train/loss")
    first, second = (yaml.safe_load(Path("runs/trials", trial, "config.yaml").read_text()) for trial in (noisy, plain))
    assert first.pop("callbacks") and not second.pop("callbacks") and first == second


def test_a_logger_writes_what_the_store_has() -> None:
    ((trial, record),) = run("A logger").items()
    begins, *rows, end = map(json.loads, Path("runs/mirror/json_lines", f"{trial}.jsonl").read_text().splitlines())
    assert begins == {"trial": trial, "study": "", "arm": ""}
    assert [(row["step"], row["train/loss"]) for row in rows] == history(trial, "train/loss")
    assert end["status"] == "finished" and end["val/loss"] == record["metrics"]["val/loss"]


def test_what_is_ones_own_is_listed_with_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--config-dir", "conf", "task"]) == 0
    listed = capsys.readouterr().out
    assert "delay" in listed and "copy" in listed


@pytest.mark.parametrize("heading", OWN)
def test_an_edited_class_makes_another_trial_where_it_can_change_one(heading: str, place: Path) -> None:
    """A logger shows what there is; the documents of a source stand for themselves, by their hash."""
    module, chosen = OWN[heading]
    before = trial_id(compose([SEARCH, *chosen]))
    forget()
    assert trial_id(compose([SEARCH, *chosen])) == before
    with (place / module).open("a") as file:
        file.write("\n# another thought\n")
    forget()
    assert (trial_id(compose([SEARCH, *chosen])) == before) is (heading in ("A logger", "A data source"))


def test_a_trial_whose_source_was_edited_after_it_was_named_does_not_run(place: Path) -> None:
    """S5 of the review: later seeds of a running study trained the edited code under ids of the old one."""
    module, chosen = OWN["A task"]
    trial = make_trial(compose([SEARCH, *chosen]))
    store = Store(place / "runs")
    store.prepare()
    with (place / module).open("a") as file:
        file.write("\n# another thought\n")
    with pytest.raises(UsageError, match=r"was named by the source of mine.delay.Delay, which has changed since"):
        execute(trial, store, current_provenance())
    record = store.read(trial.id)
    assert record is not None and record.status == "failed" and not record.metrics


@pytest.mark.parametrize(
    ("heading", "method", "given"),
    [
        ("A task", "evaluation", "-> Sequence[EvaluationSet]:"),
        ("A data source", "documents", "-> Iterator[Document]:"),
        ("A measurement", "directions", "-> Mapping[str, Direction]:"),
        ("A schedule", "after", "-> float:"),
        ("A logger", "open", "-> Run:"),
    ],
)
def test_a_class_that_lacks_a_method_is_told_which_and_how_it_begins(
    heading: str, method: str, given: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _ = OWN[heading]
    text = (place / module).read_text()
    assert text.count(f"    def {method}(self") == 1
    (place / module).write_text(text.replace(f"    def {method}(self", f"    def {method}_too(self"))
    *_, (_, command, *words) = walks.commands(walks.section(GUIDE, heading))
    assert main([command, *words]) == 2
    said = capsys.readouterr().err
    assert f"leaves open: {method}; " in said and f"`def {method}(self" in said and f"{given}`" in said
