"""What is wrong with a study's overrides, said by Hydra alone."""

from __future__ import annotations

import re
from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.study.expand import expand
from swapformer.study.override_check import check_overrides
from swapformer.study.spec import Spec, parse


def study(**changes: Any) -> Spec:
    arms = {"rope": ["model/position=rope"], "alibi": ["model/position=alibi"]}
    return parse({"arms": arms, "baseline": "alibi", "overrides": ["task=copy"], "seeds": 2, **changes}, "positions")


WRONG: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "a key of the command line": ({}, ["optim.lrr=1"], "all arms: unknown key 'lrr' in optim; did you mean 'lr'"),
    "an option": ({"overrides": ["task=coppy"]}, [], "all arms: unknown option 'coppy' for task"),
    "an arm's option": (
        {"arms": {"alibi": [], "rope": ["model/position=ropee"]}}, [], "arm 'rope': .*did you mean 'rope'",
    ),
    "of a grid": ({"grid": {"model/size": ["nano", "nanoo"]}}, [], "all arms: .*'nanoo' .*did you mean 'nano'"),
    "the seed": ({}, ["seed=3"], "seeds are set by `seeds`"),
    "what is tuned": ({"tune": {"optim.lr": [0.1, 0.2]}, "metrics": ["val/loss"]}, ["optim.lr=1"], "optim.lr"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_hydra_refuses_is_refused_as_the_expansion_would(wrong: str) -> None:
    changes, extra, message = WRONG[wrong]
    with pytest.raises(UsageError, match=message) as early:
        check_overrides(study(**changes), extra)
    with pytest.raises(UsageError) as late:
        expand(study(**changes), extra)
    told = [re.sub("^(arm '[a-z]+'|all arms): ", "", str(error.value)) for error in (early, late)]
    assert told[0] == told[1]


def test_what_is_right_passes_and_is_composed_alike() -> None:
    check_overrides(study(), ["model.num_layers=2"])
    assert {each.arm for each in expand(study(), ["model.num_layers=2"]).templates} == {"rope", "alibi"}
