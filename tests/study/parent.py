"""A process that runs trials as `swapformer study` does: `python parent.py RUNS_DIR SLOTS TRIALS.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from study import fakes
from swapformer.study.launcher import LocalLauncher
from swapformer.study.run import run
from swapformer.study.store import Store


def main() -> None:
    runs_dir, slots, file = sys.argv[1:]
    trials = [
        fakes.trial(**{**entry, "journal": Path(entry["journal"])}) for entry in json.loads(Path(file).read_text())
    ]
    store = Store(runs_dir)
    run(trials, store, LocalLauncher(store, fakes.PROVENANCE, int(slots), fakes.WORK))


if __name__ == "__main__":
    main()
