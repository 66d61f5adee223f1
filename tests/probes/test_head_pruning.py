"""What heads cost: a model whose losses without heads are known in closed form, and weights that are set to zero."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr
from torch.nn.functional import cross_entropy

from configs import SMALL, small
from copying_heads import HEADS, LENGTH, STRENGTH, Next, copying
from swapformer.conformance.subject import VOCABULARY, Subject, ids
from swapformer.interface import Interface, Readout
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.probes import head_pruning
from swapformer.probes.analysis import rank_correlation
from swapformer.probes.attention_statistics import AttentionStatistics, seen_attention
from swapformer.probes.base import finding_of
from swapformer.probes.head_pruning import HeadPruning, head_importance, loss_without
from swapformer.results.shapes import Curve, Matrix, Table
from swapformer.study.config.compose import compose, task_of
from swapformer.task.base import IGNORE, Batch, EvaluationSet
from swapformer.training.assemble import build_model


def closed_form(copying_heads: int) -> float:
    """−ln softmax of the next symbol: STRENGTH for each copying head; the symbol itself has the logit 1, others 0."""
    right = STRENGTH * copying_heads
    return math.log(math.exp(right) + math.e + VOCABULARY - 2) - right


WHOLE, ONE, NONE = closed_form(2), closed_form(1), closed_form(0)


def measured(model: Topology, **settings: Any) -> Any:
    task: Any = Next()
    probe = HeadPruning(**{"batches": 2, "shares": [30, 50, 75], "orders": 2, "negligible": 0.01} | settings)
    probe.attach({"data_seed": 3})
    with torch.no_grad():
        return probe.measure(model, task)


def require_closed_forms() -> None:
    found = measured(copying()).metrics
    assert found["probe/pruning/largest"] == pytest.approx(ONE - WHOLE, abs=1e-9)
    assert found["probe/pruning/negligible"] == 0.5, "the idle half"
    assert found["probe/pruning/kept"] == pytest.approx(1 - (ONE - WHOLE) / (NONE - WHOLE), abs=1e-9)
    assert found["probe/pruning/compensated"] == pytest.approx(1 - 2 * (ONE - WHOLE) / (NONE - WHOLE), abs=1e-9)
    pruned = [found[f"probe/pruning/importance@{share}"] for share in (30, 50, 75)]
    assert pruned == pytest.approx([0, 0, ONE - WHOLE], abs=1e-9), "1, 2 and 3 of 4 heads, the idle ones first"


def test_two_heads_that_stand_in_for_each_other_are_known_in_closed_form() -> None:
    require_closed_forms()


def test_of_heads_left_out_at_random_each_is_as_likely() -> None:
    """Of the pairs of four heads one in six holds both that copy, four in six one of them."""
    found = measured(copying(), orders=200, shares=[50]).metrics["probe/pruning/random@50"]
    assert found == pytest.approx((NONE - WHOLE) / 6 + (ONE - WHOLE) * 4 / 6, abs=0.15)


def test_shapes_name_every_head_and_end_where_no_head_is_left() -> None:
    shapes = measured(copying()).shapes
    curve, rise, table = shapes["pruning"], shapes["alone/rise"], shapes["attentions"]
    assert isinstance(curve, Curve) and isinstance(rise, Matrix) and isinstance(table, Table)
    assert curve.xs == (0, 30, 50, 75, 100)
    assert {line[0] for line in curve.series.values()} == {0.0}
    assert [line[-1] for line in curve.series.values()] == pytest.approx([NONE - WHOLE] * 2)
    assert rise.rows == ("layer 1",) and rise.values[0] == pytest.approx([ONE - WHOLE] * 2 + [0, 0], abs=1e-9)
    assert shapes["alone/importance"].values[0][2:] == (0, 0)
    assert table.rows[0] == pytest.approx(["layer 1", 2 * (ONE - WHOLE), ONE - WHOLE, NONE - WHOLE], abs=1e-9)


# Any weights, against the same without the taps.


def perturbed(*overrides: str) -> Topology:
    return Subject(small(["model/position=alibi", *overrides]), "position").perturbed()


def sequence_loss(model: Topology, batch: Batch, row: int) -> float:
    logits = model.answers(batch.inputs[row : row + 1], Tokens.of(LENGTH))[""][0]
    return float(cross_entropy(logits, batch.targets[row], ignore_index=IGNORE))


def scale_head(model: Any, layer: int, head: int, factor: float) -> None:
    """Multiply what a head writes, by its columns of the last matrix."""
    model.stack.layers[layer].attention.out.weight[:, 8 * head : 8 * head + 8] *= factor


def test_a_head_that_is_left_out_is_one_whose_columns_are_zero() -> None:
    batches = [Next().train_batch(1, 0)]
    for layer, head in ((0, 2), (1, 0)):
        with torch.no_grad():
            found = loss_without(perturbed(), batches, [(f"blocks.{layer}.attn.hook_z", head)])
            model = perturbed()
            scale_head(model, layer, head, 0.0)
            assert found == pytest.approx(sum(sequence_loss(model, batches[0], row) for row in range(3)) / 3, abs=1e-10)
            assert found != pytest.approx(loss_without(perturbed(), batches, []), abs=1e-6)


def require_finite_differences() -> None:
    """Σ z·∂L/∂z is the derivative of a sequence's loss by a factor on all that the head writes."""
    step, batches = 1e-5, [Next().train_batch(1, 0), Next().train_batch(1, 1)]
    found = head_importance(perturbed(), batches)
    assert len(found) == 2 * HEADS
    for layer, head in ((0, 0), (0, 3), (1, 1)):
        moves = []
        for batch in batches:
            for row in range(3):
                losses = []
                for factor in (1 + step, 1 - step):
                    model = perturbed()
                    with torch.no_grad():
                        scale_head(model, layer, head, factor)
                        losses.append(sequence_loss(model, batch, row))
                moves.append(abs(losses[0] - losses[1]) / (2 * step))
        assert found[f"blocks.{layer}.attn.hook_z", head] == pytest.approx(sum(moves) / 6, rel=1e-5)


def test_importance_is_the_derivative_by_a_factor_on_the_head() -> None:
    require_finite_differences()


class Trained(Next):
    """Validates on what it trains on."""

    tokens = tuple(map(str, range(VOCABULARY)))

    def evaluation(self, split: str) -> list[EvaluationSet]:
        return [EvaluationSet("", 2, lambda index: self.train_batch(3, index))]


def require_costs_of_named_heads() -> None:
    """The head with a name is the best of those that `attention_statistics` shows on the training's batches."""
    task: Any = Trained()
    with torch.no_grad():
        shown = AttentionStatistics(batches=2, tokens=4).measure(perturbed(), task).shapes
    found = measured(perturbed())
    rises = [list(row) for row in found.shapes["alone/rise"].values]
    for name, first in (("previous_token", True), ("prefix_matching", False)):
        rows = shown[f"heads/{name}"].values[:1] if first else shown[f"heads/{name}"].values[1:]
        best = max(range(HEADS), key=lambda head: rows[0][head])
        own = rises[0 if first else 1]
        rest = [rise for head, rise in enumerate(own) if head != best]
        assert found.metrics[f"probe/pruning/{name}"] == pytest.approx(own[best] - sum(rest) / len(rest), abs=1e-12)


def test_heads_that_are_named_cost_more_or_less_than_others_of_their_layer() -> None:
    require_costs_of_named_heads()
    idle = measured(copying()).metrics
    assert idle["probe/pruning/previous_token"] == pytest.approx(-(ONE - WHOLE) * 2 / 3, abs=1e-9), "copiers look at it"
    assert "probe/pruning/prefix_matching" not in idle, "there is no second layer"


def test_the_only_head_of_a_layer_has_no_name() -> None:
    found = measured(perturbed("model.num_heads=1")).metrics
    assert not {"probe/pruning/previous_token", "probe/pruning/prefix_matching"} & set(found)


FAULTS: dict[str, tuple[str, Any, Callable[[], None]]] = {
    "nothing is left out": ("silence", lambda outputs, heads: outputs, require_closed_forms),
    "heads are counted from 1": (
        "silence",
        lambda outputs, heads: outputs.index_fill(2, torch.tensor([(head + 1) % HEADS for head in heads]), 0.0),
        require_closed_forms,
    ),
    "names go to the other layer": (
        "seen_attention",
        lambda *of: ((1 - index, seen) for index, seen in seen_attention(*of)),
        require_costs_of_named_heads,
    ),
    "signs are lost within a sequence": (
        "first_order_cost",
        lambda z, gradient: (z * gradient).abs().sum(dim=(0, 1, 3)),
        require_finite_differences,
    ),
    "signs are lost over sequences": (
        "first_order_cost",
        lambda z, gradient: (z * gradient).sum(dim=(0, 1, 3)).abs(),
        require_finite_differences,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_shows(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, wrong, required = FAULTS[fault]
    monkeypatch.setattr(head_pruning, name, wrong)
    with pytest.raises(AssertionError):
        required()


def test_every_attention_of_an_encoder_decoder_has_its_heads() -> None:
    model = Subject(small(["model/topology=encoder_decoder"]), "position").perturbed()
    source = Batch(inputs=ids(2, 6), targets=ids(2, 6))
    batch = Batch(inputs=ids(2, 5), targets=ids(2, 5, seed=1), source=source)
    found = head_importance(model, [batch])
    assert {site for site, _ in found} == {
        f"{place}.hook_z"
        for layer in (0, 1)
        for place in (f"encoder.{layer}.attn", f"decoder.{layer}.attn", f"decoder.{layer}.cross_attn")
    }
    assert all(value > 0 for value in found.values())


def test_heads_of_a_decoder_beside_an_encoder_have_names() -> None:
    config = compose(["task=reverse", "task.as_source=true", "model/topology=encoder_decoder", *SMALL])
    task = task_of(config)
    model = build_model(config, task.interface).eval()
    with torch.no_grad():
        found = HeadPruning(batches=1, shares=[50], orders=1, negligible=0.01).measure(model, task)
    rises = found.shapes["alone/rise"]
    assert isinstance(rises, Matrix)
    values = dict(zip(rises.rows, rises.values, strict=True))["decoder.0.attn"]
    costs = [value - (sum(values) - value) / (len(values) - 1) for value in values]
    assert found.metrics["probe/pruning/previous_token"] in [pytest.approx(cost) for cost in costs]
    assert "probe/pruning/prefix_matching" in found.metrics


def test_rank_correlation_is_spearmans_and_none_of_what_does_not_vary() -> None:
    first, second = [3.0, 1.0, 2.0, 2.0, 9.0], [0.5, 0.1, 0.7, 0.1, 0.2]
    assert rank_correlation(first, second) == pytest.approx(float(spearmanr(first, second).statistic), abs=1e-12)
    assert rank_correlation([1.0, 1.0], [1.0, 2.0]) is None
    assert rank_correlation([1.0], [1.0]) is None


def test_a_task_without_a_loss_at_each_position_and_wrong_shares_are_refused() -> None:
    task: Any = Next()
    task.interface = Interface(VOCABULARY, readouts={"": Readout(3, "classes", "sequence")})
    probe = HeadPruning(batches=1, shares=[30], orders=1, negligible=0.01)
    with pytest.raises(ValueError, match="Next asks for classes of a sequence; leave out probes=head_pruning"):
        finding_of(probe, copying(), task)
    with pytest.raises(ValueError, match=r"must be ascending per cents, such as \[10, 30\], but it is \[30, 10\]"):
        HeadPruning(batches=1, shares=[30, 10], orders=1, negligible=0.01)
