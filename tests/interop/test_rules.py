"""Rules of names and layouts: what is written is read back, and what does not fit is named."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.interop.rules import Rule, for_layers, inside, module, read, write

HEADS, WIDTH = 2, 6
QKV = ("query", "key", "value")


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_fused_by_head_interleaves_the_rows_of_each_head() -> None:
    """BLOOM views its fused output as [heads, 3, head width]: rows of head 0's query, key, value, then head 1's."""
    fused, width = draw(3 * WIDTH, WIDTH), WIDTH // HEADS
    cut = Rule("fused", QKV, blocks=HEADS).cut(fused)
    for h in range(HEADS):
        for j, name in enumerate(QKV):
            start = (3 * h + j) * width
            assert torch.equal(cut[name][h * width : (h + 1) * width], fused[start : start + width])


def test_fused_and_transposed_is_three_column_blocks() -> None:
    """GPT-2's c_attn is [in, 3 · out]: its columns are query, key, value."""
    fused = draw(WIDTH, 3 * WIDTH)
    cut = Rule("fused", QKV, transposed=True).cut(fused)
    for j, name in enumerate(QKV):
        assert torch.equal(cut[name], fused[:, j * WIDTH : (j + 1) * WIDTH].T)


RULES = for_layers(
    [
        *module("wte", "embedding", kinds=("weight",), also=("lm_head",)),
        *module("wpe", "table", kinds=("weight",), skip=2),
        *inside("h", {"attn": ("q", "k"), "out": "out"}, transposed=True),
        *inside("h", {"fused": ("a", "b", "c")}, blocks=2),
        *module("norm", "norm", plus=1.0),
        Rule(None, ("norm.other",)),
        Rule("lm_head.bias", ()),
    ],
    2,
)


def ours() -> dict[str, Tensor]:
    found = {"embedding.weight": draw(5, 4), "table.weight": draw(7, 4), "norm.weight": draw(4), "norm.bias": draw(4)}
    for layer in range(2):
        for name in ("q", "k", "out", "a", "b", "c"):
            found[f"stack.layers.{layer}.{name}.weight"] = draw(4, 3) + layer
            found[f"stack.layers.{layer}.{name}.bias"] = draw(4) + layer
    return {**found, "norm.other": torch.zeros(4)}


def test_what_is_written_is_read_back() -> None:
    mine = ours()
    theirs = write(RULES, mine)
    assert theirs["h.1.attn.weight"].shape == (3, 8) and theirs["h.1.fused.bias"].shape == (12,)
    assert torch.equal(theirs["wpe.weight"][:2], torch.zeros(2, 4))
    back = read(RULES, theirs, {name: weight.shape for name, weight in mine.items()})
    assert back.keys() == mine.keys()
    assert all(torch.allclose(back[name], mine[name], atol=1e-6) for name in mine)


def test_a_tied_copy_may_be_there_and_must_be_equal() -> None:
    mine = ours()
    shapes, theirs = {name: weight.shape for name, weight in mine.items()}, write(RULES, mine)
    theirs["lm_head.weight"] = theirs["wte.weight"].clone()
    assert torch.equal(read(RULES, theirs, shapes)["embedding.weight"], mine["embedding.weight"])
    theirs["lm_head.weight"][0, 0] += 1
    with pytest.raises(UsageError, match=r"wte\.weight and lm_head\.weight must be equal"):
        read(RULES, theirs, shapes)


def test_a_head_of_its_own_is_no_copy() -> None:
    rules = [*RULES, *module("lm_head", "head", kinds=("weight",))]
    mine = {**ours(), "head.weight": draw(5, 4) * 2}
    back = read(rules, write(rules, mine), {name: weight.shape for name, weight in mine.items()})
    assert torch.equal(back["head.weight"], mine["head.weight"])
    assert torch.equal(back["embedding.weight"], mine["embedding.weight"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"h.1.attn.weight": None}, r"1 tensors are missing: h\.1\.attn\.weight"),
        ({"h.2.attn.weight": draw(3, 8)}, r"are unknown to the model: h\.2\.attn\.weight"),
        ({"h.0.out.weight": draw(4, 3)}, r"h\.0\.out\.weight must be \[3, 4\], but it is \[4, 3\]"),
        ({"lm_head.bias": draw(5)}, r"lm_head\.bias must be zero"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Tensor | None], message: str) -> None:
    mine = ours()
    theirs: dict[str, Tensor | None] = {**write(RULES, mine), **change}
    given = {name: weight for name, weight in theirs.items() if weight is not None}
    with pytest.raises(UsageError, match=message):
        read(RULES, given, {name: weight.shape for name, weight in mine.items()})


def test_what_the_format_has_no_place_for_must_be_zero_to_be_written() -> None:
    with pytest.raises(UsageError, match=re.escape("norm.other must be zero")):
        write(RULES, {**ours(), "norm.other": draw(4)})
