"""Settings that stand in place of each other: one at most is set, and a layer's own takes the place of the model's."""

from __future__ import annotations

from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.model.activation import GELU
from swapformer.model.dims import Dims
from swapformer.model.ffn import MLP
from swapformer.study.config.compose import compose, shapes
from swapformer.study.expand import expand
from swapformer.study.spec import parse

SMALL = ("task=copy", "task.lengths=[2,4]", "task.eval_lengths=[]", "model.num_layers=2", "model.d_model=16")
WIDE = (*SMALL, "model.ffn.width=32")


def widths(*overrides: str) -> list[int]:
    """The width of the feed-forward layer of each layer, as built."""
    return [shape[0] for name, shape in shapes(compose(overrides)).items() if name.endswith("ffn.up.weight")]


def test_both_at_once_are_refused_with_how_to_unset_either() -> None:
    with pytest.raises(UsageError) as error:
        compose([*WIDE, "model.ffn.expansion=2"])
    assert str(error.value) == (
        "model.ffn.expansion=2 and model.ffn.width=32 exclude each other, so at most one may be set; unset "
        "the other, with model.ffn.width=null or model.ffn.expansion=null"
    )
    assert widths(*WIDE, "model.ffn.width=null", "model.ffn.expansion=2") == [32, 32]


def test_an_arm_that_sets_one_beside_the_studys_other_is_an_error_and_not_left_out() -> None:
    raw = {"baseline": "a", "arms": {"a": [], "b": ["model.ffn.expansion=8"], "c": ["model/ffn=glu"]}, "seeds": 1}
    with pytest.raises(UsageError, match=r"^arm 'b': model.ffn.expansion=8 and .* unset the other, with model.ffn.wid"):
        expand(parse({**raw, "overrides": list(WIDE)}, "both"))


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("[{at: 0, ffn.expansion: 1}]", [16, 32]),
        ("[{at: 0, ffn.expansion: 1}, {at: 0, ffn.width: 24}]", [24, 32]),
        ("[{at: 0, ffn.drop_hidden: true}]", [32, 32]),
        ("[{at: 0, ffn.width: null, ffn.expansion: 3}]", [48, 32]),
        ("[{at: 0, ffn.expansion: null}]", [32, 32]),
    ],
)
def test_a_layers_own_takes_the_place_of_the_models(layers: str, expected: list[int]) -> None:
    assert widths(*WIDE, f"model.layers={layers}") == expected


def test_one_entry_of_the_layers_cannot_set_both() -> None:
    with pytest.raises(UsageError, match="so at most one may be set; take one of them out of the layer"):
        compose([*SMALL, "model.layers=[{at: 1, ffn.expansion: 1, ffn.width: 8}]"])


def test_a_part_that_is_built_by_hand_refuses_both() -> None:
    dims = Dims(d_model=8, num_layers=1, num_heads=2, head_dim=4, max_len=8, vocab_size=5)
    settings: dict[str, Any] = {"activation": GELU(dims), "expansion": 2.0, "width": 8}
    with pytest.raises(ValueError, match=r"an `expansion` or a `width`, but both are set \(2.0 and 8\)"):
        MLP(dims, **settings)
