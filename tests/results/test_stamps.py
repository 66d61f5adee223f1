"""Stamps: a digest that changes with any file, without reading one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from swapformer.results import stamps
from swapformer.results.stamps import Stamps, program


def rewrite(folder: Path) -> None:
    """Other content of the same size, and the time of change that the file had: its ctime alone is another."""
    path = folder / "a.py"
    before = path.stat()
    path.write_text("y")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "longer": lambda folder: (folder / "a.py").write_text("longer"),
    "rewritten": rewrite,
    "gone": lambda folder: (folder / "a.py").unlink(),
    "renamed": lambda folder: (folder / "a.py").rename(folder / "b.py"),
    "another": lambda folder: (folder / "below" / "c.py").write_text(""),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "below").mkdir()
    (tmp_path / "a.py").write_text("x")
    monkeypatch.setattr(stamps, "package_dirs", lambda: (tmp_path, tmp_path / "none"))
    while time.time_ns() <= (tmp_path / "a.py").stat().st_ctime_ns + 20_000_000:  # two ticks of a kernel's clock
        time.sleep(0.01)
    return tmp_path


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_any_file_is_another_digest(change: str, folder: Path) -> None:
    before, own = Stamps().tree(folder).digest, program().digest
    assert before == Stamps().tree(folder).digest and own == program().digest
    CHANGES[change](folder)
    assert before != Stamps().tree(folder).digest and own != program().digest


def test_what_python_compiled_and_hidden_files_do_not_count(folder: Path) -> None:
    before = Stamps().tree(folder).digest
    for name in ("__pycache__/a.pyc", ".hidden", "site-packages/x.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    assert before == Stamps().tree(folder).digest


def test_a_stamp_is_trusted_when_neither_files_nor_the_program_changed_just_now() -> None:
    now, long_ago = time.time_ns(), stamps.LOADED - stamps.SETTLED
    assert Stamps(changed=now - 2 * stamps.SETTLED, edited=long_ago).trusted
    assert not Stamps(changed=now, edited=long_ago).trusted
    assert not Stamps(changed=now - 2 * stamps.SETTLED, edited=stamps.LOADED).trusted
