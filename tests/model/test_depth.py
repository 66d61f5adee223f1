"""Early exits: what is learned at each, and which places leave where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from configs import small
from swapformer.conformance.subject import Subject, ids, make_tokens
from swapformer.errors import UsageError
from swapformer.model.context import Context
from swapformer.model.topology import Topology
from swapformer.study.config.compose import check, compose
from swapformer.training.assemble import build_model
from swapformer.training.fit import fit

LAYERS = 4
EARLY = ["model/depth=early_exit", f"model.num_layers={LAYERS}"]


def model(exits: list[int], threshold: float | None, *more: str) -> Topology:
    settings = [f"model.depth.exits={exits}", f"model.depth.threshold={'null' if threshold is None else threshold}"]
    return Subject(small([*EARLY, *settings, *more]), "depth").perturbed()


def answered(part: Topology, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return part(inputs, make_tokens(inputs.shape[1]))


def shallow(count: int) -> Topology:
    """The same weights in a model of `count` layers, all of which every place goes through."""
    part: Topology = build_model(small([f"model.num_layers={max(count, 1)}"]), 11).double().eval()
    deep = model([1], None).state_dict()
    part.load_state_dict({name: deep[name] for name in part.state_dict()})
    part.stack.layers = part.stack.layers[:count]
    return part


@pytest.mark.parametrize("exit", [0, 1, 3])
def test_where_all_leave_at_once_the_model_is_its_first_layers(exit: int) -> None:
    """Threshold 0: a model of fewer layers with the same weights, norm and head is the oracle; 0 reads embeddings."""
    part, inputs = model([exit, 3], 0.0), ids()
    logits = answered(part, inputs)
    if exit:
        assert torch.allclose(logits, answered(shallow(exit), inputs), rtol=0, atol=1e-12)
    else:
        normed = functional.layer_norm(
            part.embedding(inputs), (32,), part.stack.final_norm.weight, part.stack.final_norm.bias, 1e-5
        )
        assert torch.allclose(logits, normed @ part.embedding.weight.T, rtol=0, atol=1e-12)
    assert part.layers_passed is not None
    assert part.layers_passed.unique().tolist() == [exit]


def test_where_none_may_leave_it_is_the_whole_model() -> None:
    inputs = ids()
    assert torch.equal(answered(model([1, 2], None), inputs), answered(shallow(LAYERS), inputs))
    assert model([1, 2], None).layers_passed is None


def by_definition(threshold: float, exits: list[int], inputs: Tensor) -> tuple[Tensor, Tensor]:
    """CALM, Schuster et al. 2022, section 3.1, one place at a time: a layer's keys and values are of all states below
    it, those of places that have left included, and a place that has left computes nothing.
    """
    part = model(exits, None)
    blocks: Any = part.stack.layers
    rows, length = inputs.shape
    state = part.embedding(inputs)
    passed = torch.full((rows, length), LAYERS)
    for number in range(LAYERS):
        if number in exits:
            logits = part.stack.final_norm(state) @ part.embedding.weight.T
            for row in range(rows):
                for place in range(length):
                    largest = logits[row, place].softmax(-1).sort(descending=True).values
                    if passed[row, place] == LAYERS and largest[0] - largest[1] >= threshold:
                        passed[row, place] = number
        above = state.clone()
        for row in range(rows):
            for place in range(length):
                if passed[row, place] > number:
                    seen = state[row : row + 1, : place + 1]
                    out = blocks[number](seen, _context(place + 1), next(iter(part.stack.positions.values())))
                    above[row, place] = out[0, place]
        state = above
    return part.stack.final_norm(state) @ part.embedding.weight.T, passed


def _context(length: int) -> Any:
    tokens = make_tokens(length)
    return Context(tokens, tokens, torch.float64)


def test_places_leave_one_by_one_and_others_read_what_they_left() -> None:
    inputs, exits, threshold = ids(2, 9), [1, 2, 3], 0.6
    part = model(exits, threshold)
    logits = answered(part, inputs)
    with torch.no_grad():
        expected, passed = by_definition(threshold, exits, inputs)
    assert torch.allclose(logits, expected, rtol=0, atol=1e-10)
    assert part.layers_passed is not None
    assert torch.equal(part.layers_passed, passed)
    assert len(passed.unique()) > 2, "places leave at different exits"


def test_the_loss_of_every_early_answer_is_added_with_its_weight() -> None:
    """BranchyNet, Teerapittayanon et al. 2016: the sum over exits; each is read as from a model of fewer layers."""
    part, inputs = model([1, 3], 0.5, "model.depth.loss=0.3").train(), ids()
    logits = part(inputs, make_tokens())
    early = [found[""] for found in part.take_early_answers()]
    assert part.take_early_answers() == [], "they are forgotten"
    for number, found in zip((1, 3), early, strict=True):
        assert torch.allclose(found, shallow(number)(inputs, make_tokens()), rtol=0, atol=1e-12)
    assert torch.allclose(logits, shallow(LAYERS)(inputs, make_tokens()), rtol=0, atol=1e-12), "none leaves in training"


def test_a_trial_learns_at_its_exits_and_records_the_loss_at_the_end(tmp_path: Path) -> None:
    """The first step's loss is that of a fixed depth, whose weights start equal; the second one's is not."""
    losses = {}
    for depth in ("fixed", "early_exit"):
        config = compose(["task=copy", "model.d_model=32", "model.num_heads=2", "budget.steps=2", "log_every=1",
                          "schedule.warmup_steps=0", "eval.batches=1", "eval.final_batches=1",
                          f"model/depth={depth}"])  # fmt: skip
        check(config)
        assert fit(config, tmp_path / depth).status == "finished"
        rows = (line.split(",") for line in (tmp_path / depth / "metrics.csv").read_text().splitlines())
        losses[depth] = [float(row[2]) for row in rows if row[1] == "train/loss"]
    assert losses["fixed"][0] == losses["early_exit"][0]
    assert losses["fixed"][1] != losses["early_exit"][1]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["model.depth.exits=[4]"],
            r"numbers of layers from 0 to 3, for the last of 4 layers is the end, but .* \[4\]",
        ),
        (["model.depth.exits=[]"], "numbers of layers"),
        (["model.depth.threshold=1.5"], r"`threshold` must lie in \[0, 1\]"),
        (["model.depth.loss=0"], "`loss` must be above 0"),
        (["model/residual=dense"], "must be one tensor, but Dense keeps the outputs of all earlier layers"),
        (["model/residual=reversible"], "must be one tensor, but Reversible keeps"),
        (["task=sunspots"], "the task asks for values of a position; use model/depth=fixed"),
    ],
)
def test_what_cannot_leave_is_refused_at_composition(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(compose(["task=copy", *EARLY, *overrides]))


def test_the_decoder_of_two_stacks_may_be_left_and_the_encoder_is_read_whole() -> None:
    part = Subject(small([*EARLY, "model/topology=encoder_decoder"]), "depth").perturbed()
    source = ids(2, 7, seed=3)
    with torch.no_grad():
        part(ids(2, 6), make_tokens(6), source, make_tokens(7))
    assert part.layers_passed is not None
    assert part.layers_passed.shape == (2, 6)
