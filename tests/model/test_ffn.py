"""Feed-forward layers and activations: shapes, sparsity, experts and their balance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from configs import small, wide
from swapformer.model.activation import (
    GELU,
    Activation,
    Identity,
    LeakyReLU,
    Mish,
    ReLU,
    ReLU2,
    Sigmoid,
    SiLU,
    Tanh,
)
from swapformer.model.dims import Dims
from swapformer.model.ffn import FFN, GLU, MLP, BlockSparse, LowRank, MoE, TopK
from swapformer.model.topology import take_auxiliary_loss
from swapformer.training.assemble import build_model, count_parameters

DIMS = Dims(d_model=8, num_layers=1, num_heads=2, head_dim=4, max_len=8, vocab_size=5)
EXPERTS: dict[str, Any] = {"experts": 4, "balance": 0.5, "expansion": 2.0}


def stream(seed: int = 2) -> Tensor:
    return torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def agree(one: Tensor, other: Tensor, leaves: list[Tensor], bound: float = 1e-10) -> float:
    probe = torch.randn(one.shape, generator=torch.Generator().manual_seed(3), dtype=one.dtype)
    mine, theirs = (torch.autograd.grad((y * probe).sum(), leaves) for y in (one, other))
    gaps = [
        ((a - b).abs().max() / (1 + b.abs().max())).item() for a, b in zip((one, *mine), (other, *theirs), strict=True)
    ]
    assert max(gaps) <= bound
    return max(gaps)


@pytest.mark.parametrize(
    ("make", "definition"),
    [
        (ReLU2, lambda x: x * x * (x > 0)),
        (partial(LeakyReLU, slope=0.1), lambda x: x * (x > 0) + 0.1 * x * (x <= 0)),
        (Mish, functional.mish),
        (Tanh, lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())),
        (Sigmoid, lambda x: 1 / (1 + (-x).exp())),
        (Identity, lambda x: x * 1),
    ],
)
def test_activations_and_their_derivatives(
    make: Callable[[Dims], Activation], definition: Callable[[Tensor], Tensor]
) -> None:
    x = torch.linspace(-5, 5, 101, dtype=torch.float64).requires_grad_()
    agree(make(DIMS)(x), definition(x), [x])


@pytest.mark.parametrize(
    ("activation", "gate"), [(Identity, lambda z: z), (Sigmoid, torch.sigmoid), (SiLU, functional.silu)]
)
def test_bilinear_glu_and_swiglu_of_shazeer(activation: Any, gate: Callable[[Tensor], Tensor]) -> None:
    """Shazeer 2020, eqs. 5 and 6, without biases."""
    dims = Dims(d_model=8, num_layers=1, num_heads=2, head_dim=4, max_len=8, vocab_size=5, bias=False)
    part, x = wide(GLU(dims, activation=activation(dims), expansion=3.0)), stream().requires_grad_()
    expected = (gate(x @ part.gate.weight.T) * (x @ part.up.weight.T)) @ part.down.weight.T
    agree(part(x), expected, [x, *part.parameters()])
    assert sum(p.numel() for p in part.parameters()) == 3 * 8 * 16


def test_clipping_bounds_the_activations() -> None:
    x = stream() * 10
    relu6 = wide(MLP(DIMS, activation=ReLU(DIMS), expansion=2.0, clip=6.0))
    expected = functional.linear(functional.relu6(relu6.up(x)), relu6.down.weight, relu6.down.bias)
    assert torch.equal(relu6(x), expected)


@pytest.mark.parametrize(("hidden", "output"), [(True, False), (False, True), (True, True), (False, False)])
def test_dropout_falls_before_or_after_the_second_matrix(hidden: bool, output: bool) -> None:
    dims = Dims(d_model=8, num_layers=1, num_heads=2, head_dim=4, max_len=8, vocab_size=5, dropout=0.5)
    part = wide(MLP(dims, activation=Identity(dims), expansion=4.0, drop_hidden=hidden, drop_output=output))
    seen: list[Tensor] = []
    part.down.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    torch.manual_seed(0)
    out = part(stream())
    assert bool((seen[0] == 0).any()) is hidden
    assert bool((out == 0).any()) is output
    part.eval()(stream())
    assert not (seen[1] == 0).any()


def test_low_rank_is_two_products_with_fewer_weights() -> None:
    part, x = wide(LowRank(DIMS, activation=GELU(DIMS), expansion=4.0, rank=3)), stream().requires_grad_()
    w1 = part.up[1].weight @ part.up[0].weight
    w2 = part.down[1].weight @ part.down[0].weight
    expected = functional.linear(functional.gelu(functional.linear(x, w1, part.up[1].bias)), w2, part.down[1].bias)
    agree(part(x), expected, [x])
    assert torch.linalg.matrix_rank(w1) == 3
    assert sum(p.numel() for p in part.parameters() if p.ndim == 2) == 2 * 3 * (8 + 32)


def test_block_sparse_is_block_diagonal_and_every_input_reaches_every_output() -> None:
    part, x = wide(BlockSparse(DIMS, activation=Tanh(DIMS), expansion=4.0, blocks=4)), stream().requires_grad_()
    w1, w2 = torch.block_diag(*part.up.weight), torch.block_diag(*part.down.weight)
    shuffle = torch.tensor([block * 8 + unit for unit in range(8) for block in range(4)])
    hidden = torch.tanh(functional.linear(x, w1, part.up.bias.flatten()))[..., shuffle]
    agree(part(x), functional.linear(hidden, w2, part.down.bias.flatten()), [x])
    assert sum(p.numel() for p in part.parameters() if p.ndim == 3) == 2 * 8 * 32 // 4
    reach = torch.autograd.functional.jacobian(lambda v: part(v[None, None])[0, 0], stream()[0, 0])
    assert bool((reach != 0).all())
    with pytest.raises(ValueError, match="`blocks` must divide d_model and the feed-forward width, but 3"):
        BlockSparse(DIMS, activation=Tanh(DIMS), expansion=4.0, blocks=3)


def test_topk_keeps_the_largest_activations_of_each_place() -> None:
    """Li et al. 2023, section 4: at most k of the F activations of a token are not zero."""
    part, x = wide(TopK(DIMS, activation=GELU(DIMS), expansion=4.0, fraction=0.125)), stream().requires_grad_()
    hidden = functional.gelu(part.up(x))
    kept = torch.zeros_like(hidden).scatter(-1, hidden.topk(4).indices, 1.0)
    agree(part(x), part.down(hidden * kept), [x, *part.parameters()])
    whole = TopK(DIMS, activation=GELU(DIMS), expansion=4.0, fraction=1.0).double()
    whole.load_state_dict(part.state_dict())
    assert torch.equal(whole(x), part.down(hidden))


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_a_mixture_is_the_gated_sum_of_its_chosen_experts(top_k: int) -> None:
    """By definition, one place and one expert at a time."""
    part, x = wide(MoE(DIMS, activation=GELU(DIMS), top_k=top_k, **EXPERTS)).eval(), stream().requires_grad_()
    rows = []
    for token in x.flatten(0, 1):
        p = (part.router.weight @ token).softmax(-1)
        chosen = p.argsort(descending=True)[:top_k]
        total = p[chosen].sum() if top_k > 1 else 1.0
        row = torch.zeros(8, dtype=torch.float64)
        for e in chosen.tolist():
            hidden = functional.gelu(part.up.weight[e] @ token + part.up.bias[e])
            row = row + p[e] / total * (part.down.weight[e] @ hidden + part.down.bias[e])
        rows.append(row)
    agree(part(x), torch.stack(rows).view_as(x), [x, *part.parameters()])


def test_a_router_chooses_in_float32_under_autocast() -> None:
    """Switch's selective precision (Fedus et al. 2021, section 2.4): in bfloat16 many experts would be equal."""
    part = MoE(DIMS, activation=GELU(DIMS), top_k=2, **EXPERTS)
    x, seen = stream().float(), list[Tensor]()
    part.tap = lambda place, value: (seen.append(value), value)[1] if "weights" in place else value  # type: ignore
    with torch.no_grad():
        nn.init.normal_(part.router.weight)
        part(x)
        with torch.autocast("cpu", torch.bfloat16):
            part(x)
    assert torch.equal(seen[0], seen[1]) and seen[0].dtype == torch.float32


def test_the_balancing_loss_is_one_when_even_and_ignores_padding() -> None:
    part = MoE(DIMS, activation=GELU(DIMS), top_k=1, **EXPERTS)
    even = functional.one_hot(torch.arange(8).view(2, 4) % 4, 4).double()
    assert part.imbalance(even, even.argmax(-1, keepdim=True), None).item() == pytest.approx(1)
    one = functional.one_hot(torch.zeros(2, 4, dtype=torch.long), 4).double()
    assert part.imbalance(one, one.argmax(-1, keepdim=True), None).item() == pytest.approx(4)
    for rows in (1, 2):
        padding = torch.tensor([[False, True, True, True]]).expand(rows, -1)
        assert part.imbalance(even, even.argmax(-1, keepdim=True), padding).item() == pytest.approx(4)


def test_the_balancing_loss_is_left_in_training_taken_once_and_reaches_the_router() -> None:
    model = build_model(small(["model/ffn=switch", "model.ffn.balance=0.5"]), 7)
    ids = torch.arange(12)[None] % 7
    model.eval()(ids)
    assert take_auxiliary_loss(model) is None
    model.train()(ids)
    loss = take_auxiliary_loss(model)
    assert loss is not None
    assert loss.item() >= 0.5 * 2 * 0.99, "two layers, each at least 1 · balance"
    assert take_auxiliary_loss(model) is None
    loss.backward()
    assert all(bool(layer.ffn.router.weight.grad.any()) for layer in model.stack.layers)
    assert model.stack.layers[0].attention.out.weight.grad is not None


def test_a_token_uses_its_share_of_the_experts() -> None:
    """Switch (Fedus et al. 2021, section 2): parameters grow with the experts, those that one token uses do not."""
    counts = {
        n: count_parameters(build_model(small(["model/ffn=switch", f"model.ffn.experts={n}"]), 7)) for n in (2, 8)
    }
    expert = 2 * (2 * 32 * 128 + 128 + 32)
    assert counts[8]["total"] - counts[2]["total"] == 6 * expert + 2 * 6 * 32
    assert counts[8]["active"] - counts[2]["active"] == 2 * 6 * 32, "only the router grew"
    dense = count_parameters(build_model(small(["model/ffn=mlp"]), 7))
    assert dense["active"] == dense["total"] == counts[8]["active"] - 2 * 8 * 32


def test_a_choice_of_more_experts_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`top_k` must be in 1 … `experts`, but it is 5 of 4"):
        MoE(DIMS, activation=GELU(DIMS), top_k=5, **EXPERTS)


def test_without_a_feed_forward_layer_there_is_one_branch_and_one_norm() -> None:
    model = build_model(small(["model/ffn=none"]), 7)
    assert [len(layer.block.sublayers) for layer in model.stack.layers] == [1, 1]
    assert not any("ffn" in name for name, _ in model.named_parameters())


def oracle_of_switch() -> tuple[FFN, nn.Module, dict[str, list[Tensor]]]:
    """Switch in transformers, its router in float64 and no expert full."""
    theirs = pytest.importorskip("transformers.models.switch_transformers.modeling_switch_transformers")
    config = pytest.importorskip("transformers").SwitchTransformersConfig(
        hidden_size=8,
        d_model=8,
        d_ff=16,
        num_experts=4,
        expert_capacity=99,
        dropout_rate=0.0,
        router_jitter_noise=0.0,
        dense_act_fn="relu",
    )
    dims = Dims(d_model=8, num_layers=1, num_heads=2, head_dim=4, max_len=8, vocab_size=5, bias=False)
    part, other = wide(MoE(dims, activation=ReLU(dims), top_k=1, **EXPERTS)), theirs.SwitchTransformersSparseMLP(config)
    other.double().eval()
    other.router.dtype = torch.float64  # the configuration knows no wider one than float32
    with torch.no_grad():
        other.router.classifier.weight.copy_(part.router.weight)
        for e in range(4):
            other.experts[f"expert_{e}"].wi.weight.copy_(part.up.weight[e])
            other.experts[f"expert_{e}"].wo.weight.copy_(part.down.weight[e])
    experts = [other.experts[f"expert_{e}"] for e in range(4)]
    names = {"router": [other.router.classifier.weight], "up": [e.wi.weight for e in experts]}
    return part, other, {**names, "down": [e.wo.weight for e in experts]}


def oracle_of_mixtral() -> tuple[FFN, nn.Module, dict[str, list[Tensor]]]:
    """Mixtral in transformers, whose gated experts are relu(z) · z = relu2(z) when gate and up are the same matrix."""
    theirs = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    config = pytest.importorskip("transformers").MixtralConfig(
        hidden_size=8, intermediate_size=16, num_local_experts=4, num_experts_per_tok=2, hidden_act="relu"
    )
    dims = Dims(d_model=8, num_layers=1, num_heads=2, head_dim=4, max_len=8, vocab_size=5, bias=False)
    part, other = wide(MoE(dims, activation=ReLU2(dims), top_k=2, **EXPERTS)), theirs.MixtralSparseMoeBlock(config)
    other.double().eval()
    with torch.no_grad():
        other.gate.weight.copy_(part.router.weight)
        other.experts.gate_up_proj.copy_(torch.cat([part.up.weight, part.up.weight], dim=1))
        other.experts.down_proj.copy_(part.down.weight)
    return part, other, {"router": [other.gate.weight], "down": [other.experts.down_proj]}


# MixtralTopKRouter.forward takes its softmax in float32.
@pytest.mark.parametrize(("make", "bound"), [(oracle_of_switch, 1e-10), (oracle_of_mixtral, 1e-5)])
def test_mixtures_are_those_of_transformers(make: Any, bound: float, record_property: Any) -> None:
    part, theirs, names = make()
    part.eval()
    x, y = stream().requires_grad_(), stream().requires_grad_()
    mine, expected = part(x), theirs(y)
    probe = torch.randn(mine.shape, generator=torch.Generator().manual_seed(3), dtype=mine.dtype)
    (mine * probe).sum().backward()
    (expected * probe).sum().backward()
    pairs = [(mine, expected), (x.grad, y.grad)]
    for name, weights in names.items():
        grads = [w.grad if w.grad is not None else torch.zeros_like(w) for w in weights]
        grad = getattr(part, name).weight.grad
        pairs.append((grad, torch.stack(grads) if len(grads) > 1 else grads[0]))
    gap = max(((a - b).abs().max() / (1 + b.abs().max())).item() for a, b in pairs)
    assert gap <= bound
    record_property("largest_difference", gap)
    print(f"\n{make.__name__}: {gap:.1e}")


def test_the_balancing_loss_is_that_of_transformers() -> None:
    """Mixtral's sums over the k choices what ours averages, so ours is a k-th of it."""
    theirs = pytest.importorskip("transformers.models.mixtral.modeling_mixtral").load_balancing_loss_func
    part, x = wide(MoE(DIMS, activation=GELU(DIMS), top_k=2, **EXPERTS)), stream()
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 2:] = True
    for given in (None, padding):
        part(x, given)
        mask = None if given is None else (~given).long()
        expected = theirs((part.router(x).flatten(0, 1),), 4, 2, mask)
        assert part.auxiliary_loss.item() == pytest.approx(0.5 * expected.item() / 2, rel=1e-6)
