"""Residual streams against their papers' equations in float64, and what each of them promises besides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

from configs import small
from swapformer.errors import UsageError
from swapformer.model.dims import Dims
from swapformer.model.layers import origin_of
from swapformer.model.residual import (
    DeepNorm,
    Dense,
    DenseNet,
    ForwardPass,
    Gated,
    HyperConnections,
    LayerScale,
    Replace,
    ResiDual,
    Residual,
    Reversible,
    StochasticDepth,
    Weighted,
)
from swapformer.random import stream
from swapformer.study.config.compose import check, compose
from swapformer.training.assemble import build_model

LAYERS, BRANCHES, WIDTH = 3, 2, 6
DIMS = Dims(d_model=WIDTH, num_layers=LAYERS, num_heads=1, head_dim=WIDTH, max_len=8, vocab_size=5, branches=BRANCHES)
MATRICES = torch.randn(LAYERS * BRANCHES, WIDTH, WIDTH, generator=stream("residual", 0), dtype=torch.float64)
X = torch.randn(2, 4, WIDTH, generator=stream("residual", 1), dtype=torch.float64)


def branch(index: int, x: Tensor) -> Tensor:
    """Some function of the stream, another one for each branch."""
    return torch.tanh(x @ MATRICES[index])


def norm(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])


def same(x: Tensor) -> Tensor:
    return x


def parts(make: Callable[[Dims], Residual]) -> list[Residual]:
    """One residual for each branch of the model, with wide weights."""
    dims = [replace(DIMS, layer=i // BRANCHES, branch=i % BRANCHES) for i in range(LAYERS * BRANCHES)]
    out = [make(one).double().eval() for one in dims]
    with torch.no_grad():
        for number, part in enumerate(out):
            for name, parameter in part.named_parameters():
                noise = torch.randn(parameter.shape, generator=stream("wide", number, name), dtype=torch.float64)
                parameter.copy_(origin_of(name, parameter).start + 0.5 * noise)
    return out


def walked(residuals: list[Residual], x: Tensor, after: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """The stream taken through all branches as a stack does it."""
    state = residuals[0].open(x)
    for index, residual in enumerate(residuals):
        state = residual.write(state, branch(index, residual.read(state)))
        if after is not None:
            state = residual.normalise(state, after)
    return residuals[-1].close(state, norm)


def assert_same(residuals: list[Residual], definition: Callable[[Tensor], Tensor], after: Any = None) -> None:
    """Outputs and gradients, by x and by every parameter, agree to 1e-10."""
    x = X.clone().requires_grad_()
    leaves = [x, *(parameter for residual in residuals for parameter in residual.parameters())]
    ours, theirs = walked(residuals, x, after), definition(x)
    weight = torch.randn(ours.shape, generator=stream("residual", 2), dtype=torch.float64)
    grads = [torch.autograd.grad((out * weight).sum(), leaves, retain_graph=True) for out in (ours, theirs)]
    assert (ours - theirs).abs().max() <= 1e-10
    assert all((a - b).abs().max() <= 1e-10 for a, b in zip(*grads, strict=True))
    assert all(grad.any() for grad in grads[0])


def each(rule: Callable[[Any, int, Tensor], Tensor], residuals: list[Residual]) -> Callable[[Tensor], Tensor]:
    """A stream of one tensor: x ← rule(part, index, x) for every branch, normed at the end."""

    def definition(x: Tensor) -> Tensor:
        for index, residual in enumerate(residuals):
            x = rule(residual, index, x)
        return norm(x)

    return definition


ONE: dict[str, tuple[Callable[[Dims], Residual], Callable[[Any, int, Tensor], Tensor]]] = {
    "none": (Replace, lambda part, i, x: branch(i, x)),
    "weighted": (partial(Weighted, alpha=0.7), lambda part, i, x: 0.7 * x + 0.3 * branch(i, x)),
    "deepnorm": (
        DeepNorm,
        lambda part, i, x: (2 * LAYERS) ** 0.25 * x + branch(i, x),
    ),
    "layerscale": (partial(LayerScale, start=0.1), lambda part, i, x: x + branch(i, x) @ torch.diag(part.weight)),
    "gated": (
        partial(Gated, start=-2.0),
        lambda part, i, x: (
            x * (1 - 1 / (1 + torch.exp(-(x @ part.gate.weight.T + part.bias))))
            + branch(i, x) / (1 + torch.exp(-(x @ part.gate.weight.T + part.bias)))
        ),
    ),
    "stochastic_depth": (
        partial(StochasticDepth, survival=0.4),
        lambda part, i, x: x + (1 - (i + 1) / (LAYERS * BRANCHES) * 0.6) * branch(i, x),
    ),
}


@pytest.mark.parametrize("name", ONE)
def test_a_stream_of_one_tensor_follows_its_formula(name: str) -> None:
    make, rule = ONE[name]
    residuals = parts(make)
    assert_same(residuals, each(rule, residuals))


def test_deepnorm_scales_the_stream_by_the_fourth_root_of_twice_the_layers() -> None:
    """Wang et al. 2022, table 1: α = (2N)^¼ for decoders and encoders alone."""
    model = build_model(small(["model/residual=deepnorm", "model.num_layers=8"]), 11)
    assert model.stack.layers[0].block.sublayers[0].residual.stream == pytest.approx(2.0)


def test_stochastic_depth_drops_whole_branches_with_linearly_rising_frequency() -> None:
    """Huang et al. 2016: p_l = 1 − (l/L)(1 − p_L), here for each sequence; what is kept is not rescaled."""
    torch.manual_seed(0)
    x, update = torch.zeros(4000, 1, 3), torch.ones(4000, 1, 3)
    for index, part in enumerate(parts(partial(StochasticDepth, survival=0.4))):
        out = part.train().write(x, update)
        assert ((out == 0) | (out == 1)).all()
        assert torch.equal(out, out[..., :1].expand_as(out))
        assert abs(out.mean().item() - (1 - (index + 1) / 6 * 0.6)) < 0.03


def test_residual_keeps_one_normed_and_one_plain_sum() -> None:
    """ResiDual, Xie et al. 2023: x ← LN(x + f), d ← d + f, y = x + LN(d)."""

    def definition(x: Tensor) -> Tensor:
        d = x
        for index in range(LAYERS * BRANCHES):
            update = branch(index, x)
            x, d = norm(x + update), d + update
        return x + norm(d)

    assert_same(parts(ResiDual), definition, after=norm)


def test_dense_averages_the_outputs_of_all_layers_before() -> None:
    """DenseFormer, Pagliardini et al. 2024: Y_i = Σ_{j≤i} α_ij X_j after every layer i, α_ii = 1 at the start."""
    residuals = parts(Dense)

    def definition(x: Tensor) -> Tensor:
        outputs, y = [x], x
        for layer in range(LAYERS):
            for index in (2 * layer, 2 * layer + 1):
                y = y + branch(index, y)
            outputs.append(y)
            after: Any = residuals[2 * layer + 2].entering if layer < LAYERS - 1 else residuals[-1].closing
            alpha = after + functional.one_hot(torch.tensor(layer + 1), layer + 2)
            y = sum((a * out for a, out in zip(alpha, outputs, strict=True)), torch.zeros(()))
        return norm(y)

    assert_same(residuals, definition)


def test_densenet_reads_everything_ever_written_through_a_map_of_its_own() -> None:
    """Huang et al. 2017, equation 2, x_l = H_l([x_0, …, x_{l−1}]), with W_k + [I … I] on the concatenation."""
    residuals: list[Any] = parts(DenseNet)

    def mapped(history: list[Tensor], weight: Tensor) -> Tensor:
        """Channel by channel: y_d = Σ_j (x_jd + Σ_c W[d, j·D + c] x_jc)."""
        channels = [
            sum(
                (
                    x[..., d] + sum(weight[d, j * WIDTH + c] * x[..., c] for c in range(WIDTH))
                    for j, x in enumerate(history)
                ),
                torch.zeros((), dtype=torch.float64),
            )
            for d in range(WIDTH)
        ]
        return torch.stack(channels, dim=-1)

    def definition(x: Tensor) -> Tensor:
        history = [x]
        for index, part in enumerate(residuals):
            assert part.reading.shape == (WIDTH, (index + 1) * WIDTH)
            history.append(branch(index, mapped(history, part.reading)))
        return norm(mapped(history, residuals[-1].closing))

    assert_same(residuals, definition)
    assert [part.closing is None for part in residuals] == [True] * 5 + [False]


def test_densenet_needs_as_many_branches_in_all_layers() -> None:
    own = ["task=copy", "model/residual=densenet"]
    check(compose([*own, "model.layers=[{at: 0, attention: gqa, attention.num_kv_heads: 1}]"]))
    for change in ("ffn: none", "block: parallel"):
        with pytest.raises(UsageError, match=r"DenseNet has weights for every update.* as many branches.* 1, 2"):
            check(compose([*own, f"model.layers=[{{at: 0, {change}}}]"]))
    reading = ["task=copy", "task.as_source=true", "model/topology=encoder_decoder", own[1]]
    with pytest.raises(UsageError, match="as many branches, but they have 2, 1;"):
        check(compose([*reading, "model.layers=[{at: 0, ffn: none}, {at: 1, block: parallel}]"]))


@pytest.mark.parametrize("dynamic", [None, 0.3])
@pytest.mark.parametrize("streams", [1, 2, 4])
def test_hyper_connections_equal_the_papers_matrices_at_every_place(streams: int, dynamic: float | None) -> None:
    """Zhu et al. 2024, equations 2 to 10, one place at a time with H [n, D]."""
    residuals = parts(partial(HyperConnections, streams=streams, dynamic=dynamic))

    def place(h: Tensor, index: int, part: Any) -> Tensor:
        a_m = (functional.one_hot(torch.tensor(index % streams), streams) + part.pick)[:, None]
        a_r, b = torch.eye(streams, dtype=h.dtype) + part.mix, part.spread[None]
        if dynamic is not None:
            n = torch.stack([norm(row) for row in h])
            w_m, w_r, w_b = part.follow.split([1, streams, 1], dim=1)
            a_m, a_r = a_m + part.scales[0] * torch.tanh(n @ w_m), a_r + part.scales[0] * torch.tanh(n @ w_r)
            b = b + part.scales[1] * torch.tanh(n @ w_b).T
        return b.T @ branch(index, a_m.T @ h) + a_r.T @ h

    def definition(x: Tensor) -> Tensor:
        rows = []
        for vector in x.flatten(0, 1):
            h = vector.repeat(streams, 1)
            for index, part in enumerate(residuals):
                h = place(h, index, part)
            rows.append(norm(h.sum(0)))
        return torch.stack(rows).view_as(x)

    assert_same(residuals, definition)


@pytest.mark.parametrize("option", ["hyper_connections", "dense", "densenet"])
def test_generalised_streams_start_as_the_plain_sum(option: str) -> None:
    """The papers of the first two choose their initial weights so; with one stream, the sum over n scales nothing."""
    ids = torch.arange(20)[None] % 11
    settings = ["model.residual.streams=1"] if option == "hyper_connections" else []
    one, other = (build_model(small([*more]), 11).double() for more in ([f"model/residual={option}", *settings], []))
    assert torch.allclose(one(ids), other(ids), atol=1e-12)


# The reversible stream.


def reversible(layers: int, *more: str) -> nn.Module:
    return build_model(small(["model/residual=reversible", f"model.num_layers={layers}", *more]), 11).double()


def test_two_branches_are_the_papers_pair() -> None:
    """Gomez et al. 2017, equation 6: y₁ = x₁ + F(x₂), y₂ = x₂ + G(y₁); and the mean of both at the end."""

    def definition(x: Tensor) -> Tensor:
        x1 = x2 = x
        for layer in range(LAYERS):
            x1 = x1 + branch(2 * layer, x2)
            x2 = x2 + branch(2 * layer + 1, x1)
        return norm((x1 + x2) / 2)

    assert_same(parts(Reversible), definition)


@pytest.mark.parametrize(
    "settings",
    [["model/position=t5"], ["model/position=alibi", "model.dropout=0.2"], ["model/block=parallel"]],
    ids=["shared table", "dropout", "parallel"],
)
def test_gradients_recomputed_backwards_equal_those_of_the_plain_walk(
    settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = reversible(4, *settings), torch.randint(11, (2, 16), generator=stream("ids"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=stream("wide", name), dtype=torch.float64)
            parameter.add_(0.2 * noise)

    def measured() -> tuple[Tensor, list[Tensor]]:
        torch.manual_seed(7)
        model.zero_grad()
        logits = model(ids)
        functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
        return logits.detach(), [p.grad for p in model.parameters() if p.grad is not None]

    backwards = measured()
    monkeypatch.setattr(Reversible, "run", Residual.run)
    plain = measured()
    assert torch.allclose(backwards[0], plain[0], atol=1e-12)
    assert len(backwards[1]) == len(plain[1]) == len(list(model.parameters()))
    assert max((a - b).abs().max().item() for a, b in zip(backwards[1], plain[1], strict=True)) <= 1e-10


def saved_bytes(model: nn.Module) -> int:
    """Bytes of activations that a forward pass keeps for the backward one, parameters aside."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, Any] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        loss = model(torch.arange(64)[None] % 11).sum()
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


def test_activation_memory_of_a_reversible_stack_does_not_grow_with_depth() -> None:
    """Gomez et al. 2017, table 1: constant in depth; the plain sum's grows by each layer's activations."""
    assert saved_bytes(reversible(2)) == saved_bytes(reversible(8))
    plain = [saved_bytes(build_model(small([f"model.num_layers={n}"]), 11).double()) for n in (2, 4, 8)]
    assert plain[2] - plain[1] == 2 * (plain[1] - plain[0]) > 0
    assert plain[2] > 5 * saved_bytes(reversible(8))


def test_without_gradients_the_layers_run_as_modules() -> None:
    model, seen = reversible(2), []
    for layer in model.stack.layers:
        layer.register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad():
        model(torch.zeros(1, 4, dtype=torch.int64))
    assert len(seen) == 2


def test_every_pass_gives_the_updates_anew() -> None:
    """A context shared by two computations would remember a bias without its gradient."""
    calls: list[int] = []

    def updates() -> list[Callable[[Tensor], Tensor]]:
        calls.append(1)
        return [partial(branch, index) for index in range(3)]

    x = X.clone().requires_grad_()
    part = parts(Reversible)[0]
    sum(part.run(part.open(x), ForwardPass(layers=[], updates=updates, inputs=tuple))).sum().backward()
    assert len(calls) == 1 + 3


REFUSED = [
    (
        ["model/placement=post"],
        "Reversible cannot be walked back through a norm.*use model/placement=pre",
    ),
    (["model/norm=batchnorm", "model/pattern=full"], "Reversible computes every branch twice.*BatchNorm"),
    (["model.layers=[{at: 0, residual: add}]"], "all layers share one stream.*Add keeps one tensor"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_cannot_be_walked_backwards_is_refused(settings: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(compose(["task=copy", "model/residual=reversible", *settings]))
