"""Base of the launchers: the settings that the local, the Ray and the SLURM launcher share, and their checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from swapformer.errors import UsageError
from swapformer.ranges import Count, Positive, check_settings
from swapformer.results.store import Store
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.trial import Trial, Work

Launch = Callable[[Sequence[Trial]], None]
"""Attempts each trial once: a launcher, or a function that does the same."""


@dataclass
class Launcher(ABC):
    """Attempts trials. Nothing is returned: the outcome of a trial is read from the store.

    Attributes:
        store: where the trials hold their locks and leave their records.
        slots: how many trials run at a time; None: as many as the resources of the launcher allow.
        work: what a trial does, for tests; None: train.
        tick: called a few times a second with the trials that run now.
        time_limit: minutes that one start of a trial may take; it is then interrupted, and can be resumed.

    Raises UsageError for a setting that is not of its type, such as less than one slot.
    """

    store: Store
    provenance: Provenance
    slots: Count | None = None
    work: Work | None = None
    tick: Launch | None = None
    time_limit: Positive | None = None

    def __post_init__(self) -> None:
        check_settings(type(self), vars(self), "hydra.launcher")

    def slots_here(self, trials: Sequence[Trial]) -> int | None:
        """The number of these trials that would run on this machine at a time; None where they run on others."""
        return None

    @abstractmethod
    def __call__(self, trials: Sequence[Trial]) -> None:
        """Attempt each trial once and return when all attempts have ended."""


def library(name: str, launcher: str) -> Any:
    """The package that a launcher stands on, which is an extra of the same name as the launcher.

    Raises:
        UsageError: if it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UsageError(
            f"hydra/launcher={launcher} needs the package {name}, which is not installed; "
            f"pip install 'swapformer[{launcher}]'"
        ) from None
