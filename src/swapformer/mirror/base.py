"""The interface of a mirror's destination: the runs that it shows, and what it learns about trials and studies."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from swapformer.results.arms import arm_name
from swapformer.results.record import Record

ReportProblem = Callable[[str], None]
"""Takes a problem, in words. It is logged once and changes nothing."""


@dataclass(frozen=True)
class RunInfo:
    """The facts about a trial when its run is opened.

    `study`: the study that asks for it, `arm`: its arm there; empty for a trial on its own. `condition`: of the study's
    grid; empty if missing. `cells`: all of `study/arm` that the trial answers, as far as the store's manifests
    say. `config`: resolved.
    """

    trial: str
    study: str
    arm: str
    condition: str
    cells: Sequence[str]
    config: Mapping[str, Any]
    record: Record

    @property
    def facts(self) -> Mapping[str, str]:
        """The values of `{study}`, `{arm}`, `{seed}` and `{trial}` in settings."""
        arm = arm_name(self.arm, self.condition)
        return {"study": self.study, "arm": arm, "seed": str(self.record.seed), "trial": self.trial}


@dataclass(frozen=True)
class StudyResults:
    """The results of a study.

    `counts`: of trials, by status. `tables`: `verdicts`, `arms` and `cost`, lists of rows of plain values; one without
    rows is missing. `report`: the page, or None where none was written.
    """

    study: str
    question: str
    baseline: str
    counts: Mapping[str, int]
    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    report: Path | None = None


class Run(ABC):
    """One trial at one destination, open for writing."""

    first_step: int = 0
    """Rows before this step are there already."""

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Show values of a step; steps never go down, and one step may come in several pieces."""

    @abstractmethod
    def finish(self, record: Record, numbers: Mapping[str, float], pictures: Mapping[str, Path]) -> None:
        """Close the run as `record` says that the trial ended.

        `numbers`: what its probes measured; `pictures`: heat maps of its probes' matrices, as image files.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Let go of the run without a word about how the trial ended; never raises."""


class Destination(ABC):
    """A service that shows trials. A subclass takes plain settings and checks them; only `open` reaches out."""

    patience: float
    """Seconds that an answer may take."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The identity of this destination: a trial is shown once in each."""

    @property
    def folder_name(self) -> str:
        """The folder that holds the states of its trials: several destinations do not wait for one another."""
        return f"shown-{sha256(self.name.encode()).hexdigest()[:12]}"

    @abstractmethod
    def require(self) -> None:
        """Raise UsageError if what it needs is not installed."""

    def upload_hint(self, folder: Path) -> str | None:
        """A sentence on what the user may do with files that the destination leaves in `folder`; None: nothing."""
        return None

    @abstractmethod
    def open(self, info: RunInfo, folder: Path, report_problem: ReportProblem) -> Run:
        """The run of a trial: begun, or continued where an earlier attempt of the trial has begun it.

        `folder`: for files of the destination's own. `report_problem`: for what went wrong and was worked around.
        """

    def show(self, results: StudyResults, folder: Path, report_problem: ReportProblem) -> None:
        """Show the results of a study; a destination of trials only does nothing."""
        return

    def close(self) -> None:
        """Let go of the destination itself, when all runs are closed."""
        return


def filled(node: Any, facts: Mapping[str, str]) -> Any:
    """A node, or a text, in which `{name}` is replaced by that fact."""
    if isinstance(node, Mapping):
        return {key: filled(value, facts) for key, value in node.items()}
    if isinstance(node, list):
        return [filled(value, facts) for value in node]
    return re.sub(r"\{(\w+)\}", lambda found: facts.get(found[1], found[0]), node) if isinstance(node, str) else node


def summary_of(record: Record) -> dict[str, Any]:
    """The status, metrics and costs that a trial ended with."""
    speed = {"cost/tokens_per_second": record.tokens / record.seconds} if record.tokens and record.seconds else {}
    return {
        "status": record.status,
        "reason": record.reason or "",
        **record.metrics,
        **{f"standard_error/{name}": value for name, value in record.standard_errors.items()},
        **{f"cost/parameters_{kind}": count for kind, count in record.parameters.items()},
        "cost/steps": record.steps,
        "cost/tokens": record.tokens,
        "cost/seconds": record.seconds,
        **speed,
    }
