"""Runs torchrun for one trial, and ends with its parent: `python -m swapformer.training.torchrun_agent FOLDER ARGS`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from swapformer.training.torchrun import FAILURES


def end_with_parent(folder: Path) -> None:
    """End this process, and remove `folder`, when the process that started torchrun has ended.

    That process holds the other end of the standard input of torchrun and of its ranks.
    """

    def follow() -> None:
        os.read(0, 1)  # nothing is ever written: it returns when the last writer is gone
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=follow, name="parent", daemon=True).start()


def main(folder: Path, arguments: Sequence[str]) -> int:
    """Run torchrun; leave the exit statuses of ranks that failed in `folder`, with the time."""
    end_with_parent(folder)
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    try:
        torchrun(list(arguments))
    except ChildFailedError as error:
        exits = {rank: failure.exitcode for rank, failure in error.failures.items()}
        (folder / FAILURES).write_text(json.dumps({"exits": exits, "at": time.monotonic()}), encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
