"""Traps that no other file tests, and the table of all: every test that TRAPS.md names exists and says where from."""

from __future__ import annotations

import ast
import math
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from configs import small
from swapformer.conformance.subject import Subject, ids, make_tokens
from swapformer.model.context import Context
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import compose
from swapformer.study.config.identity import trial_id
from swapformer.training.assemble import build_model, build_plan, count_parameters

TESTS = Path(__file__).parent
TABLE = TESTS / "TRAPS.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
SOURCE = re.compile(r"\b(19|20)\d\d\b|torch|transformers|entmax|nanoGPT")
"""What the words of a test that names its source hold: a year, or a library."""
SPEAKS = ast.Module | ast.ClassDef | ast.FunctionDef


def tables() -> list[str]:
    """The text of each section of TRAPS.md."""
    return TABLE.read_text(encoding="utf-8").split("\n## ")[1:]


@cache
def words_of(path: str) -> dict[str, str]:
    """Test → what its file, its class and it say of themselves."""
    tree = ast.parse((TESTS.parent / path).read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        around, group = (f"{node.name}::", node.body) if isinstance(node, ast.ClassDef) else ("", [node])
        for item in group:
            if isinstance(item, ast.FunctionDef):
                about = [ast.get_docstring(n) or "" for n in {tree, node, item} if isinstance(n, SPEAKS)]
                found[around + item.name] = "\n".join(about)
    return found


def test_every_trap_has_a_test_that_exists() -> None:
    rows = [line for table in tables() for line in table.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) > 50
    assert [row for row in rows if not NAMED.search(row)] == ["| trap | test |"] * 2
    named = NAMED.findall(TABLE.read_text(encoding="utf-8"))
    assert [f"{path}::{name}" for path, name in named if name not in words_of(path)] == []


def test_a_test_of_a_misreading_says_what_it_follows() -> None:
    silent = [f"{path}::{name}" for path, name in NAMED.findall(tables()[0]) if not SOURCE.search(words_of(path)[name])]
    assert silent == []


def layer_with(position: str) -> tuple[Tensor, Tensor, Context, Position, Tensor]:
    """q, k [1, H, T, E], context, position and the attention's weights for one random input, causal, in float64."""
    layer = build_plan(small([f"model/position={position}", "model/kernel=reference"]), 11).layers[0]
    attention, part = layer.attention().double(), layer.position().double()
    draws = torch.Generator().manual_seed(11)
    x = torch.randn(1, 9, 32, generator=draws, dtype=torch.float64)
    with torch.no_grad():
        for parameter in [
            *attention.parameters(),
            *part.parameters(),
        ]:  # wide enough that a bias inside the root is seen
            parameter.copy_(torch.randn(parameter.shape, generator=draws) / 4)
    tokens = Tokens.of(9)
    context = Context(tokens, tokens, dtype=torch.float64)
    q, k = (project(x).unflatten(-1, (4, 8)).transpose(1, 2) for project in (attention.query, attention.key))
    return q, k, context, part, attention.weights(x, context, part)


@pytest.mark.parametrize("option", ["alibi", "t5", "relative_bias", "kerple", "fire"])
def test_a_bias_stands_outside_the_scaling(option: str) -> None:
    """softmax(q·k/√E + bias): Press et al. 2022, section 3; Raffel et al. 2020, whose model does not scale at all."""
    q, k, context, part, weights = layer_with(option)
    bias = part.bias(context)
    assert bias is not None
    logits = q @ k.mT / math.sqrt(8) + bias
    later = torch.ones(9, 9, dtype=torch.bool).triu(1)
    assert torch.allclose(weights, logits.masked_fill(later, -math.inf).softmax(-1), atol=1e-12)
    inside = (q @ k.mT + bias) / math.sqrt(8)
    assert not torch.allclose(weights, inside.masked_fill(later, -math.inf).softmax(-1), atol=1e-3)


def test_alibi_leaves_no_other_encoding_on() -> None:
    """Press et al. 2022 add nothing at the embeddings; “ALiBi” beside a learned table is a known fault."""
    alibi, none = (build_model(small([f"model/position={name}"]), 11) for name in ("alibi", "none"))
    assert [name for name, _ in alibi.named_parameters()] == [name for name, _ in none.named_parameters()]
    assert [type(part).__name__ for part in alibi.stack.positions.values()] == ["ALiBi"]
    x = torch.randn(1, 5, 32)
    assert all(torch.equal(part.embed(x, Tokens.of(5)), x) for part in alibi.stack.positions.values())


@pytest.mark.parametrize(("heads", "rows_of_a_table"), [(1, 32), (4, 128)])
def test_a_table_for_each_head_grows_with_the_number_of_heads(heads: int, rows_of_a_table: int) -> None:
    """T5's table is [32 buckets, H] (Raffel et al. 2020): there heads cost parameters at fixed d_model."""
    counts = count_parameters(build_model(small(["model/position=t5", f"model.num_heads={heads}"]), 11))
    assert counts["total"] - counts["non_position"] == rows_of_a_table


def attention_by_torch(queries: int, keys: int, *, backend: SDPBackend = SDPBackend.MATH, **given: object) -> Tensor:
    q, k, v = (torch.arange(n * 4.0).view(1, 1, n, 4) / 10 for n in (queries, keys, keys))
    with sdpa_kernel(backend):
        return functional.scaled_dot_product_attention(q, k, v, **given)  # type: ignore[arg-type]


def test_torchs_attention_is_what_our_kernels_guard_against() -> None:
    """torch's scaled_dot_product_attention: aligned top-left, True keeps, no mask beside is_causal, always dropout."""
    last = attention_by_torch(1, 5, is_causal=True)
    assert torch.equal(last, attention_by_torch(1, 5, attn_mask=torch.tensor([[True] + 4 * [False]])))
    assert not torch.allclose(last, attention_by_torch(1, 5))
    with pytest.raises(RuntimeError, match="is_causal"):
        attention_by_torch(5, 5, attn_mask=torch.ones(5, 5).tril().bool(), is_causal=True)
    lower = torch.ones(5, 5).tril().bool()
    assert torch.allclose(attention_by_torch(5, 5, attn_mask=lower), attention_by_torch(5, 5, is_causal=True))
    torch.manual_seed(11)
    assert not torch.equal(attention_by_torch(5, 5, dropout_p=0.5), attention_by_torch(5, 5)), "it knows no evaluation"


@pytest.mark.parametrize("kernel", ["sdpa", "reference"])
def test_padding_under_a_causal_pattern_needs_both_masks(kernel: str) -> None:
    """torch's is_causal takes no mask beside it; a kernel that picked one would see padding or the future."""
    model = Subject(small([f"model/kernel={kernel}"]), "kernel").perturbed()
    padding = torch.zeros(2, 8, dtype=torch.bool)
    padding[0, 2] = True
    inputs, tokens = ids(2, 8), make_tokens(8, padding=padding)
    with torch.no_grad():
        before = model(inputs, tokens)
        hidden = torch.where(padding, (inputs + 1) % 11, inputs)
        later = torch.cat([inputs[:, :5], (inputs[:, 5:] + 1) % 11], 1)
        assert torch.allclose(model(hidden, tokens)[~padding], before[~padding], atol=1e-12)
        assert torch.allclose(model(later, tokens)[:, :5], before[:, :5], atol=1e-12)


def test_a_symbol_that_stands_only_at_padded_places_is_never_learned() -> None:
    """The rows of torch's `padding_idx` stay as they are; here padding is a mask, and no gradient passes it."""
    config = small(["model.topology.tie_embeddings=false"])
    model, symbol = build_model(config, 11).double(), 10
    inputs, padding = torch.arange(8)[None] % 7, torch.zeros(1, 8, dtype=torch.bool)
    padding[0, 6:] = True
    inputs[padding] = symbol
    logits = model(inputs, Tokens.of(8, padding=padding))
    targets = torch.where(padding, -100, inputs)
    functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100).backward()
    grad = model.embedding.weight.grad
    assert grad is not None
    assert not grad[symbol].any()
    assert grad[:6].any(dim=1).all()


AXES = {
    "optim.lr=5e-3": "optim.lr",
    "model.topology.embedding_scale=2.0": "model.topology.embedding_scale",
    "model.position.amplitude=0.5": "model.position.amplitude",
    "model.init.std=0.05": "model.init.std",
}


def leaves(node: object, path: str = "") -> dict[str, object]:
    if isinstance(node, dict):
        return {key: value for name, held in node.items() for key, value in leaves(held, f"{path}.{name}").items()}
    return {path.removeprefix("."): node}


@pytest.mark.parametrize("override", AXES)
def test_what_interacts_with_positions_has_an_axis_of_its_own(override: str) -> None:
    """Learning rate, embedding scale (√d in Vaswani et al. 2017), amplitude and init: each moves alone."""
    base = ["task=copy", "model/position=sinusoidal"]
    plain, moved = compose(base), compose([*base, override])
    one, other = leaves(plain), leaves(moved)
    assert {key for key in one if one[key] != other[key]} == {AXES[override]}
    assert trial_id(plain) != trial_id(moved)
