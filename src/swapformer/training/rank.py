"""Trains one rank of a trial on several devices: `python -m swapformer.training.rank FOLDER DIRECTORY`, by torchrun."""

from __future__ import annotations

import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from swapformer.training import heartbeat


def main(folder: Path, directory: Path) -> None:
    """Train this rank's part of the trial in `directory`, and leave its report in `folder`.

    Nothing heavy is imported before the first sign of life.
    """
    rank = int(os.environ["RANK"])
    life = heartbeat.RankHeartbeat(folder, rank)
    life.start()
    task = heartbeat.read(folder / heartbeat.CONFIG)
    assert task is not None, "the starting process writes it first"
    life.report({**_train(task, directory, life), "at": time.monotonic()})


def _train(task: dict[str, Any], directory: Path, life: heartbeat.RankHeartbeat) -> dict[str, Any]:
    from swapformer.errors import UsageError
    from swapformer.training.callbacks import BatchCounter
    from swapformer.training.fit import CorruptCheckpoint, train

    try:
        return {"outcome": asdict(train(task["config"], directory, [BatchCounter(life)], task["final"]))}
    except UsageError as error:
        return {"error": "usage", "reason": str(error)}
    except CorruptCheckpoint as error:
        return {"error": "corrupt", "reason": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"error": "failed", "reason": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # all is on the disk, and taking the interpreter apart lasts seconds
