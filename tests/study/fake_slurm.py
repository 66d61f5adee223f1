"""SLURM's commands as far as submitit and the launcher use them; the tasks of an array run on this machine.

`install` makes the commands in a folder. As in SLURM, a task is a set of processes that all get a signal sent to it,
and what is left of them when its script ends is killed; `scontrol requeue` has it started once more.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "srun", "squeue", "scontrol")
_TASK = "FAKE_SLURM_TASK"
_STATE = "FAKE_SLURM_STATE"


def install(folder: Path) -> None:
    """Put the commands into `folder`, which keeps the state of the queue too."""
    for name in COMMANDS:
        command = folder / name
        command.write_text(f'#!/bin/sh\n{_STATE}={folder} exec {sys.executable} {__file__} {name} "$@"\n')
        command.chmod(0o755)
    for name in ("queue", "requeue", "scripts"):
        (folder / name).mkdir()


def processes(state: Path, task: str) -> dict[int, str]:
    """The living processes of a task, with their names."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{_TASK}={state}/{task}\0".encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "comm").read_text().strip()
        except OSError:
            continue
    return found


def send(state: Path, task: str, number: signal.Signals) -> None:
    """Signal a task as SLURM does: every process of it but the batch script's shell."""
    for process, name in processes(state, task).items():
        if name not in ("bash", "sh"):
            os.kill(process, number)


def _sbatch(state: Path, script: str) -> None:
    text = Path(script).read_text()
    number = str(100 + len(list((state / "scripts").iterdir())))
    (state / "scripts" / number).write_text(text)
    array = re.search(r"^#SBATCH --array=0-(\d+)%(\d+)$", text, re.MULTILINE)
    tasks = [f"{number}_{index}" for index in range(int(array[1]) + 1)] if array else [number]
    for task in tasks:
        (state / "queue" / task).touch()
    with (state / "controller.log").open("a") as log:
        width = array[2] if array else "1"
        command = [sys.executable, __file__, "controller", number, width, *tasks]
        subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    print(f"Submitted batch job {number}")


def _controller(state: Path, number: str, width: str, *tasks: str) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a cluster's daemons do not descend from who submits
    waiting, running = list(tasks), {}
    while waiting or running:
        while waiting and len(running) < int(width):
            task = waiting.pop(0)
            running[task] = _start(state, task)
        time.sleep(0.05)
        for task, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[task]
            for left in processes(state, task):
                os.kill(left, signal.SIGKILL)
            if (state / "requeue" / task).exists():
                (state / "requeue" / task).unlink()
                waiting.append(task)
            else:
                (state / "queue" / task).unlink()


def _start(state: Path, task: str) -> subprocess.Popen[bytes]:
    number, _, index = task.partition("_")
    own = {
        _TASK: f"{state}/{task}",
        "SLURM_JOB_ID": number,
        "SLURM_NTASKS": (nodes := nodes_of((state / "scripts" / number).read_text())),
        "SLURM_PROCID": "0",
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_JOB_NODELIST": "here",
    }
    if index:
        own |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": index}
    return subprocess.Popen(
        ["bash", str(state / "scripts" / number)], start_new_session=True, env={**os.environ, **own}
    )


def _srun(state: Path, *arguments: str) -> None:
    rest = list(arguments)
    while rest[0].startswith("--"):
        option = rest.pop(0)
        if option == "--output":
            path = rest.pop(0).replace("%t", "0")
            task = Path(os.environ[_TASK]).name
            path = path.replace("%A_%a", task).replace("%j", task)
            output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
    others = range(1, int(os.environ["SLURM_JOB_NUM_NODES"]))
    nodes = [subprocess.Popen(rest, env=os.environ | _numbers(node)) for node in others]
    own = subprocess.run(rest, env=os.environ | _numbers(0), check=False) if nodes else None
    if own is not None:
        sys.exit(max(own.returncode, *(node.wait() for node in nodes)))
    os.execvp(rest[0], rest)


def nodes_of(script: str) -> str:
    """How many nodes a script asks for."""
    asked = re.search(r"^#SBATCH --nodes=(\d+)$", script, re.MULTILINE)
    return asked[1] if asked else "1"


def _numbers(node: int) -> dict[str, str]:
    """What a task knows itself by; each node has one."""
    return {"SLURM_PROCID": str(node), "SLURM_NODEID": str(node), "SLURM_LOCALID": "0"}


def main() -> None:
    name, *arguments = sys.argv[1:]
    state = Path(os.environ[_STATE])
    match name:
        case "sbatch":
            _sbatch(state, *arguments)
        case "controller":
            _controller(state, *arguments)
        case "srun":
            _srun(state, *arguments)
        case "squeue":
            print("\n".join(sorted(entry.name for entry in (state / "queue").iterdir())))
        case "scontrol":
            if arguments[:2] == ["show", "hostnames"]:
                print("127.0.0.1\n" * int(os.environ["SLURM_JOB_NUM_NODES"]), end="")
            else:
                assert arguments[0] == "requeue", arguments
                (state / "requeue" / arguments[1]).touch()
        case other:
            raise AssertionError(other)


if __name__ == "__main__":
    main()
