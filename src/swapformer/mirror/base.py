"""What a mirror shows, and what a place to show it must be able to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swapformer.results.record import Record

Say = Callable[[str], None]
"""Takes a problem, in words. It is logged once and changes nothing."""


@dataclass(frozen=True)
class Page:
    """A trial as it is known when its run is opened.

    Attributes:
        study: the study that asks for it; empty for a trial on its own.
        arm: its arm there.
        condition: the condition of the study's grid; empty where there is none.
        places: all of `study/arm` that the trial answers, as far as the store's manifests say.
        config: resolved.
    """

    trial: str
    study: str
    arm: str
    condition: str
    places: Sequence[str]
    config: Mapping[str, Any]
    record: Record


@dataclass(frozen=True)
class Findings:
    """What a study came to, as tables: lists of rows that are mappings of plain values.

    Attributes:
        report: the page, or None where none was written.
    """

    study: str
    question: str
    baseline: str
    counts: Mapping[str, int]
    verdicts: Sequence[Mapping[str, Any]]
    arms: Sequence[Mapping[str, Any]]
    costs: Sequence[Mapping[str, Any]]
    report: Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


class Run(ABC):
    """One trial in one place, open for writing."""

    first_step: int = 0
    """Rows before this step are there already."""

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Show values of a step; steps never go down, and one step may come in several pieces."""

    @abstractmethod
    def finish(self, record: Record, numbers: Mapping[str, float], pictures: Mapping[str, Path]) -> None:
        """Close the run as `record` says that the trial ended.

        Args:
            numbers: what its probes measured.
            pictures: what they saw, as image files.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Let go of the run without a word about how the trial ended; never raises."""


class Destination(ABC):
    """Somewhere that trials are shown. A subclass takes plain settings and checks them; only `open` reaches out."""

    patience: float
    """Seconds that an answer may take."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What tells this place from others: a trial is shown once in each."""

    @abstractmethod
    def require(self) -> None:
        """Raise UsageError if what it needs is not installed."""

    def kept(self, folder: Path) -> str | None:
        """What the user may want to do with files that the place leaves in `folder`, in a sentence; None: nothing."""
        return None

    @abstractmethod
    def open(self, page: Page, folder: Path, say: Say) -> Run:
        """The run of a trial: begun, or continued where an earlier attempt of the trial has begun it.

        Args:
            folder: where the place may keep files of its own.
            say: for what went wrong and was worked around.
        """

    @abstractmethod
    def show(self, findings: Findings, folder: Path, say: Say) -> None:
        """Show what a study came to."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the place itself, when all runs are closed."""
