"""A replay is the trial's final evaluation with the trial's weights, under the changes that it was asked for."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import initialize_config_dir
from torch import Tensor
from torch.nn.functional import cross_entropy

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.probes import intervention
from swapformer.probes.base import Probe
from swapformer.probes.intervention import Replay, reach
from swapformer.results.artifacts import settings_key
from swapformer.results.config import read_config
from swapformer.study.config import compose
from swapformer.study.config.changes import resolve_changes
from swapformer.targets import make
from swapformer.task.base import IGNORE, Batch, PositionShift, Task
from swapformer.training.data import EvaluationStream
from swapformer.training.inputs import model_inputs, tokens_of
from swapformer.training.weights import restore

TRIAL = [
    *("task=copy", "task.lengths=[2,4]", "task.eval_lengths=[6]", "task.batch_size=4", "task.eval_batch_size=4"),
    *("budget.steps=20", "schedule.warmup_steps=2", "eval.final_batches=2", "optim.lr=0.01", "model.d_model=16"),
    *("model.num_layers=2", "model.num_heads=2", "model/position=learned", "model.max_len=64"),
]
CHANGES = {
    "w": ["model/pattern=window", "model.pattern.before=0,1,31"],
    "moved": ["offset=3"],
    "apart": ["stride=2"],
    "head": ["without=[l0h1]"],
    "heads": ["without=each"],
    "layer": ["model.layers=[{at: 1, pattern: window, pattern.before: 1}]"],
    "long": ["task.eval_lengths=[8]"],
}


def spelled(changes: Mapping[str, Any]) -> str:
    named = ", ".join(f"{name}: {json.dumps(each)}" for name, each in changes.items())
    return "probes.replay.changes={" + named.replace('"', "'") + "}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trial that was replayed."""
    runs = tmp_path_factory.mktemp("runs")
    assert main(["train", *TRIAL, "probes=replay", spelled(CHANGES), f"runs_dir={runs}"]) == 0
    (folder,) = (path for path in (runs / "trials").iterdir() if not path.name.startswith("."))
    return folder


@pytest.fixture(scope="module")
def artifact(trained: Path) -> dict[str, Any]:
    (path,) = (trained / "artifacts").glob("replay.*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    assert path.name == f"replay.{settings_key(found['settings'])}.json"
    return found


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    return compose.compose([*TRIAL, "probes=replay"])


def resolved(composed: Mapping[str, Any], changes: object, **settings: Any) -> dict[str, Any]:
    """The configuration of a trial that is replayed with changes."""
    config = copy.deepcopy(dict(composed))
    config["probes"]["replay"] |= {"changes": changes, **settings}
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        resolve_changes(config, compose._load_option)
    return config


def table(found: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Change → metric → value."""
    shape = (found.get("data") or found.get("shapes"))["changes"]
    return {row[0]: dict(zip(shape["columns"][1:], row[1:], strict=True)) for row in shape["rows"]}


def test_an_unchanged_replay_is_the_record_bit_by_bit(trained: Path, artifact: dict[str, Any]) -> None:
    recorded = json.loads((trained / "record.json").read_text())["metrics"]
    unchanged = {name: value for name, value in table(artifact)["unchanged"].items() if value is not None}
    assert unchanged == {name: recorded[f"val/{name}"] for name in ("loss", "accuracy", "loss@6", "accuracy@6")}
    # a window as long as the sequence is the whole past; other lengths do not touch the set like training's
    assert artifact["metrics"]["probe/replay/w/accuracy@31"] == recorded["val/accuracy"]
    assert artifact["metrics"]["probe/replay/long/loss"] == recorded["val/loss"]
    assert "probe/replay/long/loss@8" in artifact["metrics"]


def test_moved_positions_reach_as_far_as_is_said_of_them() -> None:
    ids = torch.zeros(1, 16, dtype=torch.int64)
    batch = Batch(inputs=ids, targets=ids, position=torch.arange(16)[None]).to("cpu")
    assert tokens_of(PositionShift(stride=2).of(batch)).extent == 31


def require_moved(metrics: Mapping[str, float], unchanged: float) -> None:
    """Every change of what the model computes moves the loss."""
    names = [f"probe/replay/{each}" for each in ("w/loss@0", "w/loss@1", "moved/loss", "apart/loss", "head/loss")]
    for name in (each for each in names if each in metrics):
        assert abs(metrics[name] - unchanged) > 1e-4, f"{name} was dropped"


def test_every_change_moves_the_loss(artifact: dict[str, Any]) -> None:
    require_moved(artifact["metrics"], table(artifact)["unchanged"]["loss"])


@pytest.mark.parametrize(("fault", "change"), [("changed_config", "head"), ("_shift", "moved")])
def test_a_change_that_is_dropped_does_not_move_it(
    trained: Path, artifact: dict[str, Any], monkeypatch: pytest.MonkeyPatch, fault: str, change: str
) -> None:
    config = read_config(trained)
    task, model = restore(config, trained)
    dropped: dict[str, Callable[..., Any]] = {
        "changed_config": lambda config, parts: {**config, "probes": {}},
        "_shift": lambda parts: PositionShift(),
    }
    monkeypatch.setattr(intervention, fault, dropped[fault])
    changes = {change: artifact["settings"]["changes"][change]}
    probe: Probe = make({**artifact["settings"], "changes": changes}, Probe)
    probe.attach(config)
    with torch.no_grad():
        metrics = probe.measure(model, task).metrics
    with pytest.raises(AssertionError, match="was dropped"):
        require_moved(metrics, table(artifact)["unchanged"]["loss"])


def by_hand(
    trained: Path, change: Callable[[Any], None] | None = None, tokens: Callable[[Any], dict[str, Tensor]] | None = None
) -> float:
    """The validation loss of the trained weights in float64, after a change of weights or of what is said of tokens."""
    task: Task
    task, model = restore(read_config(trained), trained)
    model.double()
    total, count = 0.0, 0
    with torch.no_grad():
        if change:
            change(model)
        for batch in EvaluationStream(task.evaluation("val")[0], 2):
            told = tokens_of(batch)
            if tokens:
                told = type(told)(**{**vars(told), **tokens(batch)})
            logits = model.answers(model_inputs(batch)[0], told)[""]
            total += float(cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="sum"))
            count += int((batch.targets != IGNORE).sum())
    return total / count


def test_a_head_that_is_left_out_is_one_whose_columns_of_the_last_matrix_are_zero(
    trained: Path, artifact: dict[str, Any]
) -> None:
    def silence(model: Any) -> None:
        model.stack.layers[0].attention.out.weight[:, 8:] = 0.0

    metrics, unchanged = artifact["metrics"], table(artifact)["unchanged"]["loss"]
    assert metrics["probe/replay/head/loss"] == pytest.approx(by_hand(trained, silence), abs=1e-5)
    shape = (artifact.get("data") or artifact.get("shapes"))["heads"]
    assert shape["values"][0][1] == pytest.approx(by_hand(trained, silence) - unchanged, abs=1e-5)
    rises = [rise for row in shape["values"] for rise in row]
    assert len(rises) == 4
    assert metrics["probe/replay/heads/largest"] == max(rises)
    assert metrics["probe/replay/heads/negligible"] == sum(rise < 0.01 for rise in rises) / 4


def test_positions_are_moved_as_a_table_is_whose_rows_move(trained: Path, artifact: dict[str, Any]) -> None:
    def rows(step: int, start: int) -> Callable[[Any], None]:
        def move(model: Any) -> None:
            (weight,) = (held for name, held in model.named_parameters() if "position" in name)
            weight[:16] = weight[start : start + 16 * step : step].clone()

        return move

    assert artifact["metrics"]["probe/replay/moved/loss"] == pytest.approx(by_hand(trained, rows(1, 3)), abs=1e-5)
    assert artifact["metrics"]["probe/replay/apart/loss"] == pytest.approx(by_hand(trained, rows(2, 0)), abs=1e-5)


def test_a_window_of_one_token_is_a_document_of_one_token(trained: Path, artifact: dict[str, Any]) -> None:
    def alone(batch: Any) -> dict[str, Tensor]:
        return {"document": torch.arange(batch.inputs.shape[1])[None]}

    assert artifact["metrics"]["probe/replay/w/loss@0"] == pytest.approx(by_hand(trained, tokens=alone), abs=1e-5)


def test_reach_is_where_the_accuracy_stays() -> None:
    assert reach({1: 0.2, 2: 0.96, 4: 0.5, 8: 0.95, 16: 1.0}, 0.95) == 8
    assert reach({1: 0.2, 2: 0.3}, 0.95) is None
    assert reach({1: 1.0, 2: 1.0}, 0.95) == 1


def test_an_artifact_is_known_by_what_is_changed(composed: dict[str, Any]) -> None:
    """Two spellings of one change are one artifact; another number is another."""
    one, other = ["model/pattern=window", "model.pattern.before=3"], ["model.pattern.before=3", "model/pattern=window"]
    keys = [settings_key(resolved(composed, {"x": each})["probes"]["replay"]) for each in (one, [*one, "offset=0"])]
    assert keys[0] == keys[1] != settings_key(resolved(composed, {"x": [*one, "offset=1"]})["probes"]["replay"])
    with pytest.raises(UsageError, match="no 'before'"):
        resolved(composed, {"x": other})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"x": ["model/position=alibi"]},
            r"x of replay makes a model of other weights \(.*64, 16\] trained, none needed",
        ),
        ({"x": ["model.d_model=32"]}, r"other weights \(.*\[16\] trained, \[32\] needed"),
        ({"x": ["model/pattern=full"]}, "with the change x of probes.replay: the task Copy predicts each next token"),
        (
            {"x": ["offset=60"]},
            "needs the position 72, but the model has a table of 64 rows; train it with .*max_len=73",
        ),
        ({"x": ["task.symbols=20"]}, "other weights|other symbols"),
        ({}, "needs something that is changed"),
    ],
)
def test_what_cannot_be_replayed_is_refused_before_training(
    composed: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((UsageError, ValueError), match=message):
        compose.check(resolved(composed, changes))


def test_a_table_must_reach_as_far_as_positions_are_drawn_from() -> None:
    """Positions drawn below 40 and moved by 30 reach 69; those of the 13 tokens themselves would only reach 42."""
    drawn = [
        "model/position=randomized",
        "model/position@model.position.encoding=learned",
        "model.position.drawn_from=40",
    ]
    config = compose.compose([*(each for each in TRIAL if each != "model/position=learned"), *drawn, "probes=replay"])
    with pytest.raises(UsageError, match="needs the position 69, but the model has a table of 64 rows"):
        compose.check(resolved(config, {"x": ["offset=30"]}))
    compose.check(resolved(config, {"x": ["offset=24"]}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model/pattern=window", "must be a list of overrides in quotes"),
        (["model/pattern=widow"], "unknown option 'widow'.*window"),
        (["model/patern=window"], "no slot 'patern'.*pattern"),
        (["model.position.rows=3"], "sets model.position.rows, but there is no 'rows'"),
        (["model.position=3"], "which holds _target_"),
        (["optim.lr=3"], "can change model/SLOT, .* but not 'optim.lr'"),
        (["+model.x=3"], "must have the form KEY=VALUE"),
        (["without=[l0h2]"], "heads from l0h0 to l1h1, but it names 'l0h2'"),
        (["offset=0"], "changes nothing"),
        (["offset=0,1", "stride=1,2"], "may sweep one setting"),
        (["offset=a,b"], "must sweep whole numbers"),
        (["stride=0"], "must be a whole number"),
        (["model/pattern=["], "one is not understood"),
    ],
)
def test_changes_that_are_not_understood_are_refused(composed: dict[str, Any], change: object, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        resolved(composed, {"x": change})
    assert len(str(refused.value)) <= 300


def test_a_metric_that_the_task_does_not_have_is_refused(composed: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no metric 'acuracy' to replay"):
        compose.check(resolved(composed, {"x": ["offset=1"]}, metrics=["acuracy"]))


def test_extensions_that_stay_keep_their_settings(composed: dict[str, Any]) -> None:
    gated = copy.deepcopy(composed)
    mask = {"_target_": "swapformer.model.extension.HeadMask", "_partial_": True, "_convert_": "all", "heads": [1]}
    gated["model"]["extension"] = {"head_mask": mask}
    parts = resolved(gated, {"x": ["model/extension=[head_mask,gate]"]})["probes"]["replay"]["changes"]["x"][""]
    assert parts["model"]["extension"]["head_mask"] == mask
    masked = resolved(gated, {"x": ["without=[l1h0]"]})["probes"]["replay"]["changes"]["x"][""]["model"]["layers"]
    assert [layer.get("extension", {}).get("head_mask", {}).get("heads") for layer in masked] == [None, [0, 1]]


def test_replay_needs_metrics() -> None:
    with pytest.raises(ValueError, match="at least one metric"):
        Replay(changes={"x": {"": {"offset": 1}}}, metrics=[], kept=0.9, negligible=0.01)
