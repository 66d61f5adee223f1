"""Budgets in steps, tokens and operations: what they come to, and that they are the same trial however asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.study.config.budget import text
from swapformer.study.config.compose import check, compose, flops_of_a_step
from swapformer.study.config.identity import trial_id
from swapformer.training.fit import fit

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
        (["budget.flops=-1"], "`budget.flops` must be a number in (0, 1e30], but it is -1"),
        (["budget.tokens=many"], "`budget.tokens` must be a number in (0, 1e30], but it is 'many'"),
        (["budget.steps=0"], "`budget.steps` must be a whole number of at least 1 or null, but it is 0"),
        (["budget.flops=1e9", "model.num_heads=3"], "`num_heads` must divide `d_model`"),
        (["budget.flops=1e9", "model/ffn=moe"], "cannot be counted without them"),
    ],
)
def test_what_is_no_budget_is_refused(overrides: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        check(composed(*overrides))
    assert complaint in str(error.value)
