"""Trials in any of Lightning's loggers: CSV, TensorBoard, MLflow and so on, each a YAML file that names its class."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from swapformer.errors import UsageError
from swapformer.mirror.base import Destination, ReportProblem, Run, RunInfo, filled, summary_of
from swapformer.ranges import Positive
from swapformer.results.record import FINISHED, Record
from swapformer.targets import make, require_known

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

NO_STUDY = "trials"
"""The study and the arm of a trial that no study asked for."""


class LightningLogger(Destination):
    """One run of a Lightning logger for each trial. Opened again, a run is written from its first step.

    Args:
        logger: the logger's class as `_target_`, and its settings. In texts `{study}`, `{arm}`, `{seed}` and `{trial}`
            are the trial's, `{folder}` is the folder below, and `{path}` is STUDY/ARM; `{folder}/{path}/{trial}` is
            emptied when the trial's run is opened again.
        folder: where files go; a relative one is below runs_dir/mirror.
        plain_names: write `val/loss@64` as `val/loss at 64`, for services that allow no `@`.
        end: where what a trial ended with stands: among the metrics, as `end/NAME`, or among the settings, as `end`.
        package: a package that the logger needs in addition to Lightning.
        hint: a line for the end of the command; `{folder}` is the folder.
        patience: seconds that the command waits for the mirror at its end.
    """

    def __init__(
        self,
        *,
        logger: Mapping[str, Any],
        folder: str,
        plain_names: bool,
        end: Literal["metrics", "settings"],
        package: str | None,
        hint: str | None,
        patience: Positive,
    ) -> None:
        self.logger, self.folder, self.plain_names, self.end = logger, folder, plain_names, end
        self.package, self.hint, self.patience = package, hint, patience

    @property
    def name(self) -> str:
        return f"lightning/{self.folder}/{self.logger}"

    def require(self) -> None:
        require_known(self.logger)
        if self.package is not None and find_spec(self.package) is None:
            raise UsageError(
                f"this logger needs the package {self.package}, which is not installed: pip install {self.package}"
            )

    def upload_hint(self, folder: Path) -> str | None:
        return self.hint and str(filled(self.hint, {"folder": str(folder / self.folder)}))

    def open(self, info: RunInfo, folder: Path, report_problem: ReportProblem) -> Run:
        from lightning.pytorch.loggers import Logger

        facts = {name: fact or NO_STUDY for name, fact in info.facts.items()}
        parts = (*facts["study"].split("/"), facts["arm"])
        path = Path(*[part.replace("/", "_").strip(".") or "_" for part in parts])
        facts |= {"folder": str(folder / self.folder), "path": str(path)}
        shutil.rmtree(folder / self.folder / path / info.trial, ignore_errors=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a folder holds files, that a file store is old
            logger: Logger = make(filled(self.logger, facts), Logger, "logger.lightning.logger")
            logger.log_hyperparams({key: value for key, value in info.config.items() if key != "logger"})
        return _LightningRun(logger, self.plain_names, self.end)


class _LightningRun(Run):
    """The rows of a trial's history, and last what it ended with."""

    def __init__(self, logger: Logger, plain_names: bool, end: str) -> None:
        self.logger, self.plain_names, self.end = logger, plain_names, end

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self.plain_names:
            values = {re.sub(r"[^\w/. -]", "_", name.replace("@", " at ")): each for name, each in values.items()}
        self.logger.log_metrics(dict(values), step)
        self.logger.save()

    def finish(self, record: Record, numbers: Mapping[str, float], pictures: Mapping[str, Path]) -> None:
        ends = {**summary_of(record), **numbers}
        if self.end == "settings":
            self.logger.log_hyperparams({"end": ends})
            self.logger.save()
        else:
            self.log(record.steps, {f"end/{name}": float(value) for name, value in ends.items() if _is_number(value)})
        self.logger.finalize("success" if record.status == FINISHED else "failed")

    def abandon(self) -> None:
        try:
            self.logger.finalize("failed")
        except Exception:  # it is being given up because of one already
            return


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
