"""A process that runs trials as `swapformer study` does: `python parent.py RUNS_DIR SLOTS TRIALS.json [KIND]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from study import fakes
from swapformer.console import guarded
from swapformer.results.store import Store
from swapformer.study.launch.launcher import Launch
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.ray import RayLauncher
from swapformer.study.launch.slurm import SlurmLauncher


def main() -> None:
    runs_dir, slots, file, *kind = sys.argv[1:]
    trials = [
        fakes.trial(**{**entry, "journal": Path(entry["journal"])}) for entry in json.loads(Path(file).read_text())
    ]
    store = Store(runs_dir)
    launch_missing(trials, store, launcher(store, int(slots), *kind))


def launcher(store: Store, slots: int, kind: str = "local") -> Launch:
    match kind:
        case "local":
            return LocalLauncher(store, fakes.PROVENANCE, slots, fakes.WORK)
        case "ray":
            return RayLauncher(store, fakes.PROVENANCE, slots, num_cpus=1, work=fakes.WORK)
        case "slurm":
            return SlurmLauncher(store, fakes.PROVENANCE, slots, poll=0.2, work=fakes.WORK)
        case "slurm out of time":
            return SlurmLauncher(store, fakes.PROVENANCE, slots, poll=0.2, timeout=1, timeouts=0, work=fakes.WORK)
        case other:
            raise AssertionError(other)


if __name__ == "__main__":
    sys.exit(guarded(main))
