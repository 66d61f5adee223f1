"""The Python interface: compose and build models, run studies, and read what they found."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from swapformer.errors import UsageError, quote

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from swapformer.model.topology import Topology
    from swapformer.report.build import Report
    from swapformer.report.records import Records
    from swapformer.results.record import Record
    from swapformer.results.store import Store
    from swapformer.study.run_study import StudyResult
    from swapformer.task.base import Task

Config = dict[str, Any]
"""A resolved configuration, as plain data."""


class LoadedTrial(NamedTuple):
    """A trial, read back.

    Attributes:
        model: with the weights of its last checkpoint, in evaluation mode on the CPU.
        task: as it was trained on.
        record: its status, final metrics, environment and data.
        history: what was measured during training: columns `step`, `metric`, `value`.
    """

    model: Topology
    task: Task
    record: Record
    history: pd.DataFrame


def compose(overrides: Sequence[str] | str = ()) -> Config:
    """The resolved configuration of a trial, as `swapformer train` makes it of the same overrides.

    Args:
        overrides: in Hydra's words, such as `["task=copy", "model/position=alibi", "model.num_layers=4"]`, or a text
            of them as a shell would read it.

    Raises:
        UsageError: if an option or key is unknown, a value is out of range, or parts do not go together.
    """
    from swapformer.study.config.compose import check
    from swapformer.study.config.compose import compose as composed
    from swapformer.study.config.hydra_errors import explained

    if isinstance(overrides, str):
        overrides = shlex.split(overrides)
    with explained(overrides):
        config: Config = composed(overrides)
        check(config)
    return config


def build(config: Mapping[str, Any] | Sequence[str] | str = ()) -> tuple[Topology, Task]:
    """A model before its training, and its task; the weights are drawn from the configuration's seed.

    Args:
        config: what `compose` gives, or overrides for it.

    Raises:
        UsageError: for a key that is not known, a value out of range, what a part refuses, and where the task's data
            cannot be read.
    """
    from swapformer.study.config.rules import settings
    from swapformer.training.assemble import build_model, rebuild_task

    chosen = dict(config) if isinstance(config, Mapping) else compose(config)
    if found := [*settings.of_keys(chosen), *settings.of_types(chosen)]:  # it may have been changed by hand
        raise UsageError(" ".join(found))
    task = rebuild_task(chosen)
    try:
        return build_model(chosen, task.interface), task
    except ValueError as error:
        raise UsageError(str(error)) from error


def load_trial(trial: str, runs_dir: str | Path | None = None) -> LoadedTrial:
    """A trial as its last checkpoint has it: model, task, record and history.

    Args:
        trial: the beginning of its id; `swapformer trials` lists them.
        runs_dir: where trials are stored; None for the folder that commands use.

    Raises:
        UsageError: if no trial or more than one is meant, it has no checkpoint, or its data are no longer the same.
    """
    from swapformer.results.config import require_config
    from swapformer.results.history import read_history
    from swapformer.training.weights import restore

    store = _store(runs_dir)
    record = store.find(trial)
    directory = store.directory(record.id)
    task, model = restore(require_config(directory), directory)
    return LoadedTrial(model, task, record, read_history(directory, None, []))


def run_study(
    study: str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    scale: str | None = None,
    seeds: int | Sequence[int] | None = None,
    name: str = "study",
    publish: bool = False,
    quiet: bool = True,
) -> StudyResult:
    """Run what a study lacks, and report, as `swapformer study` does; trials in the store are not trained again.

    Args:
        study: the name of a shipped study, a path of a study file, or the content of one.
        overrides: of all arms, such as `["runs_dir=/data/runs", "budget.steps=200"]`.
        scale: one of the study's scales; None for `cpu`, or the only one.
        seeds: as in a study file; None for the study's own.
        name: under which a study that is given by its content is stored.
        publish: put table and figures into `results/` next to the study file.
        quiet: print no progress.

    Returns:
        The plan, the status of every trial, and the report, whose `verdicts` answer the claims.

    Raises:
        UsageError: for what is wrong with the study, before anything is trained.
        StudyFailed: if a trial has no result; the others are kept.
    """
    from swapformer.study.spec import load, parse, with_seeds
    from swapformer.tools.studies import run_locally

    spec = parse(dict(study), name, scale) if isinstance(study, Mapping) else load(str(study), scale)
    found = run_locally(with_seeds(spec, seeds), overrides, publish, quiet, report=True)
    found.require_complete()
    return found


def read_records(study: str | Path, runs_dir: str | Path | None = None, *, scale: str | None = None) -> pd.DataFrame:
    """The results of a study, one row for each trial and metric, those without a result among them.

    Args:
        study: the name of a study that was run here, or the folder of a published one, such as
            `experiments/04_head_count/width`.
        runs_dir: where its trials are stored; None for the folder that commands use. Of no use with a folder.
        scale: which results of a folder; None for the unnamed ones.

    Returns:
        Columns `condition`, `arm`, `seed`, `trial`, `status`, `metric`, `value`, and one for each setting that an arm
        or a condition states, such as `model/position`: text, or nothing where an arm does not state it; `setting seed`
        of one that has a name of these. A trial that failed, diverged or is missing has one row, whose metric and value
        are empty.

    Raises:
        UsageError: if there is no such study.
    """
    from swapformer.study.config import overrides as texts

    records = _records(study, runs_dir, scale)
    cells = records.cells[["condition", "arm", "seed", "trial", "status"]]
    metrics = records.metrics[["condition", "arm", "seed", "metric", "value"]]
    frame = cells.merge(metrics, how="left", on=["condition", "arm", "seed"])
    conditions = {name: {k: str(v) for k, v in values.items()} for name, values in records.manifest.conditions.items()}
    arms = {arm: texts.values(overrides) for arm, overrides in records.manifest.arms.items()}
    for key in dict.fromkeys(key for values in (*conditions.values(), *arms.values()) for key in values):
        stated = zip(frame["condition"], frame["arm"], strict=True)
        frame[f"setting {key}" if key in frame.columns else key] = [
            {**conditions.get(where, {}), **arms.get(arm, {})}.get(key) for where, arm in stated
        ]
    return frame


def judge(results: pd.DataFrame, baseline: str, kept: str | Path | None = None, **asked: Any) -> Report:
    """Verdicts on results that were measured anywhere, as `swapformer judge` gives them.

    Args:
        results: a row for each run (columns `arm`, `seed` and metrics), or for each run and metric (`arm`, `seed`,
            `metric`, `value`; others are conditions).
        baseline: the arm that the others are compared with.
        kept: the file that keeps the looks, so that judging again with more seeds is the next one; None keeps none.
        **asked: other fields of `swapformer.report.external_results.Question`, such as `metrics={"loss": "lower"}`,
            `margin=0.01`, `paired=True`.

    Returns:
        A report: `verdicts`, `table` (a row for each arm and metric, with 95 % intervals) and `caveats`.

    Raises:
        UsageError: for what is wrong with the results or the question.
    """
    from swapformer.report.external_looks import judge_table
    from swapformer.report.external_results import Question

    return judge_table(results, Question(baseline, **asked), kept=None if kept is None else Path(kept))


def build_report(study: str, runs_dir: str | Path | None = None) -> Report:
    """Write the report of a study from its trials: its page, table and figures; `files` says where they lie.

    Args:
        study: the name of a study that was run here, or the beginning of it.
        runs_dir: where its trials are stored; None for the folder that commands use.

    Raises:
        UsageError: if there is no such study, or the folder cannot be written.
    """
    from swapformer.report.build import build as built
    from swapformer.tools.command_line import study_folder

    store = _store(runs_dir)
    return built(study_folder(store, study), store.runs_dir)


def show(part: str, overrides: Sequence[str] = ()) -> Figure | str:
    """The picture of a part, `model/position=alibi`, which a notebook displays; or items of a task, `task=copy`.

    Raises:
        UsageError: if it has no picture, or refuses its settings.
    """
    from swapformer.tools.show import figure_of_part, text_of_task

    return text_of_task(part, overrides) if part.startswith("task=") else figure_of_part(part, overrides)


def _records(study: str | Path, runs_dir: str | Path | None, scale: str | None) -> Records:
    from swapformer.report.records import read
    from swapformer.study.published_results import published_results
    from swapformer.tools.command_line import study_folder

    if Path(study).is_dir():
        if runs_dir is not None:
            raise UsageError(f"a folder holds its results, but runs_dir was given with {quote(str(study))}; remove it")
        return published_results(Path(study), scale)[0]
    if scale is not None:
        raise UsageError(f"`scale` chooses among the results of a folder, but {quote(str(study))} is not one")
    store = _store(runs_dir)
    return read(study_folder(store, str(study)), store.runs_dir)


def _store(runs_dir: str | Path | None) -> Store:
    from swapformer.tools.command_line import store_of

    return store_of([] if runs_dir is None else [f"runs_dir={runs_dir}"])
