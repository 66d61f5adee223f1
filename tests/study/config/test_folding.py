"""Which configurations are folded: `trainer.fold` becomes a number, or null with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.study.config.compose import check, compose, environment_class, trial_id
from swapformer.study.config.folding import lines, resolve


def made(*overrides: str) -> dict[str, Any]:
    return compose(["task=copy", *overrides])


def test_seeds_means_as_many_as_the_study_has_and_a_single_one_is_not_folded() -> None:
    many, few, single = made("trainer.fold=seeds"), made("trainer.fold=3"), made("trainer.fold=seeds")
    assert resolve([many], 8) == resolve([few], 8) == resolve([single], 1) == []
    assert [each["trainer"]["fold"] for each in (many, few, single)] == [8, 3, None]
    assert environment_class(many)["folded"] == 8
    assert trial_id(single) == trial_id(made()) != trial_id(few)
    assert trial_id(many) != trial_id(few)


def test_where_one_arm_cannot_be_folded_none_is() -> None:
    arms = [made("trainer.fold=4"), made("trainer.fold=4", "model/norm=batchnorm", "model/pattern=full")]
    reasons = resolve(arms, 4)
    assert reasons == ["BatchNorm cannot be folded (it states folds=False)"]
    assert [arm["trainer"]["fold"] for arm in arms] == [None, None]
    assert "one by one, not folded: BatchNorm cannot be folded" in next(lines(reasons))
    assert not list(lines([]))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("trainer.gradient_checkpointing=true", "gradient_checkpointing"),
        ("trainer.compile=true", "compile"),
        ("model/normaliser=sparsemax", "Sparsemax"),
        ("model.layers=[{at: 0, normaliser: sparsemax}]", "Sparsemax"),
        ("trainer.detect_anomaly=true", "detect_anomaly"),
    ],
)
def test_what_cannot_be_folded_says_why(override: str, said: str) -> None:
    assert said in resolve([made("trainer.fold=2", override)], 2)[0]


def test_what_trains_nothing_is_not_folded() -> None:
    config = made("trainer.fold=2", "budget.steps=0")
    assert resolve([config], 2) == [] and config["trainer"]["fold"] is None


def test_arms_of_which_some_ask_are_not_folded() -> None:
    config = made("trainer.fold=2")
    assert resolve([config, made()], 2) == ["some arms ask to be folded and others do not"]
    assert config["trainer"]["fold"] is None


@pytest.mark.parametrize("value", ["1", "0", "true", "trials"])
def test_a_fold_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match=r"trainer\.fold` must be null, seeds, or the number of trials"):
        check(made(f"trainer.fold={value}"))
