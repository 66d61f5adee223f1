"""Trials in CSV, TensorBoard and any Lightning logger: what is written is read back with each package's reader."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mirror.destinations import Memory
from mirror.readback import Curves
from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.mirror import lightning_loggers
from swapformer.mirror.base import Destination
from swapformer.mirror.follower import Follower, Target
from swapformer.mirror.process import loggers_of, make_destination
from swapformer.results.manifest import SCHEMA_VERSION
from swapformer.results.record import Record
from swapformer.results.store import Store
from swapformer.study.config.compose import compose

ID = "0123456789abcdef"
FIRST = "step,name,value\n10,train/loss,0.5\n10,val/loss@64,1e-09\n20,train/loss,2.5\n"
MORE = FIRST + "30,train/loss,0.25\n"
CSV_LOGGER = {
    "_target_": "lightning.pytorch.loggers.CSVLogger",
    "save_dir": "{folder}",
    "name": "{study}/{arm}",
    "version": "{trial}",
}


def made(kind: str, **more: Any) -> Destination:
    """The destination of `logger=KIND`, as its YAML file says."""
    node = compose([f"logger={kind}"] + ([f"logger.lightning.logger={as_text(CSV_LOGGER)}"] * (kind == "lightning")))
    return make_destination({**node["logger"][kind], **more})


def as_text(node: dict[str, str]) -> str:
    return "{" + ", ".join(f'{key}: "{value}"' for key, value in node.items()) + "}"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path)
    found.prepare()
    folder = found.studies / "my" / "heads"
    folder.mkdir(parents=True)
    cells = [{"arm": "h8", "seed": 3, "trial": ID}]
    plain = {"name": "my/heads", "baseline": "h8", "arms": {"h8": []}, "metrics": ["val/loss"], "cells": cells}
    (folder / "manifest.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION, "seeds": [3], **plain}))
    return found


def shown(store: Store, where: Destination, status: str, rows: str, **more: Any) -> list[str]:
    """Write a trial, look once, and say what was said."""
    folder = store.directory(ID)
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"model": {"d_model": 16}, "logger": {"x": {"token": "secret"}}})
    )
    (folder / "metrics.csv").write_text(rows)
    store.write(Record(ID, status, seed=3, steps=30, metrics={"val/loss": 0.125}, **{"attempts": 1, **more}))
    said: list[str] = []
    follower = Follower([Target(ID, "my/heads", "h8")], store, where, store.runs_dir / "mirror", said.append)
    follower.poll()
    follower.close()
    return said


def of_csv(folder: Path) -> tuple[Curves, str]:
    (place,) = folder.glob(f"my/heads/h8/{ID}")
    with (place / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    curves = {
        (int(row["step"]), name): float(value)
        for row in rows
        for name, value in row.items()
        if name != "step" and value
    }
    return curves, (place / "hparams.yaml").read_text(encoding="utf-8")


def of_tensorboard(folder: Path) -> tuple[Curves, str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves: Curves = {}
    (place,) = folder.glob(f"my/heads/h8/{ID}")
    for path in [place, *(each for each in place.iterdir() if each.is_dir())]:
        events = EventAccumulator(str(path))
        events.Reload()
        for name in events.Tags()["scalars"]:
            curves |= {(event.step, name): event.value for event in events.Scalars(name)}
    return curves, (place / "hparams.yaml").read_text(encoding="utf-8")


READ = {"csv": of_csv, "tensorboard": of_tensorboard, "lightning": of_csv}


@pytest.mark.parametrize("kind", READ)
def test_a_trial_is_there_once_with_its_curves_its_settings_and_its_end(kind: str, store: Store) -> None:
    """A second attempt replaces what the first left."""
    where = made(kind)
    assert shown(store, where, "interrupted", FIRST) == []
    assert shown(store, where, "finished", MORE, attempts=2) == []
    curves, settings = READ[kind](store.runs_dir / "mirror" / kind)
    trained = {(step, name): value for (step, name), value in curves.items() if not name.startswith("end/")}
    expected = {(10, "train/loss"): 0.5, (10, "val/loss@64"): 1e-09, (20, "train/loss"): 2.5, (30, "train/loss"): 0.25}
    trained = {(step, name.replace(" at ", "@")): value for (step, name), value in trained.items()}
    known = {key: value for key, value in trained.items() if not key[1].startswith("hp")}
    assert known.keys() == expected.keys() and all(known[key] == pytest.approx(expected[key]) for key in expected)
    if kind == "csv":
        ends = yaml.safe_load(settings)["end"]
        assert ends["val/loss"] == 0.125 and ends["cost/steps"] == 30
        assert not [name for _, name in curves if name.startswith("end")]
    else:
        ends = {name: value for (_, name), value in curves.items()}
        assert ends["end/val/loss"] == 0.125 and ends["end/cost/steps"] == 30
    assert "d_model" in settings and "secret" not in settings


def test_a_package_that_is_missing_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lightning_loggers, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs the package tensorboard, which is not installed: pip install tensor"):
        made("tensorboard")
    made("csv")


def test_a_line_for_the_end_says_how_to_see_the_curves(tmp_path: Path) -> None:
    assert (
        made("tensorboard").upload_hint(tmp_path) == f"to see the curves: tensorboard --logdir {tmp_path}/tensorboard"
    )
    assert made("csv").upload_hint(tmp_path) is None


def test_a_logger_of_a_package_that_nobody_allowed_is_refused() -> None:
    with pytest.raises(UsageError, match=r"os\.system"):
        made("csv", logger={"_target_": "os.system"})


def test_several_loggers_are_entries_of_one_node_and_each_has_states_of_its_own() -> None:
    found = compose(["logger=[csv,wandb]", "logger.wandb.mode=online", "task=copy"])["logger"]
    assert list(found) == ["csv", "wandb"] and found["wandb"]["mode"] == "online"
    assert [node["_target_"].rpartition(".")[2] for node in loggers_of({"logger": found})] == [
        "LightningLogger",
        "WandB",
    ]
    assert loggers_of({"logger": {}}) == loggers_of({}) == []
    assert len({made(kind).folder_name for kind in READ} | {Memory().folder_name}) == 4


@pytest.mark.evidence
def test_a_trained_trial_is_in_each_of_three_loggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the process beside the training, as a user asks for it; its id is that of a trial without a logger."""
    monkeypatch.chdir(tmp_path)
    tiny = [
        "task=copy", "model/size=nano", "model.d_model=16", "model.num_heads=2", "budget.steps=4", "eval.every=2",
        "schedule.warmup_steps=1", "log_every=1", "eval.batches=1", "eval.final_batches=1", "runs_dir=runs",
    ]  # fmt: skip
    kinds = ("csv", "tensorboard", "lightning")
    patient = [f"logger.{kind}.patience=300" for kind in kinds]  # however busy the machine is
    chosen = ["logger=[csv,tensorboard,lightning]", f"logger.lightning.logger={as_text(CSV_LOGGER)}"]
    assert main(["train", *tiny, *chosen, *patient]) == 0
    (trial,) = Store("runs").ids()
    assert list(Path("runs/mirror/csv").glob(f"*/*/{trial}/metrics.csv"))
    assert list(Path("runs/mirror/tensorboard").glob(f"*/*/{trial}/events.*"))
    assert list(Path("runs/mirror/lightning").glob(f"*/*/{trial}/metrics.csv"))
    assert main(["train", *tiny]) == 0 and Store("runs").ids() == [trial]
