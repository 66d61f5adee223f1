"""The same difference is the same text wherever a report shows it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from report.store import Store
from swapformer.report import number_format
from swapformer.report.build import Report, build
from swapformer.report.page.tables import cell

MINUS = "−"
NUMBER = rf"(?:[+{MINUS}]?[\d.]+|∞|[+{MINUS}]∞)"
ARMS = {f"a{index}": [f"model.num_heads={2**index}"] for index in range(6)}
SPREADS = (0.05, 0.05, 0.005, 0.04, 0.0005, 0.05)
"""Of the seeds' noise: halves of 95 % intervals lie near powers of ten, where a wider interval has a digit less."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Eleven claims, so that corrected intervals are much wider; some margins move with the data, or want the best."""
    than = {"than": "a0", "metric": "val/loss"}
    claims = [{"text": f"{arm} is worse", "worse": {"arm": arm, "margin": 0.01, **than}} for arm in list(ARMS)[1:]]
    claims += [
        {"text": f"{arm} is as good", "within": {"arm": arm, "of": "a0", "metric": "val/loss", "relative": 0.5}}
        for arm in list(ARMS)[1:]
    ]
    claims += [{"text": "a4 is the best", "within": {"arm": "a4", "of": "best", "metric": "val/loss", "margin": 0.3}}]
    found = Store(
        tmp_path_factory.mktemp("digits"), ARMS, "a0", ["val/loss"], seeds=range(6), claims=claims
    )  # fmt: skip
    found.write_manifest()
    noise = np.random.default_rng(3).normal(0, 1, (len(ARMS), 6))
    for row, arm in enumerate(ARMS):
        for seed in found.seeds:
            loss = 1 + 0.04321 * row + SPREADS[row] * float(noise[row, seed])
            found.write_trial(arm, seed, {"val/loss": loss}, history={"val/loss": [(0, 3.0), (2000, loss)]})
    return build(found.study, found.runs, paper=("latex",))


def shown(report: Report) -> dict[str, set[str]]:
    """Arm → the texts of its difference to a0, in every file of the report that shows it."""
    found: dict[str, set[str]] = {arm: set() for arm in list(ARMS)[1:]}
    page = re.sub(r"<[^>]+>", "", (report.directory / "report.html").read_text(encoding="utf-8"))
    tex = (report.directory / "paper" / "paper.tex").read_text(encoding="utf-8")
    tex = tex.replace("$-$", MINUS).replace("$", "").replace("\\", "")
    texts = [(report.directory / "table.md").read_text(encoding="utf-8"), page, tex]
    for text in texts:
        named = re.findall(rf"(a\d) {MINUS} a0(?: = |\s+)({NUMBER}) [\[(]", text)
        assert named
        for arm, value in named:
            found[arm].add(value)
    table = texts[0]
    for arm in found:
        (row,) = [line for line in table.splitlines() if line.startswith(f"| {arm} |")]
        (value,) = re.findall(rf"Δ ({NUMBER}) \[", row)
        found[arm].add(value)
    return found


def test_every_difference_has_one_text(report: Report) -> None:
    assert {arm: len(texts) for arm, texts in shown(report).items()} == dict.fromkeys(list(ARMS)[1:], 1)


def test_by_the_digits_of_each_interval_they_would_differ(report: Report) -> None:
    """What the study is made for: a corrected interval is wide enough to have a digit less than the table's."""
    contrasts = [c for each in report.verdicts for c in each.contrasts if c.than == "a0"]
    digits = [
        (number_format.decimals_for(c.estimate.value, c.lower, c.upper),
         number_format.decimals_for(c.estimate.value, *c.usual))
        for c in contrasts
    ]  # fmt: skip
    assert any(own < usual for own, usual in digits)


def test_limits_have_the_digits_of_their_difference(report: Report) -> None:
    table = (report.directory / "table.md").read_text(encoding="utf-8")
    for value, low, high in re.findall(rf"({NUMBER}) [\[(]({NUMBER}), ({NUMBER})[\])]", table):
        finite = [text for text in (value, low, high) if "∞" not in text]
        assert len({len(text.partition(".")[2]) for text in finite}) == 1, (value, low, high)


def test_a_difference_and_other_limits_of_it_share_their_digits() -> None:
    """By hand: half of [0.0, 0.2] is 0.1, which two significant digits show with two decimals."""
    assert number_format.difference_text(0.1, (0.0, 0.2)) == "+0.10 [0.00, +0.20]"
    assert number_format.difference_text(0.1, (0.0, 0.2), (-1.234, 1.434)) == f"+0.10 [{MINUS}1.23, +1.43]"
    assert number_format.difference_text(0.1, (0.001, 0.199), (-1.234, 1.434)) == f"+0.100 [{MINUS}1.234, +1.434]"


def test_a_metric_that_no_seed_changes_has_no_intervals(tmp_path: Path) -> None:
    found = Store(tmp_path, {"a": [], "b": ["model.num_heads=2"]}, "a", ["val/loss"], manifest={"exact": ["val/loss"]})
    study, runs = found.write(lambda arm, seed: {"val/loss": {"a": 0.3, "b": 1.0}[arm]})
    table = (build(study, runs).directory / "table.md").read_text(encoding="utf-8")
    assert "| 0.300 – |" in table and "| 1.00 –<br>Δ +0.700 – |" in table


def test_a_cell_shows_a_text_as_it_was_written() -> None:
    assert cell("a*b* | c\\d $x$\n<e>") == r"a\*b\* \| c\\d \$x\$ &lt;e>"
