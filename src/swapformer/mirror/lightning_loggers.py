"""Trials in Lightning's loggers: CSV, TensorBoard or any other. Packages are imported when a run is opened."""

from __future__ import annotations

import csv
import json
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
from swapformer.targets import make, require_known

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

ALONE = "trials"
"""Stands for the study of a trial on its own."""


class LightningDestination(Destination):
    """Writes each trial again whenever its run is opened: what an earlier attempt left is replaced.

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
        """The folder of the files, given the mirror's own folder."""
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
        """The logger's name of a metric."""
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


class LightningLogger(LightningDestination):
    """A run of any Lightning logger for each trial, such as `lightning.pytorch.loggers.MLFlowLogger`.

    Args:
        logger: the logger's class as `_target_`, and its settings. In texts `{study}`, `{arm}`, `{seed}`, `{trial}` and
            `{folder}` stand for those of the trial.
    """

    kind = "lightning"

    def __init__(self, *, logger: Mapping[str, Any], folder: str | None, patience: Positive) -> None:
        super().__init__(folder=folder, patience=patience)
        self.logger = logger

    @property
    def name(self) -> str:
        return f"{self.kind}/{json.dumps(self.logger, sort_keys=True)}/{self.folder or ''}"

    def require(self) -> None:
        require_known(self.logger)

    def make_logger(self, info: RunInfo, place: Path) -> Logger:
        from lightning.pytorch.loggers import Logger

        known = {
            "study": info.study or ALONE,
            "arm": arm_name(info.arm, info.condition) or ALONE,
            "seed": str(info.record.seed),
            "trial": info.trial,
            "folder": str(place),
        }
        made: Logger = make(_filled(self.logger, known), Logger, "logger.lightning.logger")
        return made

    def make_run(self, logger: Logger, config: Mapping[str, Any]) -> LightningRun:
        return _PlainRun(logger, config)

    def show(self, results: StudyResults, folder: Path, report_problem: ReportProblem) -> None:
        return  # Lightning's loggers show trials; a study's verdicts are in its report


class _PlainRun(LightningRun):
    def called(self, name: str) -> str:
        return re.sub(r"[^\w/. -]", "_", name.replace("@", " at "))  # the characters that all services allow


def _filled(node: Any, known: Mapping[str, str]) -> Any:
    """A node with `{name}` in its texts replaced by what is known."""
    if isinstance(node, Mapping):
        return {key: _filled(value, known) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(value, known) for value in node]
    return re.sub(r"\{(\w+)\}", lambda found: known.get(found[1], found[0]), node) if isinstance(node, str) else node


def _folder(info: RunInfo) -> str:
    """`STUDY/ARM`, with a condition of the grid where there is one; no other folder than one below."""
    parts = [*(info.study or ALONE).split("/"), arm_name(info.arm, info.condition) or ALONE]
    return str(Path(*[part.replace("/", "_").strip(".") or "_" for part in parts]))


def numbers_in(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a summary."""
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
