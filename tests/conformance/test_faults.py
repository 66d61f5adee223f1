"""Each law can fail: a part with a planted fault is caught, and by the law that the fault breaks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from swapformer.conformance import LAWS, examine

FAULTS = [
    ("ffn", "WrongShape", {}, "builds"),
    ("norm", "FutureNorm", {}, "causality"),
    ("norm", "FutureNorm", {}, "facts_hold"),
    ("pattern", "LeakyPattern", {}, "causality"),
    ("pattern", "LeakyPattern", {}, "facts_hold"),
    ("position", "ReadsOrder", {}, "encodings_see_positions"),
    ("pattern", "CausalByPosition", {}, "encodings_see_positions"),
    ("activation", "FirstOfBatch", {}, "rows_are_apart"),
    ("activation", "AlwaysDropout", {}, "evaluation_is_exact"),
    ("norm", "CoarseNorm", {}, "half_the_digits"),
    ("position", "UnusedParameter", {}, "gradients_everywhere"),
    ("position", "GlobalRandom", {}, "reproducible"),
    ("position", "SeesPadding", {}, "padding_is_invisible"),
    ("position", "SeesDocuments", {}, "documents_are_apart"),
    ("kernel", "IgnoresBias", {}, "kernel_equals_reference"),
    ("kernel", "ForgetsBorders", {}, "blocks_are_enough"),
    ("pattern", "FurtherThanStated", {}, "blocks_are_enough"),
    ("position", "FromTheFirstKey", {}, "blocks_are_enough"),
    ("position", "CountsBetween", {}, "blocks_are_enough"),
    ("normaliser", "CountsAll", {}, "blocks_are_enough"),
    ("position", "CountsKeys", {}, "cache_changes_nothing"),
    ("position", "SharedTable", {"base": 7.0}, "instances_are_apart"),
    ("position", "FalseFact", {}, "facts_hold"),
    ("position", "AddedTwice", {}, "facts_hold"),
    ("attention", "MeanOfAll", {}, "causality"),
    ("attention", "TakesCausal", {}, "facts_hold"),
    ("attention", "Boundless", {}, "facts_hold"),
    ("attention", "ShowsTheFuture", {}, "facts_hold"),
    ("attention", "HidesItsSign", {}, "facts_hold"),
    ("activation", "DeadKnob", {"slope": 0.1}, "no_dead_knob"),
]


def with_fault(base: dict[str, Any], slot: str, fault: str, settings: dict[str, Any]) -> dict[str, Any]:
    config = copy.deepcopy(base)
    config["model"][slot] = {"_target_": f"faults.{fault}", "_partial_": True, "_convert_": "all", **settings}
    return config


@pytest.mark.parametrize(("slot", "fault", "settings", "law"), FAULTS, ids=[f"{f[1]}-{f[3]}" for f in FAULTS])
def test_the_law_catches(base: dict[str, Any], slot: str, fault: str, settings: dict[str, Any], law: str) -> None:
    verdicts = {verdict.law: verdict for verdict in examine(with_fault(base, slot, fault, settings), slot)}
    assert verdicts[law].holds is False, f"{law} did not notice {fault}"


def test_every_law_has_a_planted_fault() -> None:
    assert {law for *_, law in FAULTS} == set(LAWS)


def test_a_weight_without_a_role_cannot_be_initialised(base: dict[str, Any]) -> None:
    found = {verdict.law: verdict for verdict in examine(with_fault(base, "ffn", "NamelessWeight", {}), "ffn")}
    assert found["builds"].holds is False
    assert "every parameter must declare its role, but `stack.layers.0.ffn.secret.weight`" in found["builds"].message
