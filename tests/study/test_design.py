"""Recipes of several changes: the arms and claims that follow, held to a plain enumeration, and what is refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from study import fakes
from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.expand import expand
from swapformer.study.launch.trial import Trial, execute
from swapformer.study.run_study import run_study
from swapformer.study.spec import Spec, parse

CHANGES = {"norm": ["model.scale=a"], "wide": ["model.width=8", "model.height=2"], "fast": ["rate=0.1"]}


def spec(kind: str = "both", **more: Any) -> Spec:
    design = {"kind": kind, "changes": CHANGES, **more.pop("design", {})}
    return parse({"design": design, "seeds": 4, **more}, "recipe")


@pytest.mark.parametrize("kind", ["leave_one_out", "add_one_in", "both"])
def test_arms_are_the_corners_and_edges_of_all_combinations(kind: str) -> None:
    """Of the 2³ subsets of changes: all, none, and those that lack or have one."""
    subsets = [
        {name for name, taken in zip(CHANGES, chosen, strict=True) if taken} for chosen in product([0, 1], repeat=3)
    ]
    wanted = {"recipe": set(CHANGES), "plain": set()}
    for subset in subsets:
        if len(subset) == 2 and kind != "add_one_in":
            (lacking,) = CHANGES.keys() - subset
            wanted[f"without_{lacking}"] = subset
        if len(subset) == 1 and kind != "leave_one_out":
            wanted[f"only_{next(iter(subset))}"] = subset
    found = spec(kind)
    assert {arm: set(given) for arm, given in found.arms.items()} == {
        arm: {override for name in subset for override in CHANGES[name]} for arm, subset in wanted.items()
    }
    assert found.baseline == ("plain" if kind == "add_one_in" else "recipe")
    assert found.axis == ("model.scale", "model.width", "model.height", "rate") and found.claims == ()


def test_claims_are_added_for_each_change_and_the_files_own_are_kept() -> None:
    own = {"text": "plain is worse", "worse": {"arm": "plain", "than": "recipe", "metric": "val/loss", "margin": 0.1}}
    more = {"design": {"metric": "val/loss", "margin": 0.02}, "claims": [own], "arms": {"mine": ["lr=0.5"]}}
    found = spec("both", **more)
    assert len(found.claims) == 3 * 3 + 1 and found.claims[-1] == own and "mine" in found.arms
    assert found.claims[2]["contrast"] == {
        "weights": {"recipe": 1, "without_norm": -1, "only_norm": -1, "plain": 1}, "metric": "val/loss",
        "between": [-0.02, 0.02],
    }  # fmt: skip
    assert [list(claim)[1] for claim in spec("leave_one_out", design=more["design"]).claims] == ["worse"] * 3
    assert [list(claim)[1] for claim in spec("add_one_in", design=more["design"]).claims] == ["better"] * 3


def test_an_interaction_that_was_planted_is_found_and_none_where_there_is_none(tmp_path: Path) -> None:
    """Losses are made: `norm` is worth .5 beside `wide` and .1 alone, `fast` .3 everywhere."""
    composer = fakes.Composer(tmp_path / "journal", tmp_path / "runs")
    planned = expand(spec("both", design={"metric": "val/loss", "margin": 0.05}), (), composer)
    store = Store(tmp_path / "runs")
    noise = np.random.default_rng(3)

    def loss(config: dict[str, Any]) -> float:
        norm, wide = config["model"].get("scale") == "a", config["model"].get("width") == 8
        return 3.0 - 0.1 * norm - 0.2 * wide - 0.4 * (norm and wide) - 0.3 * (config.get("rate") == 0.1)

    def launch(trials: Any) -> None:
        for trial in trials:
            assert isinstance(trial, Trial)
            record = execute(trial, store, fakes.PROVENANCE, fakes.WORK)
            assert record is not None
            store.write(record.but(metrics={"val/loss": loss(trial.config) + float(noise.normal(0, 0.002))}))

    found = run_study(planned, store, fakes.PROVENANCE, lambda progress: launch, quiet=True).report.verdicts
    outcomes = {verdict.claim.text.partition(":")[0].partition(" is worth")[0]: verdict for verdict in found}
    assert outcomes["norm is needed"].outcome == outcomes["norm helps alone"].outcome == "supported"
    assert outcomes["norm"].outcome == "refuted", "worth .5 with the others and .1 alone"
    assert outcomes["norm"].contrasts[0].estimate.value == pytest.approx(-0.4, abs=0.01)
    assert outcomes["fast"].outcome == "supported" and outcomes["wide"].outcome == "refuted"


@pytest.mark.parametrize(
    ("design", "complaint"),
    [
        ([], "`design` must be"),
        (
            {"kind": "all", "changes": CHANGES},
            r"`design.kind` must be one of leave_one_out, add_one_in, both, not 'all'",
        ),
        ({"kind": "both", "changes": {"one": ["lr=1"]}}, "at least two names"),
        ({"kind": "both", "changes": {"a": ["lr=1"], "b": ["lr=2"]}}, "'a' and 'b' both set lr"),
        ({"kind": "both", "changes": {"a": ["lr=1"], "b": []}}, "'b' must change something"),
        ({"kind": "both", "changes": {"a": ["lr=1"], "b": "lr"}}, "the change 'b'"),
        ({"kind": "both", "changes": {"a": ["lr=1"], "b": ["seed=2"]}}, "at least three changes"),
        ({"kind": "both", "changes": CHANGES, "metric": "val/loss"}, "belong together"),
        ({"kind": "both", "changes": CHANGES, "metric": "val/loss", "margin": 0}, "above 0"),
        ({"kind": "both", "changes": CHANGES, "margins": 1}, "unknown key 'margins' in `design`"),
    ],
)
def test_what_is_wrong_with_a_design_is_named(design: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse({"design": design}, "recipe")


def test_an_arm_of_ones_own_may_not_take_the_designs_name() -> None:
    with pytest.raises(UsageError, match="the arm 'plain' is the design's"):
        spec(arms={"plain": []})
