"""Each law can fail: a part with a planted fault is caught, and by the law that the fault breaks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from swapformer.catalogue import filled
from swapformer.conformance import LAWS, examine
from swapformer.conformance.device import compiles_to_one_graph
from swapformer.conformance.subject import BrokenLaw, Subject
from swapformer.targets import VARIABLE

FAULTS = [
    ("position", "NoPosition", {}, "is_a_part"),
    ("ffn", "Unfinished", {}, "is_a_part"),
    ("position", "SetByPlace", {}, "is_a_part"),
    ("activation", "LeftUnset", {}, "is_a_part"),
    ("activation", "Raises", {}, "runs"),
    ("ffn", "WrongShape", {}, "logits_are_finite"),
    ("norm", "FutureNorm", {}, "causality"),
    ("norm", "FutureNorm", {}, "facts_hold"),
    ("pattern", "LeakyPattern", {}, "causality"),
    ("activation", "LeaksInTraining", {}, "causality"),
    ("activation", "LeaksWithinChunks", {}, "causality"),
    ("kernel", "NoMaskUnderDropout", {}, "causality"),
    ("pattern", "LeakyPattern", {}, "facts_hold"),
    ("topology", "HidesItsSource", {"tie_embeddings": True, "embedding_scale": 1.0}, "causality"),
    ("position", "ReadsOrder", {}, "encodings_see_positions"),
    ("pattern", "CausalByPosition", {}, "encodings_see_positions"),
    ("position", "FalseFact", {}, "shift_invariance"),
    ("pattern", "HiddenAnchor", {}, "shift_invariance"),
    ("pattern", "LastSeesAll", {}, "facts_hold"),
    ("pattern", "FalseAnchor", {}, "shift_invariance"),
    ("attention", "SecretlyOrdered", {}, "permutation_equivariance"),
    ("activation", "FirstOfBatch", {}, "rows_are_independent"),
    ("activation", "MixesRowsInTraining", {}, "rows_are_independent"),
    ("activation", "ByRow", {}, "rows_are_independent"),
    ("position", "SeesPadding", {}, "padding_is_ignored"),
    ("ffn", "CountsPadding", {}, "padding_is_ignored"),
    ("normaliser", "BlindNaN", {}, "padding_is_ignored"),
    ("attention", "AttendsToPadding", {}, "padding_is_ignored"),
    ("position", "SeesDocuments", {}, "documents_are_independent"),
    ("position", "FirstRowsPositions", {}, "documents_are_independent"),
    ("ffn", "RemembersPadding", {}, "calls_are_independent"),
    ("norm", "WritesIntoItsInput", {}, "calls_are_independent"),
    ("attention", "ForgetsTheLast", {}, "cache_changes_nothing"),
    ("attention", "ForgetsPaddingCached", {}, "cache_changes_nothing"),
    ("attention", "CachesRowsSecond", {}, "cache_changes_nothing"),
    ("kernel", "ForgetsBorders", {}, "blocks_equal_the_whole"),
    ("pattern", "FurtherThanStated", {}, "blocks_equal_the_whole"),
    ("position", "FromTheFirstKey", {}, "blocks_equal_the_whole"),
    ("position", "CountsBetween", {}, "blocks_equal_the_whole"),
    ("normaliser", "CountsAll", {}, "blocks_equal_the_whole"),
    ("position", "SharedTable", {"base": 7.0}, "instances_are_independent"),
    ("activation", "AlwaysDropout", {}, "evaluation_is_deterministic"),
    ("ffn", "GlobalRandom", {}, "builds_are_reproducible"),
    ("ffn", "Numbered", {}, "saved_weights_are_whole"),
    ("activation", "PythonsDice", {}, "training_steps_are_repeatable"),
    ("norm", "CoarseNorm", {}, "low_precision_is_near"),
    ("ffn", "OneDtype", {}, "autocast_is_near"),
    ("ffn", "UnusedParameter", {}, "every_parameter_has_a_gradient"),
    ("activation", "HalfGradient", {}, "gradients_are_derivatives"),
    ("kernel", "IgnoresBias", {}, "kernel_equals_reference"),
    ("kernel", "ScalesTwice", {}, "kernel_equals_reference"),
    ("kernel", "IgnoresPositions", {}, "kernel_equals_reference"),
    ("kernel", "DocumentGradient", {}, "kernel_equals_reference"),
    ("kernel", "DropsNothing", {}, "kernels_drop_weights"),
    ("kernel", "DropsOutputs", {}, "kernels_drop_weights"),
    ("kernel", "DropsWithoutGrowing", {}, "kernels_drop_weights"),
    ("position", "HiddenTable", {}, "beyond_max_len"),
    ("position", "ForgottenRotation", {}, "does_something"),
    ("ffn", "IgnoresItsActivation", {}, "used_parts_matter"),
    ("attention", "LosesItsParts", {}, "used_parts_matter"),
    ("position", "AddedTwice", {}, "facts_hold"),
    ("position", "SecretlyAdds", {}, "facts_hold"),
    ("attention", "MeanOfAll", {}, "causality"),
    ("attention", "TakesCausal", {}, "facts_hold"),
    ("attention", "Boundless", {}, "facts_hold"),
    ("attention", "ShowsTheFuture", {}, "facts_hold"),
    ("attention", "HidesItsSign", {}, "facts_hold"),
    ("extension", "FutureGate", {}, "causality"),
    ("extension", "SilentConvolution", {}, "permutation_equivariance"),
    ("extension", "KeepsValues", {}, "calls_are_independent"),
    ("extension", "SilentSharing", {}, "facts_hold"),
    ("extension", "UnstatedPenalty", {}, "facts_hold"),
    ("extension", "GuidanceOfNothing", {}, "does_something"),
    ("extension", "TrainsAndActs", {}, "facts_hold"),
    ("extension", "MasksTheFirst", {"head": 1}, "no_dead_knob"),
    ("activation", "DeadButRandom", {"slope": 0.1}, "no_dead_knob"),
    ("ffn", "SilentLoss", {}, "facts_hold"),
    ("init", "FalseHead", {}, "facts_hold"),
    ("residual", "Forgets", {}, "facts_hold"),
    ("residual", "CountsSilently", {}, "facts_hold"),
    ("norm", "OnlyScales", {}, "facts_hold"),
    ("activation", "DeadKnob", {"slope": 0.1}, "no_dead_knob"),
    ("kernel", "DeadWord", {"backend": "math"}, "no_dead_knob"),
    ("residual", "ReadsHalf", {}, "places_hold"),
    ("ffn", "Untapped", {}, "places_hold"),
    ("ffn", "GoesOnAsBefore", {}, "places_hold"),
    ("attention", "ShowsHeadsFirst", {}, "places_hold"),
    ("activation", "CopiesANumber", {}, "nothing_waits_for_the_device"),
    ("activation", "CopiesANewNumber", {}, "nothing_waits_for_the_device"),
    ("activation", "IndexesByList", {}, "nothing_waits_for_the_device"),
    ("activation", "SortsWhatItSeeks", {}, "nothing_waits_for_the_device"),
    ("activation", "ReadsTheDevice", {}, "nothing_waits_for_the_device"),
    ("activation", "SumsUpFloats", {}, "deterministic_on_cuda"),
    ("activation", "KeepsItsGraph", {}, "nothing_outlives_a_step"),
    ("activation", "RefusesItsWord", {"kind": "soft"}, "words_are_declared"),
    ("activation", "UndeclaredWords", {"kind": "soft"}, "words_are_declared"),
]

NEVER_ALONE = {
    "saved_weights_are_whole": "what is no weight also differs between two models that other laws compare",
    "logits_are_finite": "what is not finite, or has another shape, fails wherever it is run",
}
"""Laws without a fault that breaks nothing else, and why there is none."""


def with_fault(base: dict[str, Any], slot: str, fault: str, settings: dict[str, Any]) -> dict[str, Any]:
    config = copy.deepcopy(base)
    node = {"_target_": f"faults.{fault}", "_partial_": True, "_convert_": "all", **settings}
    config["model"][slot] = filled(slot, "fault", node)
    return config


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faults are parts of a package that is not swapformer's."""
    monkeypatch.setenv(VARIABLE, "faults")


@pytest.fixture(scope="module")
def broken(base: dict[str, Any]) -> Callable[[str, str], frozenset[str]]:
    """The laws that a fault breaks; each fault is examined once."""

    @cache
    def laws(slot: str, fault: str) -> frozenset[str]:
        settings = next(given for own, name, given, _ in FAULTS if (own, name) == (slot, fault))
        verdicts = examine(with_fault(base, slot, fault, settings), slot)
        return frozenset(verdict.law for verdict in verdicts if verdict.holds is False)

    return laws


@pytest.mark.parametrize(("slot", "fault", "settings", "law"), FAULTS, ids=[f"{f[1]}-{f[3]}" for f in FAULTS])
def test_the_law_catches(base: dict[str, Any], slot: str, fault: str, settings: dict[str, Any], law: str) -> None:
    verdicts = examine(with_fault(base, slot, fault, settings), slot, only=law)
    assert [verdict.law for verdict in verdicts if verdict.holds is False][-1:] == [law], f"{law} missed {fault}"


@pytest.mark.evidence
@pytest.mark.parametrize("law", LAWS)
def test_a_fault_breaks_the_law_and_nothing_else(broken: Callable[[str, str], frozenset[str]], law: str) -> None:
    """So that each law is needed: without it that fault would pass."""
    found = {fault: broken(slot, fault) for slot, fault, _, caught in FAULTS if caught == law}
    assert (frozenset({law}) in found.values()) != (law in NEVER_ALONE), found


def test_every_law_has_a_planted_fault() -> None:
    assert {law for *_, law in FAULTS} == set(LAWS)


def test_a_weight_without_a_role_cannot_be_initialised(base: dict[str, Any]) -> None:
    found = {verdict.law: verdict for verdict in examine(with_fault(base, "ffn", "NamelessWeight", {}), "ffn")}
    assert found["runs"].holds is False
    assert "every parameter must declare its role, but `stack.layers.0.ffn.secret.weight`" in found["runs"].message


def test_a_step_that_reads_a_value_does_not_compile_to_one_graph(base: dict[str, Any]) -> None:
    with pytest.raises(BrokenLaw, match="a step must compile to one graph, but torch says"):
        compiles_to_one_graph(Subject(with_fault(base, "activation", "ReadsTheDevice", {}), "activation"))
