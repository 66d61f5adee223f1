"""results.csv and history.csv: a study is judged and drawn again from them alone, whatever became of its trials."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from report.store import ENVIRONMENT, Store, falling
from swapformer.errors import UsageError
from swapformer.report.build import Report, build, rebuild
from swapformer.report.figures.figure_data import figure_data
from swapformer.report.page.tables import table_md
from swapformer.report.page.to_json import verdict_dict
from swapformer.report.records import Records, read
from swapformer.report.results_csv import LARGEST_HISTORY, history_csv, read_results, results_csv
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.sequential import judge_all
from swapformer.results.ledger import Ledger
from swapformer.results.manifest import Manifest

WORSE = {"text": "b is worse | by far", "worse": {"arm": "b", "than": "a", "metric": "val/loss", "margin": 0.01}}
LATER = {"text": "c reaches it later", "higher": {"arm": "c", "than": "a", "metric": "derived/steps", "margin": 10}}
RATIO = {"text": "b gains", "contrast": {"weights": {"b": 1}, "metric": "derived/gain", "between": [0.5, 2]}}
DERIVE = {"derived/gain": {"ratio": ["val/loss@8", "val/loss"]}, "derived/steps": {"time_to": "val/loss", "value": 2.2}}


def difference(arm: str, *changes: tuple[str, str, str]) -> dict[str, Any]:
    return {"arm": arm, "condition": "", "changes": changes, "beyond": [], "shapes": [], "flops": 1e9, "match": None}


def study(place: Path, fault: str = "") -> Store:
    """Three arms whose trials took 12 evaluations; `fault` is what befell b, or what tells it from a."""
    store = Store(place, {"a": [], "b": [], "c": []}, "a", ["val/loss", "val/loss@8", *DERIVE], seeds=range(5))
    setting = "model.kernel" if fault == "another kernel" else "model.position"
    store.manifest = {
        "derive": DERIVE, "longest_trained": 16,
        "figures": [{"name": name} for name in ("curve_val_loss", "gap_val_loss", "length_val_loss", "arms_val_loss")],
        "fairness": [difference("b", (setting, "x", "y")), difference("c", ("model.position", "x", "z"))],
    }  # fmt: skip
    store.claims = [WORSE, LATER, RATIO]
    same = fault in ("the same model", "another kernel")
    for arm in store.arms:
        for seed in store.seeds:
            shift = 0.0 if arm == "b" and same else {"a": 0.0, "b": 0.3, "c": 0.1}[arm]
            loss = 2.0 + math.sin(seed) / 20 + shift * (1 + seed / 50)
            metrics = {"val/loss": loss, "val/loss@8": 1.1 * loss}
            if arm == "b" and fault == "no number":
                del metrics["val/loss"]  # a record leaves out what is no finite number, and says its direction
            status = "diverged" if (arm, seed, fault) == ("b", 2, "divergence") else "finished"
            device = "cuda" if (arm, fault) == ("b", "another device") else "cpu"
            items = 6 if (arm, fault) == ("b", "other data") else 9
            store.write_trial(
                arm, seed, metrics, status, history={"val/loss": falling(loss, 12, [0.0] * 12)},
                environment=ENVIRONMENT | {"device": device}, evaluation={"val": {"items": items, "fingerprint": "0"}},
                remarks=["it said so"] if (arm, seed) == ("b", 2) else [],
            )  # fmt: skip
    store.write_manifest()
    return store


def written(records: Records, place: Path) -> Path:
    """The results.csv of records, in a folder."""
    place.mkdir(exist_ok=True)
    path = place / "results.csv"
    path.write_text(results_csv(records, records.manifest.metrics))
    return path


def asked(records: Records) -> Manifest:
    """What a study file says: nothing of trials."""
    bare = replace(records.manifest, cells=(), fairness=(), ledger=Ledger(), longest_trained=None, tuning=None)
    return replace(bare, impossible_at={})


def judged(records: Records) -> str:
    """Verdicts and table, without any figure."""
    claims = claims_of(records.manifest)
    (verdicts,) = judge_all(claims, records).values()
    (data,) = figure_data(records, claims).values()
    table = table_md(data.rows, records.manifest.metrics, records.directions, "a", verdicts=verdicts)
    return table + repr([verdict_dict(verdict) for verdict in verdicts])


FAULTS = ["", "the same model", "another kernel", "divergence", "no number", "another device", "other data"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_study_is_judged_again_from_its_file_alone(fault: str, tmp_path: Path) -> None:
    store = study(tmp_path, fault)
    first = read(store.study, store.runs)
    second = read_results(written(first, tmp_path), asked(first))
    assert judged(second) == judged(first)
    assert (second.evaluations, second.remarks) == (first.evaluations, first.remarks)
    assert second.manifest.fairness == first.manifest.fairness


def test_a_study_is_drawn_again_to_the_last_byte(tmp_path: Path) -> None:
    store = study(tmp_path)
    first = build(store.study, store.runs)
    second = read_results(first.directory / "results.csv", asked(first.records))
    again = rebuild(second, tmp_path / "again", publish=True)
    drawn = {path.name: path.read_text() for path in (tmp_path / "again").iterdir()}
    listed = {f"{each.name}.svg" for each in first.records.manifest.figures}
    assert drawn.keys() == {"table.md"} | listed and len(listed) == 4
    assert drawn == {name: (first.directory / name).read_text() for name in drawn}
    assert [each for each in first.caveats if "commit" not in each] == list(again.caveats)


@pytest.mark.parametrize(
    ("fault", "column"), [("the same model", "losses"), ("another kernel", "note"), ("no number", "value")]
)
def test_each_column_is_needed(fault: str, column: str, tmp_path: Path) -> None:
    """The planted fault: without it, other verdicts or limits come out."""
    store = study(tmp_path, fault)
    first = read(store.study, store.runs)
    path = written(first, tmp_path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for row in rows:
            if column != "note" or row["status"] != "stated":
                writer.writerow({**row, column: "" if column != "value" or row[column] == "nan" else row[column]})
    assert judged(read_results(path, asked(first))) != judged(first)


def test_a_history_that_is_too_long_is_not_published(tmp_path: Path) -> None:
    store = study(tmp_path)
    records = read(store.study, store.runs)
    text = history_csv(records)
    assert text is not None and text.startswith("condition,arm,seed,status,metric,step,value\n")
    rows = records.histories
    assert history_csv(replace(records, histories=pd.concat([rows] * (1 + LARGEST_HISTORY // len(text))))) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("results.csv", "study,arm\nx,a\n"),
        ("results.csv", "study,arm,seed,metric,value,status,note\nx,,,tuning,,stated,{\n"),
        ("results.csv", "study,arm,seed,metric,value,status,note\nx,,,difference,,stated,3\n"),
        ("history.csv", "condition,arm,seed,status,metric,step,value\n,a,0,finished,val/loss,1,much\n"),
        ("history.csv", "arm,step\na,1\n"),
    ],
)
def test_a_damaged_file_is_one_line(name: str, text: str, tmp_path: Path) -> None:
    store = study(tmp_path)
    records = read(store.study, store.runs)
    path = written(records, tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=r"results\.csv must be a study's results\.csv, but cannot be read") as error:
        read_results(path, asked(records))
    assert "\n" not in str(error.value)


def edited(lines: list[str], number: int, column: str, text: str) -> list[str]:
    """The lines of a table with another text in one cell."""
    at = lines[0].split(",").index(column)
    cells = lines[number].split(",")
    cells[at] = text
    return [*lines[:number], ",".join(cells), *lines[number + 1 :]]


Lines = list[str]
EDITS: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "another direction": (lambda rows: edited(rows, 1, "direction", "higher"), "the direction of .* must be one"),
    "no direction": (lambda rows: edited(rows, 1, "direction", "up"), "line 2: a direction must be lower, higher"),
    "a row twice": (lambda rows: [*rows[:2], *rows[1:]], "lines 2 and 3 are of the same trial and metric"),
    "twice, another value": (lambda rows: [*rows, edited(rows, 1, "value", "0.5")[1]], "of the same trial and metric"),
    "another study": (lambda rows: edited(rows, 1, "study", "99_other"), "the study of rows must be one"),
    "another arm": (lambda rows: edited(rows, 1, "arm", "aa"), "line 2: the study has no arm 'aa'"),
    "a wrong status": (lambda rows: edited(rows, 1, "status", "great"), "line 2: there is no status 'great'"),
    "a seed of Python": (lambda rows: edited(rows, 1, "seed", "1_0"), "line 2: a seed must be a whole number"),
    "a seed below 0": (lambda rows: edited(rows, 1, "seed", "-1"), "line 2: a seed must be a whole number"),
    "a value of Python": (lambda rows: edited(rows, 1, "value", "1_0.5"), "line 2: value must be a number"),
    "infinity": (lambda rows: edited(rows, 1, "value", "inf"), "line 2: value must be a number"),
    "a cut row": (lambda rows: [*rows[:-1], rows[-1][:9]], "line .* must have 12 cells, but has"),
    "a long row": (lambda rows: [rows[0], rows[1] + ",x", *rows[2:]], "line 2 must have 12 cells, but has 13"),
    "semicolons": (lambda rows: [row.replace(",", ";") for row in rows], "must be parted by commas"),
    "tabs": (lambda rows: [row.replace(",", "\t") for row in rows], "must be parted by commas"),
    "no column": (lambda rows: [rows[0].replace("arm", "arms"), *rows[1:]], "the column arm is missing"),
    "nothing": (lambda rows: [], "the column study is missing"),
    "a row of a trial gone": (lambda rows: [rows[0], *rows[2:]], "must have a row for each metric, but has none for"),
    "a row of a look gone": (
        lambda rows: [row for at, row in enumerate(rows) if "look@" not in row or "look@" in rows[at - 1]],
        r"look@\d must be of \d seeds, but up to it there are",
    ),
    "a header": (lambda rows: rows[:1], "it has no row of any arm"),
    "a deep note": (lambda rows: [*rows, ",,,exact,,,,stated,,,," + "[" * 100_000], "nested too deeply"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of a study of three arms, whose files no test writes to."""
    store = study(tmp_path_factory.mktemp("edits"))
    return build(store.study, store.runs)


@pytest.mark.parametrize("name", EDITS)
def test_a_table_that_no_report_writes_is_refused_in_one_line(name: str, report: Report, tmp_path: Path) -> None:
    """Such edits changed verdicts silently."""
    edit, complaint = EDITS[name]
    lines = edit((report.directory / "results.csv").read_text().splitlines())
    (path := tmp_path / "results.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match=complaint) as refused:
        read_results(path, replace(report.records.manifest, cells=()))
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_a_seed_that_an_arm_lacks_is_missing(tmp_path: Path) -> None:
    store = study(tmp_path)
    report = build(store.study, store.runs)
    path = store.study / "report" / "results.csv"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("99_fake,b,3,")]
    path.write_text("\n".join(lines) + "\n")
    again = rebuild(read_results(path, replace(report.records.manifest, cells=())), tmp_path / "again")
    assert report.complete and not again.complete
    assert again.as_dict()["trials"] == {"finished": 14, "missing": 1}
