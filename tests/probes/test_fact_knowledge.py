"""What facts rest on: a model that keeps each fact in one unit, known in closed form; weights edited by hand; loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import wide
from swapformer.model.topology import Topology
from swapformer.probes import fact_effects, fact_knowledge
from swapformer.probes.fact_effects import (
    answer_logits,
    attributions,
    fixed,
    log_odds,
    probability,
    rank_one,
    selective_keys,
    wanted_updates,
)
from swapformer.probes.fact_knowledge import FactKnowledge
from swapformer.study.config.compose import compose, task_of
from swapformer.task.recall import FactRecall
from swapformer.training.assemble import build_model

ENTITIES, RELATIONS, VALUES, FORMS = 10, 4, 4, 2
FACTS, WIDTH = ENTITIES * RELATIONS, 24
LOGIT = 8.0
"""Of the right value; all other symbols have 0."""
TASK = [
    *("task=fact_recall", f"task.entities={ENTITIES}", f"task.relations={RELATIONS}", f"task.values={VALUES}"),
    *(
        f"task.forms={FORMS}",
        "model.num_layers=1",
        f"model.d_model={WIDTH}",
        "model.num_heads=1",
        "model/position=none",
    ),
    *("model/norm=none", "model/activation=relu", "model.topology.tie_embeddings=false"),
]
UNITS = f"model.ffn.width={FACTS}"
HIDDEN, OUT = "blocks.0.mlp.hook_post", "blocks.0.hook_mlp_out"


def subject(*overrides: str) -> tuple[Topology, FactRecall]:
    config = compose([*TASK, *overrides])
    task = task_of(config)
    assert isinstance(task, FactRecall)
    model: Topology = wide(build_model(config, task.interface)).eval()
    return model.requires_grad_(False), task


def memory() -> tuple[Topology, FactRecall]:
    """A layer whose attention sums the question's symbols at `=`, where one unit for each fact writes its value.

    A symbol is a direction of the stream; unit (e, r) is relu(e + r − 1.5), which is ½ at `=` for its fact alone.
    """
    model, task = subject(UNITS)
    named: Any = dict(model.named_parameters())
    with torch.no_grad():
        for parameter in named.values():
            parameter.zero_()
        embedding = next(each for name, each in named.items() if "embedding" in name)
        readout = next(each for each in named.values() if each.shape == embedding.shape and each is not embedding)
        asked = FORMS + ENTITIES + RELATIONS
        embedding[:asked, :asked] = torch.eye(asked, dtype=torch.float64)
        first = task.separator_token + 1
        values = slice(asked, asked + VALUES)
        readout[first : first + VALUES, values] = torch.eye(VALUES, dtype=torch.float64)
        layers: Any = model.stack.layers
        layer = layers[0]
        layer.attention.value.weight.copy_(torch.eye(WIDTH, dtype=torch.float64))
        layer.attention.out.weight.copy_(4 * torch.eye(WIDTH, dtype=torch.float64))
        for entity in range(ENTITIES):
            for relation in range(RELATIONS):
                unit = entity * RELATIONS + relation
                layer.ffn.up.weight[unit, FORMS + entity] = 1.0
                layer.ffn.up.weight[unit, FORMS + ENTITIES + relation] = 1.0
                layer.ffn.up.bias[unit] = -1.5
                layer.ffn.down.weight[asked + int(task.facts[entity, relation]), unit] = 2 * LOGIT
    return model, task


def measured(model: Topology, task: FactRecall, **settings: Any) -> dict[str, float]:
    given = {"facts": 8, "units": 1, "path": 8, "factor": 2.0, "seed": 0} | settings
    with torch.no_grad():
        found = FactKnowledge(**given).measure(model, task).metrics
    return {name.removeprefix("probe/knowledge/"): value for name, value in found.items()}


def require_closed_forms() -> None:
    model, task = memory()
    found = measured(model, task)
    right = math.exp(LOGIT) / (math.exp(LOGIT) + task.vocab_size - 1)
    lost = right - 1 / task.vocab_size
    assert found["known"] == found["known_paraphrase"] == 1
    assert found["units/own"] == pytest.approx(lost, abs=1e-6)
    assert found["units/paraphrase"] == pytest.approx(lost, abs=1e-6)
    assert found["units/others"] == pytest.approx(0, abs=1e-9) == found["random/own"]
    assert found["amplify/own"] == pytest.approx(LOGIT, abs=1e-6)
    assert found["amplify/others"] == pytest.approx(0, abs=1e-9)
    assert found["heads/own"] == pytest.approx(lost, abs=1e-6) == found["heads/others"]
    assert found["shared_entity"] == found["shared_relation"] == found["shared_neither"] == 0
    assert found["traced/mlp_by_layer@1"] == pytest.approx(1, abs=1e-9) == found["traced/attention_by_layer@1"]
    assert found["edit/success_by_layer@1"] == found["edit/paraphrase_by_layer@1"] == 1
    assert found["edit/others_by_layer@1"] == 0


def test_a_model_with_a_unit_for_each_fact_is_known_in_closed_form() -> None:
    require_closed_forms()


@pytest.mark.parametrize("fault", ["least_important", "other_place", "unscaled"])
def test_a_planted_fault_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def least_important(*args: Any) -> dict[str, Tensor]:
        return {site: -found for site, found in attributions(*args).items()}

    def other_place(model: Topology, inputs: Tensor, functions: Any = None) -> Tensor:
        return answer_logits(model, inputs.roll(1, 1), functions)

    planted: dict[str, tuple[str, Any]] = {
        "least_important": ("attributions", least_important),
        "other_place": ("answer_logits", other_place),
        "unscaled": ("scaled_units", lambda factors: {}),
    }
    monkeypatch.setattr(fact_knowledge, *planted[fault])
    with pytest.raises(AssertionError):
        require_closed_forms()


def test_attributions_add_up_to_what_the_layer_gives() -> None:
    """The integral along a·α of the gradient is p at α = 1 less p at α = 0, for each question."""
    model, task = subject("model/activation=gelu", "model.num_layers=2", UNITS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
            )
        inputs, answers = task.every_fact(0)
        whole = probability(answer_logits(model, inputs), answers)
        for site, found in attributions(model, inputs, answers, [HIDDEN, "blocks.1.mlp.hook_post"], 200).items():
            nothing = answer_logits(model, inputs, {site: torch.zeros_like})
            assert found.sum(1) == pytest.approx(whole - probability(nothing, answers), abs=1e-4)
            assert float((whole - probability(nothing, answers)).abs().max()) > 1e-3, "the layer does something"


def test_an_edit_is_that_of_the_matrix() -> None:
    """W₂ + v kᵀ in the weights, and the same through the taps."""
    model, task = subject(UNITS)
    inputs, _ = task.every_fact(1)
    key, value = torch.randn(FACTS, dtype=torch.float64), torch.randn(WIDTH, dtype=torch.float64)
    through_taps = answer_logits(model, inputs, rank_one(HIDDEN, OUT, key[None], value[None]))
    layers: Any = model.stack.layers
    before = answer_logits(model, inputs)
    with torch.no_grad():
        layers[0].ffn.down.weight += value[:, None] * key[None]
    torch.testing.assert_close(through_taps, answer_logits(model, inputs), rtol=1e-9, atol=1e-9)
    assert float((through_taps - before).abs().max()) > 1e-3


def test_selective_keys_answer_to_their_own_activation_and_least_to_others() -> None:
    """Of all u with u·k = 1 they have the smallest Σ (u·a)²: a step along any d with d·k = 0 makes it larger."""
    generator = torch.Generator().manual_seed(0)
    others = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    keys = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    found = selective_keys(keys, others, 1e-12)
    assert (found * keys).sum(1) == pytest.approx(torch.ones(3, dtype=torch.float64))
    for u, k in zip(found, keys, strict=True):
        for _ in range(5):
            d = torch.randn(6, generator=generator, dtype=torch.float64)
            d -= k * (d @ k) / (k @ k)
            assert (others @ (u + 1e-3 * d)).square().sum() > (others @ u).square().sum()
    ridged = selective_keys(keys, others, 1e9)
    assert ridged == pytest.approx(keys / keys.square().sum(1, keepdim=True), rel=1e-6), "all directions alike"


def test_a_wanted_update_makes_the_answer_that_is_asked_for() -> None:
    model, task = memory()
    inputs, answers = task.every_fact(0)
    first = task.separator_token + 1
    wanted = first + (answers - first + 1) % VALUES
    added = wanted_updates(model, inputs, wanted, OUT, 0.9, 400, 0.1)

    def add(update: Tensor) -> Tensor:
        out = update.clone()
        out[:, -1] += added
        return out

    p = probability(answer_logits(model, inputs, {OUT: add}), wanted)
    assert float(p.min()) >= 0.9 and float(p.max()) < 0.999, "it stops where that is reached"


def test_log_odds_and_fixed_values() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64)
    p = math.exp(1) / (1 + math.exp(1) + math.exp(2))
    assert float(log_odds(logits, torch.tensor([1]))) == pytest.approx(math.log(p / (1 - p)))
    model, task = memory()
    inputs, answers = task.every_fact(0)
    with torch.no_grad(), fact_effects.taps.record(model, OUT) as seen:
        whole = answer_logits(model, inputs)
        clean = dict(seen)
    restored = answer_logits(model, inputs.roll(RELATIONS, 0), fixed(clean))
    assert torch.equal(restored.argmax(-1), answers) and torch.equal(whole.argmax(-1), answers)


def test_random_units_fire_and_are_not_the_facts_own() -> None:
    """Behind relu some units never fire at a question; as many are drawn as surely are left that do."""
    model, task = subject("model/activation=relu", UNITS)
    facts = fact_effects.Facts(model, task)
    drawn = torch.tensor([0, 3, 5])
    with torch.no_grad(), fact_effects.taps.record(model, HIDDEN) as seen:
        answer_logits(model, facts.inputs[0])
        fires = (seen[HIDDEN] != 0).any(1)
    own = fires.double().topk(2).indices
    assert int(fires[drawn].sum(1).min()) >= 4 and not bool(fires[drawn].all())
    probe = FactKnowledge(facts=4, units=2, path=2, factor=2.0, seed=1)
    for seed in range(20):
        with torch.no_grad():
            found = probe._random_units(facts, [HIDDEN], own, drawn, torch.Generator().manual_seed(seed))
        assert bool(fires[drawn].gather(1, found).all())
        assert not (found[:, :, None] == own[drawn][:, None, :]).any()


def test_a_model_without_feed_forward_layers_has_heads_alone() -> None:
    model, task = subject("model/ffn=none")
    found = measured(model, task)
    assert not [name for name in found if name.startswith(("units", "edit", "traced/mlp"))]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["task=copy"], "task=fact_recall"),
        ([*TASK[:5], "model/ffn=moe"], "those of chosen experts"),
        ([*TASK[:5], "model/placement=sandwich"], "a norm behind it would change; use model/placement=pre"),
    ],
)
def test_what_cannot_be_asked_is_refused(overrides: list[str], words: str) -> None:
    config = compose([*overrides, "model.num_layers=1", "model.d_model=16", "model.num_heads=1"])
    task = task_of(config)
    problem = FactKnowledge(facts=1, units=1, path=1, factor=2.0, seed=0).unsuited(
        build_model(config, task.interface), task
    )
    assert problem is not None and words in problem


def test_every_fact_is_asked_as_the_training_asks_it() -> None:
    task = task_of(compose(["task=fact_recall"]))
    assert isinstance(task, FactRecall)
    asked = {
        tuple(row): int(answer)
        for form in range(4)
        for row, answer in zip(task.every_fact(form)[0].tolist(), task.every_fact(form)[1], strict=True)
    }
    batch = task.train_batch(0, 0)
    for row, target in zip(batch.inputs.tolist(), batch.targets[:, -1].tolist(), strict=True):
        assert asked[tuple(row)] == target
