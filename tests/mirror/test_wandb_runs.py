"""Runs at W&B: what offline ones hold is read back with wandb's own reader, and a server may fail in any way."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mirror.readback import Held, curves_of, read_run
from mirror.server import serving
from swapformer.errors import UsageError
from swapformer.mirror import RunInfo, WandB, wandb_runs
from swapformer.mirror.base import StudyResults
from swapformer.mirror.follower import Follower, Target
from swapformer.mirror.process import make_destination, mirror_trials
from swapformer.results.manifest import SCHEMA_VERSION
from swapformer.results.record import Record
from swapformer.results.store import Store

ID = "0123456789abcdef"
ROWS = (
    "step,name,value\n10,train/loss,0.30000000000000004\n10,val/loss@64,1e-09\n20,train/loss,2.5\n20,val/loss,7.125\n"
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name in ("WANDB_MODE", "WANDB_BASE_URL", "WANDB_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    found = Store(tmp_path)
    found.prepare()
    return found


def write(store: Store, status: str, rows: str = ROWS, trial: str = ID, **more: Any) -> None:
    folder = store.directory(trial)
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"model": {"d_model": 16}, "logger": {"entity": "secret"}}))
    (folder / "metrics.csv").write_text(rows)
    store.write(Record(trial, status, seed=3, **{"attempts": 1, "started": "2030", **more}))


def manifest(store: Store, *trials: str) -> None:
    """The study that the trials answer."""
    folder = store.studies / "heads"
    folder.mkdir(parents=True, exist_ok=True)
    cells = [{"arm": "h8", "seed": seed, "trial": trial} for seed, trial in enumerate(trials)]
    plain = {"name": "heads", "baseline": "h8", "arms": {"h8": []}, "metrics": ["val/loss"], "cells": cells}
    plain |= {"schema_version": SCHEMA_VERSION, "seeds": list(range(len(trials)))}
    (folder / "manifest.json").write_text(json.dumps(plain))


def place(mode: str = "offline", patience: float = 30.0, x_axis: str = "step") -> WandB:
    return WandB(
        mode=mode, project="p", entity=None, tags=["mine"], name="seed {seed} of {arm}", group="{study}",
        notes="{study}: {trial}",
        x_axis=x_axis, patience=patience,
    )  # fmt: skip


def mirror(store: Store, where: WandB, *trials: str) -> list[str]:
    """Look once at each trial; what was said."""
    said: list[str] = []
    manifest(store, *(trials or (ID,)))
    targets = [Target(trial, "heads", "h8") for trial in trials or (ID,)]
    follower = Follower(targets, store, where, store.runs_dir / "mirror", said.append)
    follower.poll()
    follower.close()
    return said


def offline(store: Store, trial: str = ID) -> Held:
    (folder,) = (store.runs_dir / "mirror" / "wandb").glob(f"offline-run-*-{trial}")
    return read_run(folder)


def test_an_offline_run_holds_what_the_files_say_and_its_exit_status_how_it_ended(store: Store) -> None:
    """The summary has the final numbers, not the newest of the history: val/loss is 7.125 there."""
    endings = {"finished": 0, "diverged": 1, "failed": 1, "interrupted": 130, "killed": 137}
    trials = {status: f"{number:016x}" for number, status in enumerate(endings)}
    for status, trial in trials.items():
        final = {"metrics": {"val/loss": 1.5}} if status == "finished" else {"reason": "so"}
        write(store, status, trial=trial, **final)
    assert mirror(store, place(), *trials.values()) == []
    for status, trial in trials.items():
        found = offline(store, trial)
        assert found.curves == curves_of(store.directory(trial) / "metrics.csv")
        assert (found.exit, found.summary["status"]) == (endings[status], status)
    found = offline(store, trials["finished"])
    assert found.summary["val/loss"] == 1.5
    began = found.began
    assert (began["run_id"], began["run_group"], began["job_type"]) == (trials["finished"], "heads", "h8")
    assert began["tags"] == ["heads", "h8", "mine"]
    assert (began["display_name"], began["notes"]) == ("seed 3 of h8", f"heads: {trials['finished']}")
    config = began["config"]["update"]
    assert config["model"] == {"d_model": 16} and config["swapformer"]["arm"] == "h8"
    assert "logger" not in config


@pytest.mark.parametrize("x_axis", ["step", "tokens", "seconds"])
def test_curves_are_drawn_over_steps_tokens_or_seconds(x_axis: str, store: Store) -> None:
    """Asked for another axis, a trial that is shown already is shown again."""
    axes = "10,train/tokens,640\n10,train/seconds,1.5\n"
    write(store, "finished", ROWS.replace("20,", axes + "20,", 1) + axes.replace("10,", "20,"))
    mirror(store, place())
    assert mirror(store, place(x_axis=x_axis)) == []
    found = offline(store)
    assert found.curves == curves_of(store.directory(ID) / "metrics.csv")
    metrics = {(given.get("name") or given["glob_name"]): given for given in found.metrics}
    for name in ("train/tokens", "train/seconds"):
        assert metrics.pop(name)["options"]["hidden"] and "step_metric" not in metrics
    drawn = {name: given["step_metric"] for name, given in metrics.items()}
    assert drawn == ({} if x_axis == "step" else {"*": f"train/{x_axis}"})


def test_a_resumed_trial_continues_its_run_and_a_finished_one_is_shown_once(store: Store) -> None:
    write(store, "interrupted", ROWS.partition("20,train")[0])
    mirror(store, place())
    write(store, "finished", attempts=2)
    mirror(store, place())
    assert offline(store).curves == curves_of(store.directory(ID) / "metrics.csv")
    (folder,) = (store.runs_dir / "mirror" / "wandb").glob("offline-run-*")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    mirror(store, place())
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_what_the_environment_says_of_one_run_is_said_of_none(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell in which a run was resumed leaves it behind; a trial on its own has no group of its own to put there."""
    for name in ("WANDB_RUN_ID", "WANDB_NAME", "WANDB_RUN_GROUP", "WANDB_JOB_TYPE", "WANDB_TAGS"):
        monkeypatch.setenv(name, "another")
    monkeypatch.setenv("WANDB_RESUME", "must")
    write(store, "finished")
    follower = Follower([Target(ID)], store, place(), store.runs_dir / "mirror", print)
    follower.poll()
    follower.close()
    began = offline(store).began
    assert began["run_id"] == ID and "another" not in str(began)


def test_the_run_of_a_study_replaces_its_earlier_ones_and_no_other_studys(store: Store) -> None:
    """Names that begin or end alike, and those that an id cannot hold."""
    names = ["heads_gpu", "a-study-heads", "heads", "heads 1", "heads-1", "h" * 101, "h" * 102, "heads", "heads"]
    where, folder = place(), store.runs_dir / "mirror"
    for name in names:
        where.show(StudyResults(name, "", "", {"finished": 1}, {}), folder, print)
    where.close()
    left = [read_run(path).began["display_name"] for path in folder.glob("wandb/offline-run-*")]
    assert sorted(left) == sorted(set(names))


def test_an_online_run_that_is_taken_up_goes_on_where_the_server_says_that_it_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, "finished", attempts=2)
    sent: list[int] = []
    log = wandb_runs._WandBRun.log

    def noted(run: wandb_runs._WandBRun, step: int, values: Mapping[str, float]) -> None:
        sent.append(step)
        log(run, step, values)

    monkeypatch.setattr(wandb_runs._WandBRun, "log", noted)
    with serving() as server:
        server.last = 10
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        assert mirror(store, place("online")) == []
        rows = curves_of(store.directory(ID) / "metrics.csv")
        assert server.curves == {key: value for key, value in rows.items() if key[0] == 20}
    assert sent == [20], "not even what W&B would drop, with a warning for each row"


def test_an_online_run_sends_what_the_files_say(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, "diverged", reason="loss is nan")
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        assert mirror(store, place("online")) == []
        assert server.curves == curves_of(store.directory(ID) / "metrics.csv")
        assert server.exits == [1]
        assert server.runs[ID]["groupName"] == "heads" and server.runs[ID]["jobType"] == "h8"


def test_a_server_that_drops_connections_in_the_middle_costs_nothing_but_a_word(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, "running", ROWS.partition("20,train")[0])
    said: list[str] = []
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        where = place("online", patience=2.0)
        follower = Follower([Target(ID)], store, where, store.runs_dir / "mirror", said.append)
        with store.lock(ID):
            follower.poll()
            server.dropping = True
            write(store, "finished")
        for _ in range(2):
            follower.poll()
        follower.close()
    assert len(said) == 1 and "Timeout" in said[0]
    assert offline(store).curves == curves_of(store.directory(ID) / "metrics.csv"), "kept for wandb sync"


def test_an_address_that_nobody_answers_keeps_all_runs_offline_and_is_named_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    write(store, "finished")
    write(store, "finished", trial="f" * 16)
    said = mirror(store, place("online", patience=1.0), ID, "f" * 16)
    assert len(said) == 1 and "runs are kept offline: wandb sync" in said[0]
    for trial in (ID, "f" * 16):
        assert offline(store, trial).curves == curves_of(store.directory(trial) / "metrics.csv")


def test_offline_runs_are_named_at_the_end_with_the_command_that_sends_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mirror"
    node = {"_target_": "swapformer.mirror.WandB", "project": "p", "entity": None, "tags": [], "patience": 5.0}
    config = {"logger": {**node, "mode": "offline", "x_axis": "step"}}
    assert place("offline").upload_hint(folder) is None, "nothing was run, so there is nothing to send"
    (folder / "wandb" / "offline-run-1").mkdir(parents=True)
    with mirror_trials([(Target(ID), config)], Store(tmp_path)):
        assert capsys.readouterr().err == ""
    assert f"swapformer: W&B runs are kept offline; to send them: wandb sync {folder}" in capsys.readouterr().err
    assert place("online").upload_hint(folder) is None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"mode": "onlin"}, "did you mean 'online'"),
        ({"x_axis": "token"}, "`logger.wandb.x_axis` must be step, tokens or seconds.*did you mean 'tokens'"),
        ({"patience": 0}, "`logger.patience` must be a number above 0, but it is 0"),
    ],
)
def test_wrong_settings_are_one_clear_line(changes: dict[str, Any], complaint: str) -> None:
    node = {"_target_": "swapformer.mirror.WandB", "mode": "offline", "project": "p", "entity": None, "tags": []}
    node |= {"x_axis": "step"}
    with pytest.raises(UsageError, match=complaint):
        make_destination({**node, "patience": 1.0, **changes})


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swapformer.mirror.wandb_runs.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="not installed: pip install wandb"):
        place().require()


def test_the_own_run_of_a_part_has_an_id_that_wandb_takes_and_no_other_study_has() -> None:
    """Its group is the study's name, `04_head_count/width`, which may have a slash; an id may not."""
    assert re.fullmatch(r"study-04_head_count-width-[0-9a-f]{8}", wandb_runs.study_run("04_head_count/width"))
    assert wandb_runs.study_run("04_head_count-width") == "study-04_head_count-width"


def test_the_load_of_the_machine_is_that_of_trials_that_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that has ended was trained at another time, maybe elsewhere: what the machine does now is none of its."""
    asked: list[bool] = []

    def noted(self: WandB, mode: str, folder: Path, watched: bool, **facts: Any) -> Any:
        asked.append(watched)
        raise ConnectionError("enough")

    monkeypatch.setattr(WandB, "_start", noted)
    for status in ("finished", "running"):
        record = Record(ID, status, seed=3, attempts=1)
        with pytest.raises(ConnectionError):
            place().open(RunInfo(ID, "heads", "h8", "", [], {}, record), store.runs_dir, print)
    assert asked == [False, True]
