"""The wheel carries what an installation outside the repository needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_configuration_studies_plugins_and_templates_travel_in_the_wheel(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"swapformer/{path.relative_to(ROOT)}" for path in (ROOT / "conf").rglob("*.yaml")}
    wanted |= {f"swapformer/{path.relative_to(ROOT)}" for path in (ROOT / "experiments").glob("*/study.yaml")}
    sources = [path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*") if path.is_file()]
    wanted |= {str(path) for path in sources if path.suffix in (".py", ".j2", ".html", ".css", ".js")}
    assert sorted(wanted - packed) == []
    assert any(name.startswith("hydra_plugins/swapformer/") for name in packed)
