"""The source of the standard library and of installed packages: which files it reads, and which it refuses."""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.task.source import Installed, Library
from swapformer.yaml_reader import read_yaml

PINNED: dict[str, str] = read_yaml(Path(conf_dir()) / "task/source/installed.yaml")["packages"]
MPMATH = {"mpmath": distribution("mpmath").version}


def names(source: Installed) -> list[str]:
    return [document.key for document in source.documents()]


def test_it_has_the_library_and_then_the_packages_without_their_tests() -> None:
    found, library = names(Installed(packages=MPMATH)), [name for name, _ in Library().files]
    assert [name for name in found if not name.startswith("mpmath/")] == [n for n in library if n in set(found)]
    own = [name for name in found if name.startswith("mpmath/")]
    assert found[-len(own) :] == own and "mpmath/ctx_mp.py" in own and len(own) > 50
    assert not [name for name in own if "tests" in name or "test_" in name]


def test_files_of_equal_content_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy in another split would be known there."""
    site = tmp_path / "site"
    for name in ("one", "two"):
        (site / name).mkdir(parents=True)
        (site / name / "same.py").write_text("x = 'equal in both'\n")
        (site / name / "own.py").write_text(f"x = {name!r}\n")
        (site / name / "test_it.py").write_text("a test\n")
        wheel(site, name, "1.0", ["same.py", "own.py", "test_it.py"])
    monkeypatch.syspath_prepend(site)
    found = names(Installed(packages={"one": "1.0", "two": "1.0"}))
    assert [name for name in found if name[:4] in ("one/", "two/")] == ["one/own.py", "one/same.py", "two/own.py"]
    texts = [document.text() for document in Installed(packages={"two": "1.0", "one": "1.0"}).documents()]
    assert len(texts) == len(set(texts)) and sum("equal in both" in text for text in texts) == 1


def wheel(site: Path, name: str, version: str, files: list[str], tag: str = "py3-none-any") -> None:
    """What pip leaves of a wheel that it has installed."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
    (info / "RECORD").write_text("".join(f"{name}/{file},,\n" for file in files))


def test_its_stamp_changes_with_versions_and_files() -> None:
    one, two = (Installed(packages={name: distribution(name).version}).stamp() for name in ("mpmath", "networkx"))
    assert one.facts[1] == MPMATH and one.facts != two.facts


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        ({}, "must map packages to versions"),
        (["mpmath"], "must map packages to versions"),
        ({"mpmath": "0.1"}, r"but mpmath is 1\.3\.0; pip install mpmath==0\.1, or state others there"),
        ({"no-such": "1"}, "but no-such is not installed; pip install no-such==1"),
        ({"numpy": distribution("numpy").version}, "must be pure Python .* but the wheel of numpy is cp"),
    ],
)
def test_what_cannot_be_the_same_everywhere_is_refused_in_one_line(packages: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        Installed(packages=packages)
    assert "\n" not in str(refused.value)


def test_the_versions_are_those_of_the_constraints() -> None:
    text = (Path(__file__).parents[2] / "constraints.txt").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M))
    assert {name: pinned[name] for name in PINNED} == PINNED
