"""Trials in Lightning's loggers: CSV, TensorBoard and MLflow. Their packages are imported when a run is opened."""

from __future__ import annotations

import csv
import os
import re
import shutil
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swapformer.errors import UsageError
from swapformer.mirror.base import Destination, ReportProblem, Run, RunInfo, StudyResults, summary_of
from swapformer.ranges import Positive
from swapformer.results.arms import arm_name
from swapformer.results.record import FINISHED, Record

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

ALONE = "trials"
"""Stands for the study of a trial on its own."""


class LightningDestination(Destination):
    """Writes each trial anew whenever its run is opened: what an earlier attempt left is replaced.

    Args:
        folder: where the files lie; null: a folder of the mirror's, in the store.
        patience: seconds that the command waits for the mirror at its end.
    """

    kind: str
    """The option's name, and that of its folder."""
    package: str | None = None
    """The package that it needs beside Lightning."""

    def __init__(self, *, folder: str | None, patience: Positive) -> None:
        self.folder, self.patience = folder, patience

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.folder or ''}"

    def require(self) -> None:
        if self.package is not None and find_spec(self.package) is None:
            raise UsageError(
                f"logger={self.kind} needs the package {self.package}, which is not installed; "
                f"pip install 'swapformer[{self.kind}]'"
            )

    def place(self, folder: Path) -> Path:
        """Where the files lie, given the mirror's own folder."""
        return Path(self.folder) if self.folder else folder / self.kind

    def open(self, info: RunInfo, folder: Path, report_problem: ReportProblem) -> Run:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a folder holds files, that a file store is old
            logger = self.make_logger(info, self.place(folder))
        return self.make_run(logger, {key: value for key, value in info.config.items() if key != "logger"})

    @abstractmethod
    def make_logger(self, info: RunInfo, place: Path) -> Logger:
        """Lightning's logger of a trial, in a place where no earlier attempt of it is."""

    def make_run(self, logger: Logger, config: Mapping[str, Any]) -> LightningRun:
        """The run that writes with a logger."""
        return LightningRun(logger, config)

    def close(self) -> None:
        return


class LightningRun(Run):
    """A trial in one of Lightning's loggers: its configuration, its curves, and last what it ended with."""

    def __init__(self, logger: Logger, config: Mapping[str, Any]) -> None:
        self.logger, self.config = logger, dict(config)
        self.logger.log_hyperparams(self.config)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.logger.log_metrics({self.called(name): value for name, value in values.items()}, step)
        self.logger.save()

    def called(self, name: str) -> str:
        """What the logger calls a metric."""
        return name

    def finish(self, record: Record, numbers: Mapping[str, float], pictures: Mapping[str, Path]) -> None:
        self.show_summary(record, {**numbers_in(summary_of(record)), **numbers}, pictures)
        self.logger.finalize("success" if record.status == FINISHED else "failed")

    def show_summary(self, record: Record, summary: Mapping[str, float], pictures: Mapping[str, Path]) -> None:
        """Show what the trial ended with."""
        ends = {self.called(f"end/{name}"): value for name, value in summary.items()}
        self.logger.log_metrics(ends, record.steps)

    def abandon(self) -> None:
        try:
            self.logger.finalize("failed")
        except Exception:  # it is being given up because of one already
            return


class CSV(LightningDestination):
    """`STUDY/ARM/TRIAL/metrics.csv` and `hparams.yaml`, by Lightning's CSVLogger; a study's verdicts beside them."""

    kind = "csv"

    def make_logger(self, info: RunInfo, place: Path) -> Logger:
        from lightning.pytorch.loggers import CSVLogger

        shutil.rmtree(place / _folder(info) / info.trial, ignore_errors=True)
        return CSVLogger(place, _folder(info), info.trial)

    def show(self, results: StudyResults, folder: Path, report_problem: ReportProblem) -> None:
        place = self.place(folder) / results.study
        place.mkdir(parents=True, exist_ok=True)
        for name, rows in tables_of(results).items():
            columns = list(dict.fromkeys(column for row in rows for column in row))
            with (place / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, columns)
                writer.writeheader()
                writer.writerows(rows)


class TensorBoard(LightningDestination):
    """Event files in `STUDY/ARM/TRIAL`, by Lightning's TensorBoardLogger: `tensorboard --logdir FOLDER`."""

    kind = "tensorboard"
    package = "tensorboard"

    def make_logger(self, info: RunInfo, place: Path) -> Logger:
        from lightning.pytorch.loggers import TensorBoardLogger

        shutil.rmtree(place / _folder(info) / info.trial, ignore_errors=True)
        return TensorBoardLogger(place, _folder(info), info.trial, default_hp_metric=False)

    def make_run(self, logger: Logger, config: Mapping[str, Any]) -> LightningRun:
        return _TensorBoardRun(logger, config)

    def upload_hint(self, folder: Path) -> str | None:
        return f"to see it in TensorBoard: tensorboard --logdir {self.place(folder)}"

    def show(self, results: StudyResults, folder: Path, report_problem: ReportProblem) -> None:
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        place = self.place(folder) / results.study / "study"
        shutil.rmtree(place, ignore_errors=True)
        with writer(str(place)) as opened:
            opened.add_text("question", results.question, 0)
            for name, rows in tables_of(results).items():
                opened.add_text(name, markdown_of(rows), 0)


class _TensorBoardRun(LightningRun):
    def show_summary(self, record: Record, summary: Mapping[str, float], pictures: Mapping[str, Path]) -> None:
        import matplotlib.image

        logger: Any = self.logger
        logger.log_hyperparams(self.config, {f"end/{name}": value for name, value in summary.items()})
        writer = logger.experiment
        writer.add_text("status", f"{record.status} {record.reason or ''}".strip(), record.steps)
        for name, path in pictures.items():
            writer.add_image(name, matplotlib.image.imread(path), record.steps, dataformats="HWC")


class MLflow(LightningDestination):
    """A run of MLflow for each trial, by Lightning's MLFlowLogger; the experiment is the study.

    Args:
        tracking_uri: of a server or a store; null: `folder`, as a store of files.
    """

    kind = "mlflow"
    package = "mlflow"

    def __init__(self, *, folder: str | None, tracking_uri: str | None, patience: Positive) -> None:
        super().__init__(folder=folder, patience=patience)
        self.tracking_uri = tracking_uri

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.tracking_uri or self.folder or ''}"

    def uri(self, place: Path) -> str:
        """Where MLflow keeps its runs."""
        if self.tracking_uri is None:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # asked of those who want no database
        return self.tracking_uri or place.absolute().as_uri()

    def upload_hint(self, folder: Path) -> str | None:
        if self.tracking_uri is not None:
            return None
        place = self.place(folder).absolute().as_uri()
        return f"to see it in MLflow: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {place}"

    def make_logger(self, info: RunInfo, place: Path) -> Logger:
        from lightning.pytorch.loggers import MLFlowLogger

        uri, study = self.uri(place), info.study or ALONE
        self._forget(uri, study, f"swapformer.trial = '{info.trial}'")
        named = f"{arm_name(info.arm, info.condition)} seed {info.record.seed}".strip()
        tags = {"swapformer.trial": info.trial, "swapformer.arm": info.arm, "swapformer.condition": info.condition}
        return MLFlowLogger(study, named, tracking_uri=uri, tags=tags)

    def make_run(self, logger: Logger, config: Mapping[str, Any]) -> LightningRun:
        return _MLflowRun(logger, config)

    def _forget(self, uri: str, experiment: str, which: str) -> None:
        """Delete the runs of an experiment with a tag: what an earlier attempt has left."""
        client = import_module("mlflow.tracking").MlflowClient(uri)
        if (found := client.get_experiment_by_name(experiment)) is not None:
            for run in client.search_runs([found.experiment_id], f"tags.{which}"):
                client.delete_run(run.info.run_id)

    def show(self, results: StudyResults, folder: Path, report_problem: ReportProblem) -> None:
        uri = self.uri(self.place(folder))
        self._forget(uri, results.study, "swapformer.study = 'results'")
        client = import_module("mlflow.tracking").MlflowClient(uri)
        known = client.get_experiment_by_name(results.study)
        experiment = known.experiment_id if known else client.create_experiment(results.study)
        tags = {"swapformer.study": "results", "mlflow.note.content": note_of(results)}
        run = client.create_run(experiment, tags=tags, run_name=results.study).info.run_id
        for name, rows in tables_of(results).items():
            client.log_text(run, markdown_of(rows), f"{name}.md")
        if results.report is not None:
            client.log_artifact(run, str(results.report))
        client.set_terminated(run)


class _MLflowRun(LightningRun):
    def called(self, name: str) -> str:
        return re.sub(r"[^\w/. -]", "_", name.replace("@", " at "))  # as much as MLflow allows

    def show_summary(self, record: Record, summary: Mapping[str, float], pictures: Mapping[str, Path]) -> None:
        super().show_summary(record, summary, pictures)
        logger: Any = self.logger
        client, run = logger.experiment, logger.run_id
        client.set_tag(run, "swapformer.status", record.status)
        for path in pictures.values():
            client.log_artifact(run, str(path), "probes")


def _folder(info: RunInfo) -> str:
    """`STUDY/ARM`, with a condition of the grid where there is one; no other folder than one below."""
    parts = [*(info.study or ALONE).split("/"), arm_name(info.arm, info.condition) or ALONE]
    return str(Path(*[part.replace("/", "_").strip(".") or "_" for part in parts]))


def numbers_in(summary: Mapping[str, Any]) -> dict[str, float]:
    """What of a summary is a number."""
    return {
        name: float(value)
        for name, value in summary.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def tables_of(results: StudyResults) -> dict[str, Sequence[Mapping[str, Any]]]:
    """The tables of a study that have rows."""
    found = {"verdicts": results.verdicts, "arms": results.arms, "cost": results.costs}
    return {name: rows for name, rows in found.items() if rows}


def markdown_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table in Markdown."""
    columns = list(dict.fromkeys(name for row in rows for name in row))

    def line(cells: Sequence[Any]) -> str:
        return "| " + " | ".join("" if cell is None else str(cell).replace("|", "\\|") for cell in cells) + " |"

    body = [line([row.get(name) for name in columns]) for row in rows]
    return "\n".join([line(columns), line(["---"] * len(columns)), *body])


def note_of(results: StudyResults) -> str:
    """The question of a study and its verdicts, line by line."""
    said = [f"- {row['verdict']}: {row['claim']}" for row in results.verdicts]
    return "\n".join([results.question, "", *said])
