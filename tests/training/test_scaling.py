"""μP and CompleteP: the published table, the same training with factors in the forward pass, the coordinate check."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from swapformer.errors import UsageError
from swapformer.model.topology import Topology
from swapformer.study.config.compose import check, compose
from swapformer.training import assemble
from swapformer.training.assemble import build_model, scaling
from swapformer.training.optimiser import make_optimiser, parameter_groups
from swapformer.training.scaling import Factors

UNTIED = "model.topology.tie_embeddings=false"
BASE = {"d_model": 16, "num_heads": 2, "num_layers": 2}


def sized(kind: str, width: int = 32, heads: int = 2, layers: int = 4, *more: str) -> dict[str, Any]:
    """A configuration that scales from BASE."""
    keys = ("d_model", "num_heads", "num_layers") if kind == "completep" else ("d_model", "num_heads")
    base = ", ".join(f"{key}: {BASE[key]}" for key in keys)
    scaled = [f"optim.scaling={kind}", f"optim.base={{{base}}}"] if kind != "none" else []
    sizes = [f"model.d_model={width}", f"model.num_heads={heads}", f"model.num_layers={layers}", "task=copy"]
    return compose([*sizes, "schedule.warmup_steps=1", "budget.steps=10", UNTIED, *scaled, *more])


def groups_of(config: Mapping[str, Any], model: Topology) -> dict[str, dict[str, Any]]:
    """Parameter → its group."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, config["optim"], scaling(config, model.interface))
    return {names[each]: group for group in groups for each in group["params"]}


def test_factors_are_those_of_the_published_tables() -> None:
    """Tensor Programs V, table 3 (Adam), and CompleteP, table 1 with α = 1; twice as wide, thrice as deep."""
    config = sized("completep", 32, 4, 6, "model/ffn=glu", "model.ffn.expansion=3")
    model = build_model(config, 9)
    found, at = scaling(config, 9), "stack.layers.3."
    m, deep = 2.0, 3.0
    depth = math.sqrt(6 / 2)  # gpt2 starts the end of a branch by the depth: that of the base counts here
    expected = {
        "embedding.weight": Factors(1, 1, 1 / m),
        f"{at}attention.query.weight": Factors(m**-0.5, 1 / m, 1 / m / deep),
        f"{at}attention.query.bias": Factors(1, 1, 1 / m / deep),
        f"{at}ffn.gate.weight": Factors(m**-0.5, 1 / m, 1 / m / deep),
        f"{at}ffn.down.weight": Factors(m**-0.5 / deep * depth, 1 / m / deep, 1 / m),
        f"{at}ffn.down.bias": Factors(1, 1 / deep, 1 / m),
        "stack.final_norm.weight": Factors(1, 1, 1 / m),
        "head.weight": Factors(1 / m, 1 / m, 1),
    }
    names = dict(model.named_parameters())
    assert set(expected) <= set(names), set(expected) - set(names)
    for name, factors in expected.items():
        assert [found[name].rate, found[name].epsilon] == pytest.approx([factors.rate, factors.epsilon]), name
        if names[name].ndim > 1:
            assert found[name].start == pytest.approx(factors.start), name


def test_decay_a_step_is_that_of_the_base() -> None:
    config = sized("completep", 64, 2)
    for name, group in groups_of(config, build_model(config, 9)).items():
        if group["weight_decay"]:
            assert group["lr"] * group["weight_decay"] == pytest.approx(1e-3 * 0.1), name


@pytest.mark.parametrize("init", ["gpt2", "xavier", "orthogonal", "torch"])
def test_at_the_base_nothing_changes(init: str) -> None:
    plain = sized("none", 16, 2, 2, f"model/init={init}")
    same = sized("completep", 16, 2, 2, f"model/init={init}")
    before, after = build_model(plain, 9), build_model(same, 9)
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    for group in groups_of(same, after).values():
        assert (group["lr"], group["eps"]) == (1e-3, 1e-8)
        assert group["weight_decay"] in (0.0, 0.1)


@pytest.mark.parametrize("init", ["gpt2", "xavier", "orthogonal", "torch"])
def test_starts_are_those_of_the_base_whatever_the_scheme_makes_of_a_width(init: str) -> None:
    small, large = (build_model(sized("mup", width, 2, 2, f"model/init={init}"), 64) for width in (16, 256))
    for name, power in [("stack.layers.0.ffn.up.weight", -0.5), ("head.weight", -1.0), ("embedding.weight", 0.0)]:
        ratio = large.get_parameter(name).std() / small.get_parameter(name).std()
        assert ratio.item() == pytest.approx(16**power, rel=0.15), name


class TestForwardFactors:
    """The papers' own form: factors in the forward pass, and the papers' rates, decay and ε, in a loop of its own."""

    STEPS, RATE, DECAY, EPSILON, BETAS = 12, 3e-3, 0.1, 1e-4, (0.9, 0.99)

    def trained(self, config: dict[str, Any], model: Topology) -> list[float]:
        """Losses of our own training."""
        optim = {**config["optim"], "lr": self.RATE, "eps": self.EPSILON, "fused": False}
        optimiser = make_optimiser(optim)(parameter_groups(model, optim, scaling(config, model.interface)))
        losses = []
        for step in range(self.STEPS):
            loss = self.loss(model, step)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            losses.append(loss.item())
        return losses

    def loss(self, model: nn.Module, step: int) -> Tensor:
        ids = torch.randint(9, (4, 12), generator=torch.Generator().manual_seed(step))
        return functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    def by_the_papers(self, model: Topology, m: float, h: float, deep: float) -> list[float]:
        """Losses of AdamW written out, with 1/m on logits, h^−½ on queries (1/d on scores) and 1/l on branches."""
        with torch.no_grad():
            model.head.weight.mul_(m)
        model.register_forward_hook(lambda module, inputs, output: output / m)
        multiplied = {}
        for index in range(len(model.stack.layers)):
            at = f"stack.layers.{index}"
            multiplied |= {
                f"{at}.attention.query": h**-0.5,
                f"{at}.attention.out": 1 / deep,
                f"{at}.ffn.down": 1 / deep,
            }
        for name, factor in multiplied.items():
            leaf = model.get_submodule(name)
            with torch.no_grad():
                for parameter in leaf.parameters():
                    parameter.div_(factor)  # what our start has within the weight
            leaf.register_forward_hook(lambda module, inputs, output, factor=factor: factor * output)
        moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in model.named_parameters()}
        losses = []
        for step in range(self.STEPS):
            model.zero_grad()
            loss = self.loss(model, step)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.item())
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    hidden = parameter.ndim == 2 and name.startswith("stack.layers.")
                    rate = self.RATE / m if hidden else self.RATE
                    decay = 0.0 if parameter.ndim == 1 else self.DECAY * m if hidden else self.DECAY
                    epsilon = self.EPSILON / m / (deep if name.startswith("stack.layers.") else 1)
                    first, second = moments[name]
                    assert parameter.grad is not None
                    first.mul_(self.BETAS[0]).add_((1 - self.BETAS[0]) * parameter.grad)
                    second.mul_(self.BETAS[1]).add_((1 - self.BETAS[1]) * parameter.grad**2)
                    mean, spread = (x / (1 - b ** (step + 1)) for x, b in zip((first, second), self.BETAS, strict=True))
                    parameter.mul_(1 - rate * decay).sub_(rate * mean / (spread.sqrt() + epsilon))
        return losses

    @pytest.mark.parametrize(
        ("kind", "width", "heads", "layers"), [("mup", 48, 2, 2), ("completep", 32, 4, 6), ("completep", 48, 2, 6)]
    )
    def test_training_is_the_same(self, kind: str, width: int, heads: int, layers: int) -> None:
        config = sized(kind, width, heads, layers)
        ours, theirs = (build_model(config, 9).double() for _ in range(2))
        m, h = width / 16, (width / heads) / 8
        deep = layers / 2 if kind == "completep" else 1.0
        assert self.trained(config, ours) == pytest.approx(self.by_the_papers(theirs, m, h, deep), rel=1e-10)

    @pytest.mark.evidence
    @pytest.mark.parametrize("fault", ["epsilon", "rate"])
    def test_a_fault_shows(self, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Planted: queries, whose factor is taken out of ε, or out of the rate."""
        honest = assemble.factors

        def faulty(*args: Any) -> dict[str, Factors]:
            broken = honest(*args)
            for name in broken:
                if ".query." in name:
                    one = broken[name]
                    broken[name] = one.times(1, 1, 0.5) if fault == "epsilon" else one.times(1, 1.1, 1)
            return broken

        config = sized("completep", 48, 2, 6)
        theirs = self.by_the_papers(build_model(config, 9).double(), 3.0, 3.0, 3.0)
        monkeypatch.setattr(assemble, "factors", faulty)
        assert self.trained(config, build_model(config, 9).double()) != pytest.approx(theirs, rel=1e-10)


def growth(configs: list[dict[str, Any]], size: Callable[[dict[str, Any]], int], steps: int = 4) -> tuple[float, float]:
    """The powers of a size with which the changes of last states and logits grow in a few steps of Adam."""
    changes = []
    for config in configs:
        torch.manual_seed(0)
        model = build_model(config, 64)
        optim = {**config["optim"], "lr": 1e-2, "weight_decay": 0.0}
        optimiser = make_optimiser(optim)(parameter_groups(model, optim, scaling(config, model.interface)))
        ids = torch.randint(64, (16, 24), generator=torch.Generator().manual_seed(1))
        states: list[Tensor] = []
        model.stack.layers[-1].register_forward_hook(lambda module, inputs, output, kept=states: kept.append(output))
        found: list[tuple[Tensor, Tensor]] = []
        for step in range(steps + 1):
            logits = model(ids[:, :-1])
            found.append((states[-1].detach(), logits.detach()))
            if step < steps:
                optimiser.zero_grad()
                functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
                optimiser.step()
        changes.append(
            [(after - before).square().mean().sqrt().item() for before, after in zip(*found[::steps], strict=True)]
        )
    sizes = np.log([size(config) for config in configs])
    powers = np.polyfit(sizes, np.log(np.array(changes)), 1)[0]
    return float(powers[0]), float(powers[1])


class TestCoordinateCheck:
    """After a few steps what changes is of one size at every width and depth (Yang et al. 2022, appendix D.1)."""

    def across_widths(self, kind: str) -> tuple[float, float]:
        configs = [sized(kind, width, width // 8, 2) for width in (16, 32, 64, 128)]
        return growth(configs, lambda config: config["model"]["d_model"])

    def across_depths(self, kind: str) -> tuple[float, float]:
        configs = [sized(kind, 16, 2, layers) for layers in (2, 4, 8, 16)]
        return growth(configs, lambda config: config["model"]["num_layers"])

    def test_flat_in_the_width(self) -> None:
        assert all(-0.3 < power < 0.15 for power in self.across_widths("mup"))

    def test_not_flat_without(self) -> None:
        assert max(self.across_widths("none")) > 0.4

    @pytest.mark.evidence
    def test_flat_in_the_depth(self) -> None:
        assert all(-0.15 < power < 0.15 for power in self.across_depths("completep"))

    @pytest.mark.evidence
    def test_mup_alone_is_not_flat_in_the_depth(self) -> None:
        assert max(self.across_depths("mup")) > 0.3

    @pytest.mark.evidence
    @pytest.mark.parametrize("part", ["ffn", "head"])
    def test_a_fault_bends_it(self, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Planted: the feed-forward layers, or the head, keep the rate of the base."""
        honest = assemble.factors

        def faulty(*args: Any) -> dict[str, Factors]:
            found = honest(*args)
            return {name: Factors(own.start, 1.0, own.epsilon) if part in name else own for name, own in found.items()}

        monkeypatch.setattr(assemble, "factors", faulty)
        assert max(self.across_widths("mup")) > 0.3


MUP = ["optim.scaling=mup", "optim.base={d_model: 16, num_heads: 2}", "model.topology.tie_embeddings=false"]


class TestRefused:
    @pytest.mark.parametrize(
        ("overrides", "said"),
        [
            (["optim.scaling=mup"], "needs the sizes that optim.lr was chosen at"),
            ([*MUP, "model/residual=densenet"], "no rule for the learned maps of model/residual=densenet"),
            ([*MUP, "model/residual=hyper_connections"], "or model.residual.dynamic=null"),
            (["optim.scaling=mup", "optim.base={d_model: 16}"], "optim.base is {d_model}"),
            (["optim.scaling=mup", "optim.base={d_model: 16, num_heads: 0}"], "whole number of at least 1"),
            (["optim.base={d_model: 16, num_heads: 2}"], "optim.scaling=none"),
            (["optim.scaling=mu", "optim.base={d_model: 16, num_heads: 2}"], "mup"),
            (["model.topology.tie_embeddings=true"], "tie_embeddings=false"),
            (["optim=sgd"], "use optim=adamw"),
            (["optim=adam", "optim.weight_decay=0.1"], "use optim=adamw"),
            (["model/placement=post"], "model/placement=pre"),
            (["model/residual=rezero"], "model/residual=add"),
            (["model/qk_norm=rmsnorm"], "model/qk_norm=none"),
            (["model/score=additive"], "no rule for parameters with the role score"),
            (["model/attention=mamba2"], "no rule for model/attention=mamba2, whose queries are as wide as its state"),
            ([*MUP, "model.num_heads=4", "model.layers=[{at: 0, num_heads: 1}]"], "needs heads of one width"),
        ],
    )  # fmt: skip
    def test_with_what_would_work(self, overrides: list[str], said: str) -> None:
        scaled = any(each.startswith(("optim.scaling", "optim.base")) for each in overrides)
        kind = "none" if scaled else "completep"
        with pytest.raises(UsageError, match=said):
            check(sized(kind, 32, 2, 4, *overrides))

    def test_what_the_base_cannot_have(self) -> None:
        with pytest.raises(UsageError, match="num_heads"):
            check(sized("none", 32, 2, 4, "optim.scaling=mup", "optim.base={d_model: 16, num_heads: 3}"))

    @pytest.mark.parametrize(
        "overrides", [["optim=adam"], ["model/attention=mqa"], ["model/ffn=moe"], ["model/norm=rmsnorm"]]
    )
    def test_but_not_what_scales(self, overrides: list[str]) -> None:
        check(sized("completep", 32, 2, 4, *overrides))
