"""Runs torchrun for one trial, and ends with its parent: `python -m swapformer.training.torchrun_agent FOLDER ARGS`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from swapformer.training import heartbeat


def main(folder: Path, arguments: Sequence[str]) -> None:
    """Run torchrun as long as the process that made `folder` lives: before its ranks do, nobody else would look."""
    heartbeat.end_with_parent(folder)
    from torch.distributed.run import main as torchrun

    torchrun(list(arguments))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
