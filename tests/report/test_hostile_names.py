"""Names that steer a terminal, turn text around, or are formulas: what leaves a report is safe, and loses nothing."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from report.store import Store
from swapformer.console import printable_output, terminal
from swapformer.errors import printable
from swapformer.report.build import Report, build
from swapformer.report.results_csv import from_cell, read_results, to_cell

RED = "\x1b[31mred\x07"
TURNED = "ab\u202edc\u2066"
FORMULA = '=HYPERLINK("http://x","y")'
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A study whose arms, question, claim and reasons of failures hold what a terminal would obey."""
    arms = {name: [f"optim.lr={index}"] for index, name in enumerate(("base", RED, TURNED, FORMULA, "nul\x00", "-1"))}
    claim = {"text": f"{RED} is worse", "worse": {"arm": RED, "than": "base", "metric": "val/loss", "margin": 0.01}}
    store = Store(tmp_path_factory.mktemp("hostile"), arms, "base", ["val/loss"], seeds=range(3), claims=[claim])
    store.manifest = {"question": f"Is {TURNED} {RED}?"}
    store.fill({arm: 2.0 + index / 10 for index, arm in enumerate(arms)})
    store.write_trial(TURNED, 2, {}, status="failed", reason=f"it said {RED}")
    return build(store.study, store.runs)


def test_nothing_that_a_report_writes_can_steer_a_terminal_but_the_names_are_told(report: Report) -> None:
    for path in report.files:
        if path.suffix != ".csv":
            text = path.read_text(encoding="utf-8")
            assert not STEERING.search(text), path
    page = (report.directory / "report.html").read_text(encoding="utf-8")
    assert r"\x1b[31mred\x07" in page and r"ab\u202edc\u2066" in page


def test_figures_are_well_formed_whatever_an_arm_is_called(report: Report) -> None:
    figures = [path for path in report.files if path.suffix == ".svg"]
    assert figures
    for path in figures:
        ET.fromstring(path.read_text(encoding="utf-8"))


def test_tooltips_hold_no_escapes_that_the_pages_script_would_undo(report: Report) -> None:
    page = (report.directory / "report.html").read_text(encoding="utf-8")
    (said,) = re.findall(r'<script[^>]*type="application/json" id="said"[^>]*>(.*?)</script>', page, re.DOTALL)
    names = {mark["arm"] for figure in json.loads(said).values() for mark in figure["marks"]}
    assert printable(TURNED) in names and not any(STEERING.search(name) for name in names)


def test_the_terminal_shows_the_report_with_styles_of_ours_alone(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    for colours in (False, True):
        monkeypatch.setenv("FORCE_COLOR" if colours else "NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "200")
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        with printable_output():
            report.render(terminal())
        without_styles = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
        assert ("\x1b[1m" in out.getvalue()) is colours and "\x1b[31mred" not in out.getvalue()
        assert not STEERING.search(without_styles) and r"\x1b[31mred" in without_styles


def test_a_table_of_data_holds_no_formula_and_gives_the_names_back(report: Report) -> None:
    text = (report.directory / "results.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["arm"] for row in rows if row["arm"].startswith(("=", "+", "@"))} == set()
    assert {from_cell(row["arm"]) for row in rows if row["arm"]} == set(report.records.manifest.arms), "looks have none"
    assert "-1" in {row["arm"] for row in rows}, "a number stays one"


def test_a_study_with_such_names_is_judged_again_from_its_table(report: Report) -> None:
    manifest = report.records.manifest
    again = read_results(report.directory / "results.csv", manifest)
    assert {cell.arm for cell in again.manifest.cells} == set(manifest.arms)
    assert again.manifest.impossible_at == {}


@pytest.mark.parametrize("name", [FORMULA, "+x", "-x", "@x", "\tx", "\rx", "'=x", "''=x", "'x", "x", "", "-1", "=1"])
def test_names_survive_being_cells(name: str) -> None:
    assert from_cell(to_cell(name)) == name
    assert not re.match(r"[=+\-@\t\r]", to_cell(name)) or name == "-1"


def test_what_is_printed_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with printable_output(), printable_output():  # as a command within a command
        print(f"{RED}\tone\n{TURNED}", "\udcff", tmp_path)
    assert out.getvalue() == f"{printable(RED)}\tone\n{printable(TURNED)} \\udcff {tmp_path}\n"
    assert sys.stdout is out
