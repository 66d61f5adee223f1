"""A study judged from its folder, without a store. Every committed one is judged again in tests/test_studies.py."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.exercises import shipped
from swapformer.paths import experiments_dir
from swapformer.report.build import rebuild
from swapformer.study.published_results import published_results

STUDIES = {name: path.parent for name, path in shipped().items()}


def test_what_the_first_studies_decided_stays_decided() -> None:
    """What 04 and 07 decided at their margins with all seeds; a rule that changes shows here, and in CHANGELOG.md."""
    for name, outcomes in {"04_head_count/width": "ssuussur", "07_position_encodings/copy": "uurussss"}.items():
        found = "".join(verdict.outcome[0] for verdict in rebuild(*published_results(STUDIES[name])).verdicts)
        assert found == outcomes


def test_a_study_that_was_judged_from_its_folder_left_nothing_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "04_head_count"
    shutil.copytree(STUDIES["04_head_count/width"], folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    main(["report", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)["files"] == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (folder / "results" / "table.md").write_text("old")
    main(["report", str(folder), "--publish"])
    assert (folder / "results" / "table.md").read_bytes() == before[folder / "results" / "table.md"]
    assert (folder / "results" / "results.csv").read_bytes() == before[folder / "results" / "results.csv"]
    assert str(folder / "results" / "table.md") in capsys.readouterr().out.replace("\n", "")


def test_a_study_without_published_results_says_what_writes_them(tmp_path: Path) -> None:
    shutil.copy(STUDIES["04_head_count/width"] / "study.yaml", tmp_path)
    with pytest.raises(UsageError, match=r"does not exist; `swapformer study .* --publish` writes it"):
        published_results(tmp_path)


def test_numbers_that_readmes_take_from_results_without_a_claim() -> None:
    """Gaps by step (08), cosines of sinusoids by what a factor leaves out (07), a contrast of one condition (12)."""
    root = experiments_dir()
    history = pd.read_csv(root / "08_rope_alibi" / "language" / "results" / "history.csv")
    losses = history[history["metric"] == "val/bits_per_byte"].pivot_table("value", ["seed", "step"], "arm")
    gaps = (losses["alibi"] - losses["rope"]).groupby("step").mean()
    assert gaps.round(2).tolist() == [0.23, 0.26, 0.25, 0.24]
    assert ".23, .26, .25, .24 apart" in (root / "08_rope_alibi" / "README.md").read_text(encoding="utf-8")
    found = pd.read_csv(root / "06_sinusoid_linearity" / "tables" / "results" / "results.csv")
    missed = found[found["arm"] == "sinusoidal"].groupby("metric")["value"].mean()
    cosines = [round(math.sqrt(1 - missed[f"shift/scaled@{k}"] ** 2), 2) for k in (1, 8, 64)]
    assert cosines == [0.96, 0.63, 0.31]
    assert "(sinusoids .96, .63, .31)" in (root / "07_position_encodings" / "README.md").read_text(encoding="utf-8")
    losses = pd.read_csv(root / "12_initialisation" / "natural" / "results" / "results.csv")
    four = losses[(losses["metric"] == "val/loss") & (losses["model.num_heads"] == 4)]
    seeds = four.pivot_table("value", "seed", "arm")
    apart = seeds["natural"] - seeds["dot_xavier"]
    half = float(stats.t.ppf(0.975, len(apart) - 1) * apart.std() / math.sqrt(len(apart)))
    assert (round(apart.mean(), 3), round(half, 3)) == (0.088, 0.030)
    assert "(Xavier's +.088±.030)" in (root / "12_initialisation" / "README.md").read_text(encoding="utf-8")
