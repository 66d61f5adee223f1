"""Arms that would train the same model: where a study refuses them, where it only says so, and its report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from study import fakes
from swapformer.errors import UsageError
from swapformer.report.page.wording import verdict_text
from swapformer.results.store import Store
from swapformer.study.equal_arms import check_equal_arms, equal_arms
from swapformer.study.expand import expand
from swapformer.study.launch.trial import execute
from swapformer.study.plan import Plan
from swapformer.study.run_study import run_study
from swapformer.study.spec import parse

TINY = (
    *("task=copy", "task.lengths=[2,4]", "task.eval_lengths=[6]", "task.batch_size=4", "budget.steps=3"),
    *("schedule.warmup_steps=0", "model.d_model=16", "model.num_layers=1", "model.num_heads=2"),
)


def claim(arm: str = "b", of: str = "a") -> dict[str, Any]:
    return {"text": "as good", "within": {"arm": arm, "of": of, "metric": "val/loss", "margin": 0.1}}


def real_plan(arms: dict[str, list[str]], **more: Any) -> Plan:
    raw = {"baseline": "a", "arms": arms, "seeds": 2, "overrides": list(TINY), "claims": [claim()], **more}
    return expand(parse(raw, "real"))


def test_the_message_names_both_arms_and_what_does_nothing(store: Store) -> None:
    planned = real_plan({"a": [], "b": ["model.ffn.drop_hidden=true"]})
    with pytest.raises(UsageError) as error:
        check_equal_arms(planned, store)
    assert str(error.value) == (
        "arms 'b' and 'a' would train the same model, so val/loss cannot differ: model.ffn.drop_hidden (true, false) "
        "does nothing here; take one out, or set what makes it act"
    )


def test_of_a_layer_the_message_names_what_it_changes(store: Store) -> None:
    """Not each setting of the slots that it has of its own."""
    planned = real_plan({"a": [], "b": ["model.layers=[{at: 0, ffn.drop_hidden: true}]"]})
    said = "cannot differ: model.layers.0.ffn.drop_hidden (true, false) does nothing here;"
    with pytest.raises(UsageError, match=re.escape(said)):
        check_equal_arms(planned, store)


def test_arms_that_differ_in_how_they_are_computed_are_compared(store: Store) -> None:
    """Kernels are bit-equal at this size: with any other setting they would be refused."""
    arms = {"a": ["model/kernel=sdpa"], "b": ["model/kernel=reference"], "c": ["trainer.precision=bf16-mixed"],
            "d": ["model.layers=[{at: 0, kernel: reference}]"]}  # fmt: skip
    assert not check_equal_arms(real_plan(arms), store)


def test_the_way_of_clipping_is_no_way_of_computing(store: Store) -> None:
    off = "trainer.gradient_clip_val=0"
    planned = real_plan({"a": [off], "b": [off, "trainer.gradient_clip_algorithm=value"]})
    with pytest.raises(UsageError, match=r"trainer\.gradient_clip_algorithm .* does nothing here"):
        check_equal_arms(planned, store)


def plan(place: Path, extra: tuple[str, ...] = (), scale: str | None = None, **changes: Any) -> Plan:
    """With the fake composer, `dead` does nothing unless `alive` is set."""
    raw = {"baseline": "a", "arms": {"a": ["dead=1"], "b": ["dead=2"]}, "seeds": 2, **changes}
    return expand(parse(raw, "fake", scale), extra, fakes.Composer(place / "journal", place / "runs"))


def refused(planned: Plan, place: Path) -> bool:
    try:
        check_equal_arms(planned, Store(place / "runs"))
    except UsageError:
        return True
    return False


def test_a_study_is_refused_before_anything_is_trained_or_stored(tmp_path: Path) -> None:
    def launch(_: Any) -> Any:
        raise AssertionError("nothing may start")

    with pytest.raises(UsageError, match="would train the same model"):
        run_study(plan(tmp_path, claims=[claim()]), Store(tmp_path / "runs"), fakes.PROVENANCE, launch, quiet=True)
    assert not (tmp_path / "runs").exists()


def test_arms_are_compared_with_the_baseline_and_where_a_claim_compares_them(tmp_path: Path) -> None:
    assert refused(plan(tmp_path), tmp_path), "the report compares every arm with the baseline"
    others = {"base": ["heads=4"], "a": ["dead=1"], "b": ["dead=2"]}
    assert not refused(plan(tmp_path, arms=others, baseline="base"), tmp_path), "nobody compares a and b"
    assert refused(plan(tmp_path, arms=others, baseline="base", claims=[claim()]), tmp_path)
    assert refused(
        plan(tmp_path, arms=others, baseline="base", claims=[claim("base", "best"), claim("a", "best")]), tmp_path
    )
    diverges = {"text": "often", "diverges": {"arm": "a", "than": "b", "margin": 0.1}}
    assert refused(plan(tmp_path, arms=others, baseline="base", claims=[diverges]), tmp_path)


def test_at_the_smoke_scale_and_where_it_is_allowed_it_is_a_line(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    smoke = plan(tmp_path, scales={"smoke": {}, "cpu": {}}, scale="smoke")
    assert [line.partition(":")[0] for line in check_equal_arms(smoke, store)] == [
        "arms 'b' and 'a' would train the same model, so val/loss cannot differ"
    ]
    assert refused(plan(tmp_path, scales={"smoke": {}, "cpu": {}}, scale="cpu"), tmp_path)
    allowed = plan(tmp_path, ('allow=["same_model"]',))
    assert len(check_equal_arms(allowed, store)) == 1


def test_arms_that_cannot_be_compared_are_a_line_and_not_taken_for_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fakes.Composer, "same_training", lambda self, one, other: None)
    (line,) = check_equal_arms(plan(tmp_path), Store(tmp_path / "runs"))
    assert line.startswith("arms 'b' and 'a' could not be compared before they train")


def test_arms_that_are_equal_in_some_conditions_alone_are_a_line(tmp_path: Path) -> None:
    """A window may be wider than the sequences of one condition, and not of the next."""
    assert refused(plan(tmp_path, grid={"kind": ["x", "y"]}), tmp_path)
    some = plan(tmp_path, grid={"alive": [0, 1]})
    (line,) = check_equal_arms(some, Store(tmp_path / "runs"))
    assert line.startswith("arms 'b' and 'a' would train the same model with alive=0, so val/loss cannot differ")
    (found,) = equal_arms(some, Store(tmp_path / "runs"))
    assert found.condition == "alive=0"


def test_arms_are_equal_if_every_setting_that_is_tuned_leaves_them_so(tmp_path: Path) -> None:
    assert refused(plan(tmp_path, tune={"lr": [1, 2], "seeds": 1}), tmp_path)
    assert not refused(plan(tmp_path, tune={"alive": [0, 1], "seeds": 1}), tmp_path)


def test_arms_that_have_their_results_are_not_built_again(tmp_path: Path) -> None:
    planned, store = plan(tmp_path, arms={"a": ["heads=1"], "b": ["heads=2"]}), Store(tmp_path / "runs")
    check_equal_arms(planned, store)
    compared = planned.composer.compared  # type: ignore[attr-defined]
    assert compared == 1
    store.prepare()
    for trial in planned.trials:
        execute(trial, store, fakes.PROVENANCE, fakes.WORK)
    check_equal_arms(planned, store)
    assert planned.composer.compared == compared  # type: ignore[attr-defined]


def test_a_report_says_which_arms_trained_the_same_model(tmp_path: Path) -> None:
    """The fake training's loss is that of the seed: an estimate would have no width, and support the claim."""
    store, arms = Store(tmp_path / "runs"), {"a": ["dead=1"], "b": ["dead=2"], "c": ["heads=1", "spread=1"]}

    def start(trials: Any) -> None:
        for trial in trials:
            execute(trial, store, fakes.PROVENANCE, fakes.WORK)

    planned = plan(tmp_path, arms=arms, seeds=8, claims=[claim()], scales={"smoke": {}}, scale="smoke")
    report = run_study(planned, store, fakes.PROVENANCE, lambda _: start, quiet=True).report
    (verdict,) = report.verdicts
    assert verdict.outcome == "undecided" and verdict.needed is None
    assert verdict.notes == ("b and a trained the same model",)
    assert verdict_text(verdict) == (
        "The data do not decide: b and a trained the same model, so their difference is no evidence."
    )
    assert [caveat for caveat in report.caveats if "same model" in caveat] == [
        "b and a trained the same model: dead did nothing. All their losses are equal to the last digit with every "
        "seed, so that they agree is no evidence."
    ]
    again = run_study(planned, store, fakes.PROVENANCE, lambda _: start, quiet=True, report=True)
    assert again.report.as_dict() == report.as_dict()
