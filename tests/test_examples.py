"""The notebooks of `examples/`: each runs from its first line to its last, and says what is so."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import pytest
from scipy import stats

import swapformer as sf
from swapformer.paths import experiments_dir

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, place: Path) -> list[str]:
    """The lines that a notebook prints in a folder of the user's, after few steps where it trains."""
    text, _ = re.subn(
        r"^(STEPS|SEEDS|BATCHES) = \d+\b", lambda found: f"{found[1]} = {SMALL[found[1]]}", read(name), flags=re.M
    )
    (place / name).write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, name], cwd=place, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


SMALL = {"STEPS": 10, "SEEDS": 2, "BATCHES": 1}


def read(name: str) -> str:
    return (EXAMPLES / name).read_text(encoding="utf-8")


def test_every_notebook_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"swap_a_part.py", "look_inside.py", "paper_figure.py"}


@pytest.mark.parametrize("name", ["swap_a_part.py", "look_inside.py", "paper_figure.py"])
def test_a_notebook_is_cells_of_text_and_of_code(name: str) -> None:
    first, *cells = re.split(r"^# %%", read(name), flags=re.M)
    assert not first and cells[0].startswith(" [markdown]\n# # ")
    for cell in cells:
        if cell.startswith(" [markdown]"):
            assert all(line.startswith("#") for line in cell.strip().splitlines()[1:]), cell


@pytest.mark.evidence
def test_a_part_is_swapped(tmp_path: Path) -> None:
    *_, page = [line for line in run("swap_a_part.py", tmp_path) if line.endswith("report.html")]
    assert Path(page).is_absolute() or (tmp_path / page).is_file()
    frame = sf.read_records("swap_a_part", tmp_path / "runs")
    assert set(frame["arm"]) == {"none", "learned", "rope", "alibi"} and set(frame["status"]) == {"finished"}


@pytest.mark.evidence
def test_a_model_is_looked_into(tmp_path: Path) -> None:
    printed = run("look_inside.py", tmp_path)
    reaches = [line for line in printed if line.startswith("blocks.")]
    assert len(reaches) == 2
    for line in reaches:  # the slopes of ALiBi fall with a head's number, so that it looks further back
        values = [float(value) for value in line.partition("[")[2].rstrip("]").split(", ")]
        assert values == sorted(values) and values[0] > 0
    assert re.fullmatch(r"most needed: head \d of layer \d", printed[-1])


def test_a_figure_has_the_intervals_that_a_loop_over_the_table_gives(tmp_path: Path) -> None:
    printed = run("paper_figure.py", tmp_path)
    losses: dict[str, dict[str, float]] = defaultdict(dict)
    with (experiments_dir() / "04_head_count" / "width" / "results" / "results.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["metric"] == "val/loss":
                losses[row["arm"]][row["seed"]] = float(row["value"])
    wanted = []
    for arm in ("h1", "h2", "h4", "h16", "h32"):
        apart = [losses[arm][seed] - losses["h8"][seed] for seed in losses["h8"]]
        half = float(stats.t.ppf(0.975, len(apart) - 1)) * stdev(apart) / len(apart) ** 0.5
        wanted.append(f"{arm}: {mean(apart):+.5f} ± {half:.5f}")
    assert printed == wanted
    assert (tmp_path / "heads.pdf").read_bytes().startswith(b"%PDF") and (tmp_path / "heads.png").stat().st_size > 5000
