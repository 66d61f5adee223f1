"""Every part found by glob obeys every law."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from configs import every_part, small
from swapformer.conformance import examine
from swapformer.conformance.device import compiles_to_one_graph
from swapformer.conformance.differences import differ
from swapformer.conformance.subject import Subject, run

PARTS = every_part()


def test_the_glob_finds_the_parts() -> None:
    assert len(PARTS) > 30
    assert ("position", "alibi") in PARTS


@pytest.mark.parametrize(("slot", "option"), PARTS, ids=[f"{slot}-{option}" for slot, option in PARTS])
def test_every_law_holds_for(slot: str, option: str) -> None:
    """Among them that every query sees a key, without which BigBird (Zaheer et al. 2020) is no attention."""
    config = small([f"model/{slot}={option}"])
    broken = [f"{verdict.law}: {verdict.message}" for verdict in examine(config, slot) if verdict.holds is False]
    assert not broken, "\n".join(broken)


@pytest.mark.evidence
@pytest.mark.parametrize(("slot", "option"), PARTS, ids=[f"{slot}-{option}" for slot, option in PARTS])
def test_a_step_compiles_to_one_graph(slot: str, option: str) -> None:
    compiles_to_one_graph(Subject.of(small([f"model/{slot}={option}"]), slot))


@pytest.mark.parametrize(("slot", "option"), [part for part in PARTS if part[0] not in ("init", "topology")])
def test_weights_shared_with_the_baseline_start_bit_equal(slot: str, option: str, base: dict[str, Any]) -> None:
    mine, theirs = (
        Subject.of(config, slot).build().state_dict() for config in (small([f"model/{slot}={option}"]), base)
    )
    shared = [name for name in mine if name in theirs and mine[name].shape == theirs[name].shape]
    assert "embedding.weight" in shared
    assert all(torch.equal(mine[name], theirs[name]) for name in shared)


@pytest.mark.parametrize(
    "slot", ["position", "norm", "placement", "residual", "block", "ffn", "activation", "pattern", "init"]
)
def test_two_options_of_a_slot_never_compute_the_same(slot: str) -> None:
    options = [option for name, option in PARTS if name == slot]
    inputs = torch.arange(48).reshape(2, 24) % 11
    signatures, subjects = {}, {}
    for option in options:
        subjects[option] = subject = Subject(small([f"model/{slot}={option}"]), slot)
        signatures[option] = run(subject.build() if slot == "init" else subject.perturbed(), inputs)
    for first in options:
        for second in options:
            alike = first < second and torch.equal(signatures[first], signatures[second])
            assert not alike or differ(subjects[first], subjects[second]), (first, second)
