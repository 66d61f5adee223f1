"""Extensions of attention: how they are chosen, that all of them compose, and what a new one takes."""

from __future__ import annotations

import sys
from functools import cache
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import accepted
from swapformer.conformance import examine
from swapformer.errors import UsageError
from swapformer.model.attention import MultiHead
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.extension import (
    Convolution,
    Extension,
    Guidance,
    HeadMask,
    Orthogonality,
    OutputGate,
    ValueResidual,
)
from swapformer.model.kernel import Reference
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal
from swapformer.model.position import Position
from swapformer.model.qk_norm import QKNorm
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens
from swapformer.model.topology import take_auxiliary_loss
from swapformer.random import stream
from swapformer.study.config.compose import check, compose
from swapformer.targets import VARIABLE
from swapformer.training.assemble import build_model

HEADS, GROUPS, HEAD_DIM, WIDTH, LENGTH = 4, 2, 3, 10, 6
DIMS = Dims(WIDTH, 1, HEADS, HEAD_DIM, 16, 5)
MASKED, SHARE, PENALTY, GUIDES = (2,), 0.3, 0.7, {"previous": {0: 0.2}, "local": {1: 0.5}, "global": {3: 0.4}}


def made() -> dict[str, Extension]:
    """One of each."""
    guides = {f"{name}_loss": [each.get(head, 0.0) for head in range(HEADS)] for name, each in GUIDES.items()}
    return {
        "convolution": Convolution(DIMS, width=3),
        "gate": OutputGate(DIMS),
        "guidance": Guidance(DIMS, pattern=Causal(DIMS), **guides),
        "head_mask": HeadMask(DIMS, heads=list(MASKED)),
        "orthogonality": Orthogonality(DIMS, weight=PENALTY),
        "value_residual": ValueResidual(DIMS, share=SHARE),
    }


def attention(name: str, chosen: tuple[str, ...]) -> Any:
    extension = {key: part for key, part in made().items() if key in chosen}
    parts: dict[str, Any] = {"normaliser": Softmax(DIMS), "kernel": Reference(DIMS), "qk_norm": QKNorm(DIMS)}
    score, pattern = Dot(DIMS, exponent=-0.5), Causal(DIMS)
    part = MultiHead(DIMS, score=score, pattern=pattern, extension=extension, num_kv_heads=GROUPS, **parts).double()
    with torch.no_grad():
        for key, parameter in part.named_parameters():
            noise = torch.randn(parameter.shape, generator=stream("extension", name, key), dtype=torch.float64)
            parameter.copy_(0.5 * noise)
    return part


def by_loop(part: Any, x: Tensor, first: list[Tensor], chosen: tuple[str, ...]) -> tuple[Tensor, list[Tensor]]:
    """Output and losses of one sequence x [T, D], position by position and head by head, by the papers' formulas.

    `first` holds the first layer's values once there are some.
    """
    projected = [layer(x) for layer in (part.query, part.key, part.value)]
    if "convolution" in chosen:
        for index, taps in enumerate(part.filters):
            y = projected[index]
            rows = [y[i] + sum(taps[s] * y[i - s] for s in range(min(3, i + 1))) for i in range(LENGTH)]
            projected[index] = torch.stack(rows)
    q, k, v = projected
    if "value_residual" in chosen:
        first.append(v)
        v = (1 - SHARE) * v + SHARE * first[0]
    outs, pulls = torch.zeros(LENGTH, HEADS, HEAD_DIM, dtype=torch.float64), {}
    rows = []
    for h in range(HEADS):
        g, own = h * GROUPS // HEADS, slice(h * HEAD_DIM, (h + 1) * HEAD_DIM)
        shared = slice(g * HEAD_DIM, (g + 1) * HEAD_DIM)
        column = []
        for i in range(LENGTH):
            weights = torch.stack([q[i, own] @ k[j, shared] for j in range(i + 1)]).div(HEAD_DIM**0.5).softmax(0)
            column.append(sum(weights[j] * v[j, shared] for j in range(i + 1)))
            for name, heads in GUIDES.items():
                if h in heads and not (name == "previous" and i == 0):
                    shares = {"previous": lambda d: float(d == 1), "local": lambda d: 0.5**d, "global": lambda d: 1.0}
                    target = torch.tensor([shares[name](i - j) for j in range(i + 1)], dtype=torch.float64)
                    off = (weights - target / target.sum()).square().sum()
                    pulls.setdefault((name, h), []).append(heads[h] * off)
        rows.append(torch.zeros_like(x[:, :HEAD_DIM]) if h in MASKED and "head_mask" in chosen else torch.stack(column))
    outs, losses = torch.stack(rows, dim=1), []
    if "orthogonality" in chosen:
        cosines = []
        for i in range(LENGTH):
            for h in range(HEADS):
                for other in set(range(HEADS)) - {h}:
                    size = outs[i, h].norm() * outs[i, other].norm()
                    cosines.append((outs[i, h] @ outs[i, other]) ** 2 / size**2 if size > 0 else size)
        losses.append(PENALTY * torch.stack(cosines).mean())
    if "guidance" in chosen:
        losses += [torch.stack(each).mean() for each in pulls.values()]
    mixed = outs.flatten(1)
    if "gate" in chosen:
        mixed = mixed / (1 + torch.exp(-(x @ part.gate.weight.T)))
    return part.out(mixed), losses


SUBSETS = list(chain.from_iterable(combinations(made(), count) for count in range(len(made()) + 1)))


@pytest.mark.parametrize("chosen", SUBSETS, ids="+".join)
def test_all_subsets_compute_what_their_formulas_say_together(chosen: tuple[str, ...]) -> None:
    """Outputs, losses and gradients of two layers that share a context."""
    parts = [attention(name, chosen).train() for name in ("first", "second")]
    xs = [torch.randn(LENGTH, WIDTH, generator=stream("x", n), dtype=torch.float64) for n in range(2)]
    tokens, first = Tokens.of(LENGTH), []
    context = Context(tokens, tokens, torch.float64)
    ours, theirs, our_loss, their_loss = [], [], torch.zeros(()), torch.zeros(())
    for part, x in zip(parts, xs, strict=True):
        ours.append(part(x[None], context, Position(DIMS))[0])
        loss = take_auxiliary_loss(part)
        assert (loss is not None) == bool({"orthogonality", "guidance"} & {*chosen})
        our_loss = our_loss if loss is None else our_loss + loss
        out, losses = by_loop(part, x, first, chosen)
        theirs.append(out)
        their_loss = their_loss + sum(losses)
    assert max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)) <= 1e-12
    assert abs(our_loss - their_loss) <= 1e-12
    leaves = [parameter for part in parts for parameter in part.parameters()]
    totals = [sum(out.square().sum() for out in outs) + loss for outs, loss in ((ours, our_loss), (theirs, their_loss))]
    grads = [torch.autograd.grad(total, leaves) for total in totals]
    assert max((a - b).abs().max().item() for a, b in zip(*grads, strict=True)) <= 1e-10


def test_two_extensions_cannot_bring_modules_of_one_name() -> None:
    parts: dict[str, Any] = {"normaliser": Softmax(DIMS), "kernel": Reference(DIMS), "qk_norm": QKNorm(DIMS)}
    twice = {"a": OutputGate(DIMS), "b": OutputGate(DIMS)}
    with pytest.raises(ValueError, match="extension b brings a module `gate`, but the attention has one"):
        MultiHead(DIMS, score=Dot(DIMS, exponent=-0.5), pattern=Causal(DIMS), extension=twice, **parts)


@cache
def model(*overrides: str) -> dict[str, Any]:
    node: dict[str, Any] = compose(["task=copy", *overrides])["model"]
    return node


PRESETS = {
    "gated": "gate",
    "primer": "convolution",
    "value_residual": "value_residual",
    "orthogonal_heads": "orthogonality",
    "guided_heads": "guidance",
}


@pytest.mark.parametrize("preset", PRESETS)
def test_an_attention_named_for_its_extension_is_multi_head_attention_with_it(preset: str) -> None:
    named = model(f"model/attention={preset}")
    assert named == model(f"model/extension=[{PRESETS[preset]}]")
    assert named["attention"] == model()["attention"] and list(named["extension"]) == [PRESETS[preset]]


def test_extensions_are_chosen_in_a_list_beside_those_of_an_attention() -> None:
    width = "model.extension.convolution.width=5"
    both = model("model/extension=[gate,convolution]", width)
    assert both["extension"].keys() == {"gate", "convolution"} and both["extension"]["convolution"]["width"] == 5
    assert both == model("model/extension=[convolution,gate]", width)
    assert both == model("model/attention=gated", "model/extension=[convolution]", width)
    assert model("model/extension=gate") == model("model/extension=[gate]")


def test_layers_have_extensions_of_their_own() -> None:
    chosen = model("model.layers=[{at: 0, attention: gated}]")["layers"]
    assert chosen == model("model.layers=[{at: 0, extension: [gate]}]")["layers"]
    assert list(chosen[0]["extension"]) == ["gate"] and "extension" not in chosen[1]
    share = "model.layers=[{at: 1, extension.value_residual.share: 0.2}]"
    changed = model("model/extension=[value_residual,gate]", share)
    assert changed["layers"][1]["extension"]["value_residual"]["share"] == 0.2
    assert list(changed["layers"][1]["extension"]) == list(changed["extension"])
    beside = model("model.layers=[{at: 1, extension: [convolution], attention: gated, extension.convolution.width: 7}]")
    assert beside["layers"][1]["extension"].keys() == {"gate", "convolution"}
    assert beside["layers"][1]["extension"]["convolution"]["width"] == 7
    assert model("model/attention=gated", "model.layers=[{at: 0, extension: []}]")["layers"][0] == {"extension": {}}


SHARED, GUIDED = "model/attention=value_residual", "model/attention=guided_heads"
REFUSED = [
    (
        ["model/extension=orthogonality", "model.extension.orthogonality.weight=-0.1"],
        "must be a number of at least 0",
    ),
    (["model/extension=orthogonality", "model.num_heads=1"], "0 for a single head, but it is 0.1 for `num_heads`"),
    ([SHARED, "model.extension.value_residual.share=1.0"], r"share` must be a number in \[0, 1\), but it is 1.0"),
    ([GUIDED, "model.extension.guidance.local_loss=[0,0,0,0,1]"], "for each head from head 0, at most 4, but it is"),
    (
        [GUIDED, "model.extension.guidance.previous_loss=[-0.1]"],
        r"previous_loss` must be a list.* but it is \[-0.1\]",
    ),
    (
        [GUIDED, "model/pattern=window", "model.pattern.before=0"],
        "the pattern Window shows each position only itself; use model/pattern=causal",
    ),
    (
        ["model/attention=orthogonal_heads", "model/residual=reversible"],
        r"losses on heads of MultiHead \(Orthogonality\) could not act",
    ),
    ([SHARED, "model/residual=reversible"], r"which MultiHead \(ValueResidual\) mixes in, are not at hand"),
    ([SHARED, "model.num_layers=1"], "no later layer has it, so it would do nothing"),
    ([SHARED, "model.layers=[{at: 0, extension: []}]"], "it has none, but layer 1 has"),
    ([SHARED, "model.layers=[{at: 0, extension.value_residual.share: 0.0}]"], "it has none, but layer 1 has"),
    ([SHARED, "model.layers=[{at: 1, num_heads: 2}]"], r"differ \(layer 0: \(4, 16\), layer 1: \(2, 32\)\)"),
    ([SHARED, "model.layers=[{at: 1, attention.num_kv_heads: 2}]"], "give these layers the same num_heads, head_dim"),
    (
        ["model/attention=linear", "model/extension=[gate,convolution]"],
        r"LinearAttention does not use an extension, so OutputGate and Convolution .* model/extension=\[\] as it is",
    ),
    (
        [SHARED, "model.layers=[{at: 0, attention: gqa}]"],
        r"attention gqa to layers with the extensions value_residual: say which .* `extension: \[\]`",
    ),
    (["model.layers=[{at: 0, extension: [gat]}]"], "unknown option 'gat' of model/extension.*gate"),
    (["model.layers=[{at: 0, extension: gate}]"], "in a list"),
    (["model.layers=[{at: 0, extension.gate.x: 1}]"], r"layers that have none; add it with `extension: \[gate\]`"),
    ([SHARED, "model.layers=[{at: 0, extension.value_residual.shar: 1}]"], "no setting 'shar'.*share"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_what_cannot_work_is_refused_at_composition(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(compose(["task=copy", *overrides]))


@pytest.mark.parametrize("change", ["extension: []", "extension.value_residual.share: 0.0"])
def test_layers_without_a_share_may_differ(change: str) -> None:
    """The sparse form of the paper: some layers have a share, the others any shape."""
    layers = f"model.layers=[{{at: 1, {change}, num_heads: 2}}]"
    assert accepted("task=copy", SHARED, "model.num_layers=3", layers)["model"]["layers"][1]["num_heads"] == 2


CLASS = '''
"""An extension of the user's own."""

from torch import nn

from swapformer.model.dims import Dims
from swapformer.model.extension import Extension
from swapformer.model.layers import gain


class HeadScale(Extension):
    """o_h times a learned number for each head h."""

    def __init__(self, dims: Dims, *, start: float) -> None:
        self.scales = nn.ParameterList([gain(dims.num_heads, start=start)])

    def modules(self, query_width, key_width, value_width):
        return {"scales": self.scales}

    def heads(self, heads):
        return heads * self.scales[0][:, None, None]
'''
YAML = """
# @package model.extension.head_scale
_target_: my_extensions.HeadScale
_partial_: true
_convert_: all
start: 0.5
"""


def test_a_yaml_that_does_not_say_its_name_is_refused_with_what_to_write(tmp_path: Path) -> None:
    """Hydra would put its settings in place of the extensions."""
    file = tmp_path / "model" / "extension" / "nameless.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("_target_: swapformer.model.extension.OutputGate\n_partial_: true\n_convert_: all\n")
    config = compose(["task=copy", f"hydra.searchpath=[file://{tmp_path}]", "model/extension=[nameless]"])
    with pytest.raises(UsageError, match=r"by name, but it is .*OutputGate.*# @package model\.extension\.NAME"):
        check(config)


def test_a_new_extension_takes_one_class_and_one_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a package of the user's own: it is chosen beside ours, obeys the laws, and its weights have its name."""
    (tmp_path / "my_extensions.py").write_text(CLASS)
    file = tmp_path / "conf" / "model" / "extension" / "head_scale.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(YAML)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(VARIABLE, "my_extensions")
    sizes = ["task=copy", "model.num_layers=2", "model.d_model=32", "model.num_heads=4", "model.max_len=320"]
    own = [*sizes, f"hydra.searchpath=[file://{tmp_path / 'conf'}]"]
    config = compose([*own, "model/extension=[gate,head_scale]", "model.extension.head_scale.start=0.25"])
    check(config)
    weights = build_model(config, 11).state_dict()
    assert weights["stack.layers.1.attention.scales.0"].tolist() == [0.25] * 4
    assert weights["stack.layers.1.attention.gate.weight"].shape == (32, 32)
    verdicts = examine(compose([*own, "model/extension=[head_scale]"]), "extension")
    assert [f"{verdict.law}: {verdict.message}" for verdict in verdicts if verdict.holds is False] == []
    del sys.modules["my_extensions"]
