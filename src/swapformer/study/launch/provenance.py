"""Provenance of a result: the command, the commit and the machine that it comes from."""

from __future__ import annotations

import platform
import shlex
import socket
import subprocess
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from swapformer.study.launch.machine import processor

_PACKAGE = Path(__file__).resolve().parents[1]
_typed: ContextVar[str | None] = ContextVar("typed", default=None)


@dataclass(frozen=True)
class Provenance:
    """The command and the commit that a record names; made once per command and handed to each trial."""

    command: str
    commit: str | None
    dirty: bool


def current_provenance() -> Provenance:
    """The provenance of this process."""
    commit, dirty = _git()
    return Provenance(_typed.get() or _command(), commit, dirty)


def remember_command() -> None:
    """Keep the command line before it is rewritten for Hydra."""
    _typed.set(_command())


def _command() -> str:
    """The command line as the user would type it again."""
    program = Path(sys.argv[0]).name
    if program == "__main__.py" or program.endswith(".py"):
        spec = sys.modules["__main__"].__spec__
        name = spec.name.removesuffix(".__main__") if spec is not None else ""
        program = f"python -m {name}" if name else f"python {sys.argv[0]}"
    return f"{program} {shlex.join(sys.argv[1:])}".strip()


def machine_info(accelerator: str = "cpu") -> dict[str, str]:
    """The versions and the machine that a trial runs with, beside its environment class; of a GPU what it is, too.

    `processor`: its name and the instructions that torch uses, on which the last bits of a training depend.
    """
    torch = sys.modules.get("torch")  # where another program trains it is not loaded
    found = {
        "python": platform.python_version(),
        "lightning": version("lightning"),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "processor": processor() + (f" · {torch.backends.cpu.get_cpu_capability()}" if torch else ""),
    }
    return found | _gpu() if accelerator == "gpu" else found


def _gpu() -> dict[str, str]:
    """Name and capability of the GPU, and the versions of CUDA and of the driver; nothing if missing."""
    import torch  # late: a CPU's trial of times is named without

    if not torch.cuda.is_available():
        return {}
    held = torch.cuda.get_device_properties(0)
    found = {"gpu": held.name, "capability": f"{held.major}.{held.minor}", "cuda": str(torch.version.cuda)}
    try:
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        return found
    return found | {"driver": said.strip()}


@cache
def _git() -> tuple[str | None, bool]:
    """Commit of the checkout that holds this package, and whether it differs from it; (None, False) without one."""
    # An installed package may lie inside somebody else's repository: it must be tracked there to count.
    tracked = _run("ls-files", "--error-unmatch", str(_PACKAGE / "__init__.py"))
    commit = _run("rev-parse", "HEAD") if tracked is not None else None
    if commit is None:
        return None, False
    return commit, bool(_run("status", "--porcelain", "--untracked-files=no"))


def _run(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(_PACKAGE), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
