"""Options of the test run."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from multiprocessing import forkserver

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

IMPORTS = "swapformer.study.launch.fork_imports"
gc.set_threshold(50_000, 20, 100)  # a twentieth of the suite went into looking at objects that stay


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--refresh-golden` writes the golden files again; what then differs is for the diff to show."""
    parser.addoption("--refresh-golden", action="store_true", help="write tests/golden again (see CONTRIBUTING.md)")
    parser.addoption("--room", help="only tests that a change in this room of swapformer can reach, by imports")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--room`, leaves out the tests that a change in that room cannot reach."""
    room = config.getoption("--room")
    if room:
        from import_graph import RoomFilter

        reached, kept = RoomFilter(room), {}
        for item in items:
            if item.path not in kept:
                kept[item.path] = reached.reaches(item.path)
        config.hook.pytest_deselected(items=[item for item in items if not kept[item.path]])
        items[:] = [item for item in items if kept[item.path]]


class ByFileAndStudy(LoadScopeScheduling):
    """Tests of a file run in one process, and so do all tests of one shipped study."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        study = re.search(r"\[(\d\d_\w+(?:/\w+)?)", name) if file.endswith("test_studies.py") else None
        return f"{file} {study[1]}" if study else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFileAndStudy:
    """The scheduler, whatever `--dist` says."""
    return ByFileAndStudy(config, log)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """A case made of bytes is named by its argument: bytes may hold the second in which a process packed them."""
    return argname if isinstance(val, bytes) else None


def pytest_configure(config: pytest.Config) -> None:
    """One thread: the tests' tensors are so small that waiting for a second one costs more than it does.

    And Ctrl-C, which a shell has its background jobs ignore: tests of it would wait for what never comes.
    """
    import torch

    torch.set_num_threads(1)
    os.environ["SWAPFORMER_LOCKS"] = tempfile.mkdtemp()  # timed trials of one process do not wait for those of another
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The folder of the locks goes."""
    shutil.rmtree(os.environ.pop("SWAPFORMER_LOCKS", ""), ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def _fork_server_of_the_next_tests() -> Iterator[None]:
    """A fork server that imported no torch, for trials that train nothing, is not left to the tests of another file:
    each of their trials would import torch for itself."""
    yield
    server = forkserver._forkserver  # type: ignore[attr-defined]
    if server._forkserver_pid is not None and IMPORTS not in server._preload_modules:
        server._stop()


@pytest.fixture(autouse=True)
def _same_draws_in_any_order() -> None:
    """A test that draws from torch's own stream draws the same whichever test ran before it in the process."""
    import torch

    torch.manual_seed(0)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Half a million objects of torch and the like stay for good: the collector need not look at them again."""
    gc.freeze()
