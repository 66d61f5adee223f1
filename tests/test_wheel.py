"""The wheel carries what an installation outside the repository needs, and the sdist what its tests need."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 3_400_000
"""Bytes of the wheel."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--target", "sdist"]
    subprocess.run([*command, "--directory", str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


def test_configuration_studies_plugins_and_templates_travel_in_the_wheel(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"swapformer/{path.relative_to(ROOT)}" for path in (ROOT / "conf").rglob("*.yaml")}
    wanted |= {f"swapformer/{path.relative_to(ROOT)}" for path in (ROOT / "experiments").rglob("study.yaml")}
    sources = [path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*") if path.is_file()]
    wanted |= {str(path) for path in sources if path.suffix in (".py", ".j2", ".html", ".css", ".js")}
    assert sorted(wanted - packed) == []
    assert any(name.startswith("hydra_plugins/swapformer/") for name in packed)
    tops = {name.partition("/")[0] for name in packed if ".dist-info/" not in name}
    assert tops == {"swapformer", "hydra_plugins"}, "benchmarks and tests stay outside"
    assert wheel.stat().st_size <= LARGEST


def test_the_sdist_holds_what_the_repository_checks_itself_with(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    folders = ("src", "conf", "experiments", "tests", "benchmarks", "docs", "examples")
    wanted = {str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py")}
    wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    wanted |= {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "constraints.txt", "pyproject.toml"}
    assert sorted(wanted - packed) == []
