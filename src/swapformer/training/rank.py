"""Trains one rank of a trial on several devices: `python -m swapformer.training.rank FOLDER DIRECTORY`, by torchrun."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from swapformer.training import torchrun
from swapformer.training.torchrun_agent import end_with_parent


def main(folder: Path, directory: Path) -> int:
    """Train this rank's part of the trial in `directory`, and leave its report in `folder`; returns the exit status."""
    rank = int(os.environ["LOCAL_RANK"])
    end_with_parent(folder)
    torchrun.pid_file(folder, rank).write_text(str(os.getpid()), encoding="utf-8")
    report = {**_train(torchrun.read(folder / torchrun.CONFIG), directory), "at": time.monotonic()}
    torchrun.report_file(folder, rank).write_text(json.dumps(report), encoding="utf-8")
    return int("error" in report)  # torchrun then ends the others, which wait for this one


def _train(task: dict[str, Any], directory: Path) -> dict[str, Any]:
    from swapformer.errors import UsageError
    from swapformer.training.fit import CorruptCheckpoint, train

    try:
        return {"outcome": asdict(train(task["config"], directory, (), task["final"]))}
    except UsageError as error:
        return {"error": "usage", "reason": str(error)}
    except CorruptCheckpoint as error:
        return {"error": "corrupt", "reason": str(error)}
    except Exception as error:
        traceback.print_exc()
        kind = "lost" if _lost_another(error) else "failed"
        return {"error": kind, "reason": f"{type(error).__name__}: {error}"}


def _lost_another(error: Exception) -> bool:
    """Whether the error only says that another rank is gone. Gloo raises a plain RuntimeError then."""
    from torch.distributed import DistError

    return isinstance(error, DistError | ConnectionError) or "gloo/transport" in str(error)


if __name__ == "__main__":
    status = main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # all is on the disk, and taking the interpreter apart lasts seconds
