"""Starts the mirror's process for a command, and waits for it at the end, but not for long."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from swapformer.mirror.base import Destination
from swapformer.mirror.follower import Target
from swapformer.paths import python_environment
from swapformer.results.artifacts import probe_keys
from swapformer.results.store import Store
from swapformer.study.plan import Plan

log = logging.getLogger(__name__)

DONE = b"."
"""What the process prints when it stands, and for each run that it has closed; a problem is a line of its own."""
STARTING_SECONDS = 300.0
"""How long the mirror's process may take to stand: it imports its libraries behind every training."""

Config = Mapping[str, Any]


def make_destination(node: Config) -> Destination:
    """The destination that one entry of the `logger` node names.

    Raises UsageError if a setting is wrong, or a package is missing.
    """
    from hydra.errors import InstantiationException

    from swapformer.errors import UsageError
    from swapformer.targets import make

    try:
        destination: Destination = make(node, Destination, "logger")
    except InstantiationException as error:
        if isinstance(error.__cause__, ValueError):
            raise UsageError(str(error.__cause__)) from error
        raise
    destination.require()
    return destination


def loggers_of(config: Config) -> list[Config]:
    """The entries of a config's `logger`, each a destination: `logger=[csv,wandb]` makes two."""
    node = config.get("logger") or {}
    return [node] if "_target_" in node else list(node.values())


def study_targets(plan: Plan) -> list[tuple[Target, Config]]:
    """The trials that a study may come to report, as `mirror_trials` takes them."""
    name = plan.spec.name
    return [
        (Target(cell.trial.id, name, cell.arm, cell.condition, probe_keys(cell.trial.config)), cell.trial.config)
        for cell in plan.possible_cells
    ]


@contextmanager
def mirror_trials(targets: Sequence[tuple[Target, Config]], store: Store, quiet: bool = False) -> Iterator[None]:
    """Mirror each target as every entry of its config's `logger` says, while the block runs; nothing without one.

    At the end it says, unless `quiet`, what the user may want to do with files that the destinations have left.
    Raises UsageError, before the block, if a logger's settings are wrong or its package is missing.
    """
    chosen: dict[str, list[Target]] = {}
    for target, config in targets:
        for node in loggers_of(config):
            chosen.setdefault(json.dumps(node), []).append(target)
    destinations = {text: make_destination(json.loads(text)) for text in chosen}
    folder = mirror_folder(store)
    with ExitStack() as stack:
        stack.callback(_print_hints, [] if quiet else list(destinations.values()), folder)
        for text, wanted in chosen.items():
            process = _start(json.loads(text), wanted, store)
            if process is not None:
                stack.callback(_end, process, destinations[text].patience, folder)
        yield


def _print_hints(destinations: Sequence[Destination], folder: Path) -> None:
    """Print what the user may do with files that destinations have left, once their processes have ended."""
    for line in dict.fromkeys(each.upload_hint(folder) for each in destinations):
        if line is not None:
            print(f"swapformer: {line}", file=sys.stderr)


def mirror_folder(store: Store) -> Path:
    """The folder where mirrors keep the states of trials, their log, and the files of destinations."""
    return store.runs_dir / "mirror"


def _start(node: Config, targets: Sequence[Target], store: Store) -> subprocess.Popen[bytes] | None:
    """The process, in a separate session, so that a Ctrl-C leaves it to finish; None where it cannot be started."""
    try:
        folder = mirror_folder(store)
        folder.mkdir(parents=True, exist_ok=True)
        order = {"runs_dir": str(store.runs_dir), "logger": node, "targets": [asdict(target) for target in targets]}
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".order-", delete=False, encoding="utf-8") as file:
            json.dump(order, file)
        with (folder / "log.txt").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "swapformer.mirror", file.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=python_environment(),
                start_new_session=True,
            )
    except OSError as error:
        log.warning("the mirror could not be started (%s); the trials are in the store all the same", error)
        return None


def _end(process: subprocess.Popen[bytes], patience: float, folder: Path) -> None:
    """Tell it that no more will come, wait while it makes headway, then do without it.

    Its first word comes when it stands; after that it may wait for a server in two ways, each `patience` long.
    """
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    with suppress(OSError):
        process.stdin.close()
    said, ended = b"", False
    while select.select([process.stdout], [], [], 2 * patience + 5 if said else STARTING_SECONDS)[0]:
        piece = os.read(process.stdout.fileno(), 65536)
        if not piece:
            break
        said += piece
    else:
        ended = True
        said += b"\nit stopped making headway, and was ended"
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    if process.returncode > 0:
        said += f"\nit ended with exit status {process.returncode}; see {folder / 'log.txt'}".encode()
    elif process.returncode < 0 and not ended:
        name = signal.Signals(-process.returncode).name
        said += f"\nit was killed by {name}; the same command again shows what is lacking, and trains nothing".encode()
    for problem in dict.fromkeys(line.lstrip(DONE.decode()) for line in said.decode("utf-8", "replace").splitlines()):
        if problem:
            log.warning("mirror: %s", problem)
