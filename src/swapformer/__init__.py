"""swapformer: ablations of the Transformer's architecture, with honest statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from swapformer.model.topology import Topology
    from swapformer.task.base import Task

__version__ = "0.1.0"


def load_trial(trial: str, runs_dir: str | Path | None = None) -> tuple[Topology, Task]:
    """The model of a trial as its last checkpoint has it, in evaluation mode on the CPU, and its task.

    Torch is imported when this is called: importing swapformer brings none.

    Args:
        trial: the beginning of its id; `swapformer trials` lists them.
        runs_dir: where trials are stored; None for the folder that commands use.

    Raises:
        UsageError: if no trial or more than one is meant, it has no checkpoint, or its data are no longer the same.
    """
    from swapformer.catalogue import default_runs_dir
    from swapformer.results.config import require_config
    from swapformer.results.store import Store
    from swapformer.training.weights import restore

    store = Store(default_runs_dir() if runs_dir is None else runs_dir)
    directory = store.directory(store.find(trial).id)
    task, model = restore(require_config(directory), directory)
    return model, task
