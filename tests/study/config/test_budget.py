"""Budgets in steps, tokens and operations: what they come to, and that they are the same trial however asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swapformer.catalogue import option_files
from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.study.config.budget import lines, text
from swapformer.study.config.compose import check, compose, flops_of_a_step
from swapformer.study.config.identity import trial_id
from swapformer.targets import make
from swapformer.training.fit import fit
from swapformer.training.schedule import DecaySchedule, Schedule

SMALL = ["task=copy", "task.lengths=[2,4]", "task.eval_lengths=[]", "task.batch_size=4", "eval.final_batches=1"]
SMALL += ["model.num_layers=1", "model.d_model=16", "schedule.warmup_steps=1"]
PLACES = 4 * (2 * 4 + 1)
"""A batch has 4 rows of at most 4 symbols, a separator and the copy."""


def composed(*overrides: str) -> dict[str, Any]:
    return compose([*SMALL, *overrides])


def test_tokens_are_the_places_of_the_training_batches(tmp_path: Path) -> None:
    config = composed(f"budget.tokens={5 * PLACES + 1}")
    assert config["budget"] == {"steps": 5, "tokens": 5 * PLACES + 1}
    done = fit(config, tmp_path)
    assert (done.steps, done.tokens) == (5, 5 * PLACES)


def test_operations_are_those_of_forward_and_backward() -> None:
    """Per step 6 for each weight of a product and place, and 12·T·D for the two products of attention in a layer."""
    places, width, vocabulary, length = PLACES, 16, 26 + 3, 9
    weights = 12 * width**2 + vocabulary * width
    step = 6 * places * weights + 12 * places * length * width
    config = composed("model/kernel=reference", f"budget.flops={3.9 * step}")
    assert flops_of_a_step(config) == step
    assert config["budget"]["steps"] == 3
    assert text(config["budget"]) == f"budget.flops={3.9 * step:g} is 3 steps"


def test_the_same_steps_are_the_same_trial_however_they_were_asked_for() -> None:
    asked = [composed("budget.steps=1000"), composed(), composed(f"budget.tokens={1000 * PLACES}")]
    assert len({trial_id(config) for config in asked}) == 1
    assert text(asked[0]["budget"]) is None
    for config in asked:
        check(config)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["budget.tokens=1e6", "budget.steps=5"], "one kind, not budget.steps=5 and budget.tokens=1000000.0; set"),
        (["budget.tokens=3"], f"budget.tokens=3 is less than one step, which takes {PLACES} tokens"),
        (["budget.flops=-1"], "`budget.flops` must be a number in (0, 1e30] or null, but it is -1"),
        (["budget.tokens=many"], "`budget.tokens` must be a number in (0, 1e30] or null, but it is 'many'"),
        (["budget.steps=-1"], "`budget.steps` must be a whole number of at least 0 or null, but it is -1"),
        (["budget.flops=1e9", "model.num_heads=3"], "`num_heads` must divide `d_model`"),
        (["budget.flops=1e9", "model/ffn=moe"], "cannot be counted without them"),
    ],
)
def test_what_is_no_budget_is_refused(overrides: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        check(composed(*overrides))
    assert complaint in str(error.value)


@pytest.mark.parametrize("name", option_files(conf_dir())["schedule"])
@pytest.mark.parametrize("steps", [3, 4, 20])
def test_the_longest_warm_up_is_the_last_that_leaves_the_peak_and_a_decay(name: str, steps: int) -> None:
    """Against all rates of all steps, for every warm-up that could be asked for."""

    node = compose([f"schedule={name}"])["schedule"]

    def made(warmup: int) -> Schedule:
        found: Schedule = make({**node, "warmup_steps": warmup}, Schedule)
        return found

    def fine(warmup: int) -> bool:
        factors = [made(warmup).factor(step, steps) for step in range(steps)]
        return max(factors) == 1 and (factors[-1] < 1 or name == "constant")

    longest = made(0).longest_warmup(steps)
    assert longest == max((warmup for warmup in range(steps + 2) if fine(warmup)), default=0)
    assert longest > 0 or name == "wsd", "a decay of the last fifth needs six steps"


@pytest.mark.parametrize(("shape", "power"), [("linear", 1.0), ("sqrt", 0.5)])
def test_a_stable_rate_decays_in_the_last_part_alone(shape: str, power: float) -> None:
    """Against the definition; until it decays, the rate is that of a training of any length."""
    node = compose(["schedule=wsd", f"schedule.shape={shape}", "schedule.warmup_steps=10", "schedule.final=0.25"])
    made: Schedule = make(node["schedule"], Schedule)
    found = [made.factor(step, 110) for step in range(110)]
    assert found[:10] == [(step + 1) / 11 for step in range(10)] and set(found[10:91]) == {1.0}
    assert found[91:] == pytest.approx([1 - 0.75 * ((step - 90) / 20) ** power for step in range(91, 110)])
    assert found[:91] == [made.factor(step, 1010) for step in range(91)]


def test_a_decay_that_comes_late_needs_more_steps() -> None:
    class Late(DecaySchedule):
        def after(self, progress: float) -> float:
            return 1.0 if progress < 0.8 else self.final

    assert Late(warmup_steps=0, final=0.1).longest_warmup(20) == 15
    assert Late(warmup_steps=0, final=0.1).longest_warmup(4) == 0, "no warm-up lets it decay: it is not to blame"
    assert Late(warmup_steps=0, final=1.0).longest_warmup(4) == 3, "nothing decays"


@pytest.mark.parametrize(
    ("overrides", "fits"),
    [
        (["budget.steps=40", "schedule.warmup_steps=50"], ["schedule.warmup_steps=38"]),
        (["budget.steps=40", "schedule.warmup_steps=40", "schedule=constant"], ["schedule.warmup_steps=39"]),
        (["budget.steps=2"], ["schedule.warmup_steps=0"]),
        ([f"budget.tokens={7 * PLACES}", "schedule.warmup_steps=7"], ["schedule.warmup_steps=5"]),
        (["budget.steps=40", "eval.every=41", "checkpoint_every=1000"], ["eval.every=40", "checkpoint_every=40"]),
        (["budget.steps=11", "schedule.warmup_steps=11", "log_every=13"], ["schedule.warmup_steps=9", "log_every=11"]),
    ],
)
def test_what_a_budget_is_too_short_for_is_refused_with_what_fits(overrides: list[str], fits: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        check(composed(*overrides))
    message = str(error.value)
    assert message.endswith(f"add what fits: {' '.join(fits)}.") and "\n" not in message and len(message) <= 300
    assert message.startswith("budget.tokens=252 is 7 steps," if "tokens" in overrides[0] else f"{overrides[0]} is")
    check(composed(*overrides, *fits))
    for one_more in (f"{key}={int(value) + 1}" for key, _, value in (each.partition("=") for each in fits)):
        with pytest.raises(UsageError):
            check(composed(*overrides, *fits, one_more))


def test_a_default_that_a_short_budget_never_reaches_is_said() -> None:
    config = composed("budget.steps=20")
    check(config)
    assert list(lines(config)) == ["eval.every=100 lies beyond the budget of 20 steps: evaluated only after training"]
    assert list(lines(composed("budget.steps=200"))) == []
    assert list(lines(composed(f"budget.tokens={200 * PLACES}"))) == [f"budget.tokens={200 * PLACES} is 200 steps"]
