"""The simulation of verdicts: it decides as the report does, and the cells that must hold do."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.statistics import TABLES, Simulated, measure
from benchmarks.statistics.committed import committed_studies, decided_share
from benchmarks.statistics.design import opposed_bound, opposed_shares
from benchmarks.statistics.kinds import SLOPE, case_shares, cases, gathered, outcome
from benchmarks.statistics.ladders import ladder_cases, ladder_shares
from benchmarks.statistics.laws import ARMS, FloatArray, Law, committed_laws, committed_values, synthetic_laws
from benchmarks.statistics.paths import errors, paths
from benchmarks.statistics.shares import ALPHA, ArrayClaim, claims_at, family_shares, law_shares, limits, outcomes
from report.statistics.test_verdicts import evidence
from swapformer.report.statistics.claim_grammar import parse
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.evidence import Evidence
from swapformer.report.statistics.verdicts import judge

STUDIES = 4000
NOISE = 3 * math.sqrt(0.05 * 0.95 / STUDIES)
"""Three standard errors of a share of 5 %."""
LAWS = {law.name: law for law in (*synthetic_laws(), *committed_laws())}
NAMES = [f"a{index}" for index in range(ARMS)]


def written(claim: ArrayClaim) -> Claim:
    """The claim as a study file would have it."""
    below, above = claim.region
    kind = "within" if math.isfinite(below) and math.isfinite(above) else "higher" if below > -math.inf else "lower"
    others = [NAMES[arm] for arm in claim.than]
    than = {"of": others[0]} if kind == "within" else {"than": others}
    body = {"arm": NAMES[claim.arm], "metric": "probe/x", "margin": abs(below if kind == "higher" else above), **than}
    return parse([{"text": "simulated", kind: body}], NAMES, ["probe/x"])[0]


@pytest.mark.evidence
@pytest.mark.parametrize("name", LAWS)
def test_the_simulation_decides_as_the_report_does(name: str) -> None:
    law, words = LAWS[name], {1: "supported", -1: "refuted", 0: "undecided"}
    claims = claims_at(law.means)
    for n in (3, 8):
        values = law.draw(np.random.default_rng(n), 12, n)
        wide = values + np.linspace(0, 8, ARMS)[:, None] * values.std()
        for each in (values, wide):
            low, high = limits(each, 1, 0, 0.025)
            for study, found in enumerate(outcomes(claims, each)):
                seen = evidence(dict(zip(NAMES, each[study], strict=True)), "probe/x")
                verdicts = judge([written(claim) for claim in claims], seen, ALPHA)
                assert [verdict.outcome for verdict in verdicts] == [words[int(side)] for side in found]
                estimate = seen.mean_difference("a1", "a0", "probe/x")
                assert (estimate.lower(0.025), estimate.upper(0.025)) == pytest.approx((low[study], high[study]))


@pytest.mark.parametrize("name", [name for name in LAWS if name.startswith("normal")])
def test_wrong_verdicts_are_at_most_5_percent_where_seeds_are_normal(name: str) -> None:
    for n in (3, 5, 8, 16):
        shares = law_shares(LAWS[name], n, STUDIES, 1)
        assert max(shares["false supported"], shares["false refuted"]) <= 0.05 + NOISE
        assert 0.95 - NOISE <= shares["95 % covers"] <= 0.975


@pytest.mark.parametrize("size", [2, 8, 30])
def test_families_that_share_a_baseline_err_with_5_percent_at_most(size: int) -> None:
    for far in (False, True):
        for correlation in (0.0, 0.65):
            shares = family_shares(size, far, correlation, 5, STUDIES, 2)
            assert max(shares.values()) <= 0.05 + NOISE


def test_what_is_known_to_fail_fails_in_the_simulation_too() -> None:
    """The laws for which docs/statistics.md warns: without them the table would be no warning."""
    assert law_shares(LAWS["lognormal, standard deviations 15 : 1"], 8, STUDIES, 1)["false supported"] > 0.1
    assert law_shares(LAWS["one arm fails in a fifth of its seeds"], 8, STUDIES, 1)["false supported"] > 0.1


def test_an_engine_that_forgets_holm_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.statistics import shares

    monkeypatch.setattr(shares, "ALPHA", 8 * ALPHA)
    assert law_shares(LAWS["normal"], 5, STUDIES, 1)["false supported"] > 0.1


CASES = {case.name: case for case in cases()}
FEW = 300


@pytest.mark.parametrize("name", CASES)
def test_every_other_kind_of_claim_errs_at_its_edge_with_5_percent(name: str) -> None:
    shares = case_shares(CASES[name], 5, FEW, 1)
    noise = 3 * math.sqrt(0.05 * 0.95 / FEW)
    assert max(shares["false supported"], shares["false refuted"]) <= 0.05 + noise
    assert shares["95 % covers"] >= 0.95 - noise


@pytest.mark.parametrize("name", CASES)
def test_a_kind_of_claim_is_simulated_as_the_report_judges_it(name: str) -> None:
    case, words, generator = CASES[name], {1: "supported", -1: "refuted", 0: "undecided"}, np.random.default_rng(4)
    decided = 0
    for _ in range(12):
        seen = gathered(case.draw(generator, 8), 8)
        side, _ = outcome(case.claim, seen, case.truth)
        assert judge([case.claim], seen, ALPHA)[0].outcome == words[side]
        decided += side != 0
    assert decided < 6, "the truth is at the edge"


def test_an_edge_that_is_not_the_truth_and_a_fit_over_all_points_would_be_seen() -> None:
    """Slopes of .5 against an edge of .4; and a t interval over points, which belong to trials, not over trials."""
    case = CASES["`slope` over 4 points"]
    moved = replace(case, claim=replace(case.claim, bounds=(0.4, math.inf)))
    assert case_shares(moved, 8, FEW, 3)["false supported"] > 0.3

    def repeated(generator: np.random.Generator, n: int) -> dict[tuple[str, str], FloatArray]:
        return {("a", SLOPE): np.repeat(case.draw(generator, n)["a", SLOPE], 4)}

    generator, wrong = np.random.default_rng(3), 0
    for _ in range(FEW):
        wrong += outcome(case.claim, gathered(repeated(generator, 5), 20), case.truth)[0] != 0
    assert wrong / FEW > 0.2


def test_a_population_has_the_means_of_the_committed_seeds(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    rows = [f"s,a{arm},{seed},m,{arm + seed / 10}" for arm in range(8) for seed in range(4)]
    path.write_text("\n".join(["study,arm,seed,metric,value", *rows, "s,,0,look@4,0.05", "s,short,0,m,1"]) + "\n")
    values = committed_values(path, "m")
    assert values[:, 0].tolist() == [0, 3, 4, 5, 6, 7], "the lowest arm, and the five highest that have every seed"
    assert values.shape == (ARMS, 4)


def test_times_of_which_half_are_cut_off_would_err_more_if_they_were_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: what t does where few trials of an arm reach the target."""
    times = CASES["`time_to`, five sixths of an arm censored"]
    assert max(list(case_shares(times, 8, 1000, 2).values())[:2]) <= 0.04
    monkeypatch.setattr(Evidence, "cut_off", lambda *_: [])
    assert max(list(case_shares(times, 8, 1000, 2).values())[:2]) > 0.07


def test_opposed_claims_err_with_the_bound_that_the_page_states() -> None:
    """Statistics of two arms against one baseline correlate by a half, and the bound is largest near .9."""
    bounds = {at: opposed_bound(at / 20, 0.05) for at in range(20)}
    assert max(bounds.values()) < 0.061 and bounds[0] == pytest.approx(0.05, abs=1e-3)
    shares = opposed_shares(2, 0.0, 16, 20_000, 3)
    assert max(shares.values()) == pytest.approx(opposed_bound(0.5), abs=3 * math.sqrt(0.05 / 20_000))
    assert max(opposed_bound(at / 20) for at in range(20)) < 0.05, "of the first look's 4 %"


@pytest.mark.parametrize("table", sorted({*TABLES} - {"laws", "kinds", "committed", "families", "ladders"}))
def test_a_table_can_be_made_alone(table: str) -> None:
    """The five others have tests of their cells."""
    for made in measure([table], 40, 1):
        assert all(len(cell) == max(len(made.seeds), 1) for row in made.rows.values() for cell in row.values())
        assert made.line().startswith(f"| {made.title} |")


def test_ladders_cover_what_was_put_in_and_see_growth_where_there_is_some() -> None:
    """Few ladders; growth of .1 at a noise of .01 is seen in nearly all."""
    growing = ladder_shares(ladder_cases()["4 rungs, growing"], 5, 40, 1)
    assert growing["grows"] > 0.8 and growing["shrinks"] == 0 and growing["covers: slope"] >= 0.85


def test_a_table_is_markdown() -> None:
    table = Simulated("law", (3, 5), {"normal": {"wrong": (0.05, 1.0)}}, 10)
    assert table.line().splitlines() == [
        "| law | wrong |", "|---|---|", "| normal | .050 1.000 |", "", "n = 3, 5; 10 studies a cell."
    ]  # fmt: skip


def test_a_law_that_is_moved_moves_no_share() -> None:
    """Shares do not depend on where the values lie, as long as they are no shares themselves."""
    law = LAWS["normal"]
    moved = Law("moved", law.means + 7, lambda g, s, n: law.draw(g, s, n) + 7)
    assert law_shares(law, 5, 300, 1) == pytest.approx(law_shares(replace(moved), 5, 300, 1))


@pytest.mark.parametrize(
    ("study", "seeds", "share"), [("07_position_encodings/copy", 8, 5 / 8), ("05_kv_sharing/quality", 12, 7 / 10)]
)
def test_with_all_of_its_seeds_a_committed_study_decides_what_its_readme_says(
    study: str, seeds: int, share: float
) -> None:
    folders = committed_studies()
    assert decided_share(folders[study], seeds) == pytest.approx(share)
    assert decided_share(folders[study], seeds - 1) > 0, "over eight choices of seven seeds"


PATHS = dict(paths())


@pytest.mark.parametrize("name", PATHS)
def test_the_error_is_spent_once_on_every_path(name: str) -> None:
    """Where looks are counted some verdict is wrong in at most 5 % of studies; the fault that a rule mends is seen."""
    found = PATHS[name](STUDIES, 1)
    assert found["counted"] <= 0.05 + NOISE
    assert found["not counted"] > 0.055


def test_paths_take_the_errors_that_looks_take() -> None:
    assert errors(4) == pytest.approx([0.04, 0.005, 0.0025, 0.00125])
    assert errors(3, reserved=True) == pytest.approx([0.02, 0.015, 0.0075])
