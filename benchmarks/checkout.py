"""A training step of this checkout against that of another one, such as the commit before a change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measurement import Ratio, compare, in_turn
from swapformer.errors import UsageError, quote

HERE = Path(__file__).resolve().parents[1]

_WORKER = """
import json, sys, time
from benchmarks.step import BareLoop
from swapformer.study.config.compose import compose
step = BareLoop(compose(json.loads(sys.argv[1])))
for line in sys.stdin:
    since = time.process_time()
    for _ in range(int(line)):
        step()
    print(1000 * (time.process_time() - since) / int(line), flush=True)
"""


class Worker:
    """A process that takes training steps with the code of a checkout, when it is asked to."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder, self.process = folder, process

    def __call__(self, steps: int) -> float:
        """Milliseconds of processor time of a step, the mean of so many. Raises UsageError if the process ended."""
        assert self.process.stdin is not None and self.process.stdout is not None, "both are pipes"
        try:
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline())
        except (OSError, ValueError) as error:
            raise UsageError(f"the checkout {self.folder} must train the same, but it ended: see above") from error


@contextmanager
def worker(folder: Path, overrides: Sequence[str]) -> Iterator[Worker]:
    """A worker of a checkout, which ends with the block."""
    path = os.pathsep.join([str(folder / "src"), str(folder)])
    command = [sys.executable, "-c", _WORKER, json.dumps(list(overrides))]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        try:
            yield Worker(folder, process)
        finally:
            assert process.stdin is not None, "it is a pipe"
            process.stdin.close()


def step_against(checkout: str, overrides: Sequence[str], steps: int, rounds: int) -> list[Ratio]:
    """A step of this checkout over one of another: processor time, so that a loaded machine disturbs it less."""
    other = Path(checkout)
    if not (other / "src" / "swapformer").is_dir():
        raise UsageError(f"`checkout` must be a folder with src/swapformer, but {quote(checkout)} is none")
    with worker(HERE, overrides) as ours, worker(other, overrides) as theirs:
        for side in (ours, theirs):
            side(steps)  # does not count
        pairs = in_turn(lambda: ours(steps), lambda: theirs(steps), rounds)
    return [compare(f"training step / {other.name}", "ms", pairs)]
