"""Decision tables: means by hand, marks by verdicts that are known from the committed results of another exercise."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.decision_table import NOT_RUN, TableCell, decision_table
from swapformer.errors import UsageError

SHIPPED = Path(__file__).parents[2] / "experiments" / "05_kv_sharing" / "decode"
BYTES = {"study": "decode", "metric": "decode/cache_bytes@1024", "text": "{:.3f}"}
HALF = "the cache of 8 heads is 2 times that of 4"
WRONG = "the chapter's number: 4 heads save 393 216"


@pytest.fixture
def exercise(tmp_path: Path) -> Path:
    """An exercise with one study that was run, and one that was not."""
    for part in ("decode", "later"):
        (tmp_path / part).mkdir()
        shutil.copy(SHIPPED / "study.yaml", tmp_path / part)
    (tmp_path / "decode" / "results").mkdir()
    shutil.copy(SHIPPED / "results" / "results.csv", tmp_path / "decode" / "results")
    return tmp_path


def cell(folder: Path, **settings: Any) -> TableCell:
    raw = {"title": "t", "columns": {"bytes": "kept"}, "rows": {"four": {"bytes": {**BYTES, **settings}}}}
    (folder / "decisions.yaml").write_text(yaml.safe_dump(raw))
    table = decision_table(folder)
    assert table is not None
    return table.rows["four"][0]


def by_hand(arm: str, metric: str) -> float:
    with (SHIPPED / "results" / "results.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["arm"], row["metric"]) == (arm, metric)]
    return sum(float(row["value"]) for row in rows) / len(rows)


def test_a_cell_shows_a_mean_over_seeds(exercise: Path) -> None:
    speed = "decode/tokens_per_second@1024"
    shown = cell(exercise, arm="gqa2", metric=speed)
    assert shown == TableCell(f"{by_hand('gqa2', speed):.3f}")
    assert cell(exercise, arm="gqa4", over="mha8") == TableCell("0.500"), "4 of 8 heads keep half"
    assert cell(exercise, arm="gqa4", over="mha8", times=100) == TableCell("50.000")


@pytest.mark.parametrize(("claim", "mark"), [(HALF, "better"), (WRONG, "worse")])
def test_the_verdict_makes_the_mark(exercise: Path, claim: str, mark: str) -> None:
    """The first claim is supported by the committed results, the second refuted."""
    shown = cell(exercise, arm="gqa4", over="mha8", claim=claim, supported="better", refuted="worse")
    assert shown.mark == mark
    assert cell(exercise, arm="gqa4", claim=claim).mark == "", "nothing is said of what this verdict means"


def test_an_undecided_claim_is_marked_so(exercise: Path) -> None:
    """A margin at the very mean is in the middle of any interval."""
    metric = "derived/log_speed_256"
    mean = by_hand("mqa", metric) - by_hand("mha8", metric)
    text = (exercise / "decode" / "study.yaml").read_text(encoding="utf-8")
    contrast = f"{{weights: {{mqa: 1, mha8: -1}}, metric: {metric}, below: {mean}}}"
    changed = text.replace("\nclaims:\n", f"\nclaims:\n  - {{text: open, contrast: {contrast}}}\n")
    (exercise / "decode" / "study.yaml").write_text(changed, encoding="utf-8")
    assert cell(exercise, arm="mqa", claim="open", supported="better", refuted="worse").mark == "undecided"


def test_a_study_that_was_not_run_says_so(exercise: Path) -> None:
    assert cell(exercise, study="later", arm="gqa4") == TableCell(NOT_RUN)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"study": "decoding"}, "names the study 'decoding'"),
        ({"claim": "the cache of 8 heads is 2 times that of 5"}, "did you mean"),
        ({"arm": "gqa3"}, "no trial of the arm 'gqa3'"),
        ({"claims": HALF}, "no key 'claims'; did you mean 'claim'"),
        ({"claim": HALF, "supported": "great"}, "makes a cell better, worse, alike, undecided, not 'great'"),
    ],
)
def test_what_is_wrong_is_named(exercise: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cell(exercise, **{"arm": "gqa4", **settings})


def test_the_picture_has_every_word_and_mark(exercise: Path) -> None:
    cell(exercise, arm="gqa4", over="mha8", claim=HALF, supported="better", text="< {:.1f}")
    table = decision_table(exercise)
    assert table is not None
    for text in ("&lt; 0.5", "▲ better", ">four<", ">bytes<", ">kept<", ">t<"):
        assert text in table.svg()
    assert decision_table(exercise / "decode") is None
