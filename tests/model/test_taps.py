"""Taps: what they show follows from each other by loops in float64, and unwatched they leave a step as it is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from configs import every_part, small
from swapformer.conformance.subject import Subject, answer, ids, loss_of, run
from swapformer.model import taps
from swapformer.model.cache import Cache
from swapformer.model.stack import Stack
from swapformer.model.taps import Site, Tapped
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.paths import conf_dir
from swapformer.training.assemble import build_plan, factory

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "watching.md"
CLOSE = 1e-9
PLAIN = {"attention": "gqa", "activation": "relu", "position": "rope"}
"""Keys and values that heads share, an activation that a loop can do, and a fused kernel."""


def subject_of(**chosen: Any) -> Subject:
    """The small configuration with these options in their slots, and these sizes; put together without Hydra."""
    config = small()
    for name, value in chosen.items():
        file = conf_dir() / "model" / name / f"{value}.yaml"
        node = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else value
        config["model"][name] = (
            {key: own for key, own in node.items() if key != "defaults"} if node is not value else value
        )
    return Subject.of(config, "attention")


def model_of(**chosen: Any) -> Topology:
    """A model in float64 with noise on its weights, in evaluation mode."""
    return subject_of(**chosen).perturbed()


@pytest.fixture(scope="module")
def plain() -> Topology:
    return model_of(**PLAIN)


def mapped(x: Tensor, weight: Tensor, bias: Tensor | None) -> list[list[float]]:
    """W x + b for every row of x, one product after the other."""
    rows, columns = x.tolist(), weight.tolist()
    shift = [0.0] * len(columns) if bias is None else bias.tolist()
    return [[b + sum(w * v for w, v in zip(line, row, strict=True)) for line, b in zip(columns, shift, strict=True)]
            for row in rows]  # fmt: skip


def attended(q: Tensor, k: Tensor, v: Tensor) -> tuple[list[list[list[float]]], list[list[list[float]]]]:
    """Causal weights [Q][H][K] and their sums of values [Q][H][E], for q [Q, H, E] and k, v [K, G, E]; loops alone."""
    heads, groups, width = q.shape[1], k.shape[1], q.shape[2]
    asks, keys, values = q.tolist(), k.tolist(), v.tolist()
    weights, sums = [], []
    for i, ask in enumerate(asks):
        rows, mixed = [], []
        for h in range(heads):
            g = h * groups // heads
            logits = [
                sum(a * b for a, b in zip(ask[h], keys[j][g], strict=True)) / math.sqrt(width) for j in range(i + 1)
            ]
            sizes = [math.exp(logit - max(logits)) for logit in logits]
            row = [size / sum(sizes) for size in sizes] + [0.0] * (len(keys) - i - 1)
            rows.append(row)
            mixed.append([sum(w * values[j][g][e] for j, w in enumerate(row)) for e in range(width)])
        weights.append(rows)
        sums.append(mixed)
    return weights, sums


def near(found: Tensor, expected: Any) -> bool:
    return torch.allclose(found, torch.as_tensor(expected, dtype=torch.float64), atol=CLOSE)


def broken(model: Topology) -> set[str]:
    """The relations between the places of `PLAIN` that do not hold for one row of five symbols."""
    inputs = ids(1, 5)
    with torch.no_grad(), taps.record(model) as seen:
        logits = model(inputs)
    at = {name: value[0] for name, value in seen.items()}
    wrong = set()

    def require(holds: bool, relation: str) -> None:
        if not holds:
            wrong.add(relation)

    require(torch.equal(at["blocks.0.hook_resid_pre"], at["hook_embed"]), "the stream starts from the embeddings")
    for index in (0, 1):
        layer: Any = model.stack.layers[index]
        here = {name.removeprefix(f"blocks.{index}."): value for name, value in at.items()}
        weights, sums = attended(here["attn.hook_rot_q"], here["attn.hook_rot_k"], here["attn.hook_v"])
        require(near(here["attn.hook_pattern"].transpose(0, 1), weights), "pattern = softmax(q·k/√E)")
        require(near(here["attn.hook_attn_scores"].softmax(-1), here["attn.hook_pattern"]), "pattern = softmax(scores)")
        require(near(here["attn.hook_z"], sums), "z = pattern · v")
        out = layer.attention.out
        require(
            near(here["hook_attn_out"], mapped(here["attn.hook_z"].flatten(1), out.weight, out.bias)), "out = W z + b"
        )
        total = here["attn.hook_result"].sum(1) + (0 if out.bias is None else out.bias)
        require(near(here["hook_attn_out"], total), "out = Σ result + b")
        require(near(here["hook_resid_mid"], here["hook_resid_pre"] + here["hook_attn_out"]), "mid = pre + attn_out")
        normed = layer.block.sublayer(1).before(at[f"blocks.{index}.hook_resid_mid"])
        require(near(here["mlp.hook_pre"], mapped(normed, layer.ffn.up.weight, layer.ffn.up.bias)), "pre = W norm(mid)")
        positive = [[max(0.0, x) for x in row] for row in here["mlp.hook_pre"].tolist()]
        require(near(here["mlp.hook_post"], positive), "post = relu(pre)")
        down = layer.ffn.down
        require(
            near(here["hook_mlp_out"], mapped(here["mlp.hook_post"], down.weight, down.bias)), "mlp_out = W post + b"
        )
        require(near(here["hook_resid_post"], here["hook_resid_mid"] + here["hook_mlp_out"]), "post = mid + mlp_out")
    require(torch.equal(at["blocks.0.hook_resid_post"], at["blocks.1.hook_resid_pre"]), "a layer reads what is left")
    final: Any = model.stack.final_norm
    require(near(at["ln_final.hook_normalized"], final(at["blocks.1.hook_resid_post"])), "normalized = norm(post)")
    require(
        near(logits[0], mapped(at["ln_final.hook_normalized"], model.embedding.weight, None)), "logits = E normalized"
    )
    require(torch.equal(at["hook_logits"], logits[0]), "logits")
    return wrong


def test_what_places_show_follows_from_each_other(plain: Topology) -> None:
    assert broken(plain) == set()


def of_the_other_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Stack.sites

    def swapped(self: Stack, layers: str = "") -> Iterator[Site]:
        for site in before(self, layers):
            name = re.sub(r"(?<=blocks\.)(\d)(?=\.(attn|mlp))", lambda found: str(1 - int(found[0])), site.name)
            yield Site(name, site.owner, site.place, site.axes)

    monkeypatch.setattr(Stack, "sites", swapped)


def before_and_after_the_activation(monkeypatch: pytest.MonkeyPatch) -> None:
    swap, before = {"hook_pre": "hook_post", "hook_post": "hook_pre"}, Tapped.tap
    monkeypatch.setattr(Tapped, "tap", lambda self, place, value: before(self, swap.get(place, place), value))


def next_head(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Tapped.tap

    def shifted(self: Tapped, place: str, value: Tensor) -> Tensor:
        return before(self, place, value.roll(1, 2)).roll(-1, 2) if place == "hook_z" else before(self, place, value)

    monkeypatch.setattr(Tapped, "tap", shifted)


def before_the_branch_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swapformer.model.block.READ", ("hook_resid_mid", "hook_resid_pre"))


FAULTS = {
    of_the_other_layer: {"pattern = softmax(q·k/√E)", "out = W z + b"},
    before_and_after_the_activation: {"post = relu(pre)", "mlp_out = W post + b"},
    next_head: {"z = pattern · v", "out = W z + b"},
    before_the_branch_adds: {"mid = pre + attn_out"},
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_place_that_shows_something_else_is_caught(
    plain: Topology, fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert broken(plain) & FAULTS[fault]


def test_experts_show_what_goes_into_their_last_matrix() -> None:
    """Σ_j g_j (W_e post_j + b_e) over the experts e of a token is the update, by a loop."""
    model = model_of(ffn="moe")
    with torch.no_grad(), taps.record(model, "blocks.0.mlp.*", "blocks.0.hook_mlp_out") as seen:
        model(ids(1, 5))
    layer: Any = model.stack.layers[0]
    weights, chosen, post = (
        seen[f"blocks.0.mlp.hook_{name}"][0] for name in ("expert_weights", "expert_indices", "post")
    )
    expected = torch.zeros(5, model.dims.d_model, dtype=torch.float64)
    for t in range(5):
        for j, expert in enumerate(chosen[t].tolist()):
            down = layer.ffn.down
            made = mapped(post[t, j][None], down.weight[expert], None if down.bias is None else down.bias[expert])
            expected[t] += weights[t, j] * torch.tensor(made[0], dtype=torch.float64)
    assert near(seen["blocks.0.hook_mlp_out"][0], expected)


def test_a_uniform_pattern_in_place_of_the_learned_one_gives_the_mean_of_the_values(plain: Topology) -> None:
    """In that layer alone, by the reference, and only as long as it is asked for."""
    inputs, before = ids(1, 5), run(plain, ids(1, 5))
    uniform = {"blocks.1.attn.hook_pattern": lambda weights: torch.full_like(weights, 1 / weights.shape[-1])}
    with (
        torch.no_grad(),
        taps.replace(plain, uniform) as by_reference,
        taps.record(plain, "*.hook_v", "*.hook_z") as seen,
    ):
        plain(inputs)
    values = seen["blocks.1.attn.hook_v"][0].tolist()
    mean = [[sum(v[h // 2][e] for v in values) / 5 for e in range(8)] for h in range(4)]
    assert near(seen["blocks.1.attn.hook_z"][0], [mean] * 5)
    assert by_reference == ("blocks.1.attn",)
    assert torch.equal(run(plain, inputs), before)


def test_a_replaced_value_that_is_ignored_is_caught(plain: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    def looks_on(self: Tapped, place: str, value: Tensor) -> Tensor:
        for watcher in (self._watchers or {}).get(place, ()):
            watcher.act(value)
        return value

    monkeypatch.setattr(Tapped, "tap", looks_on)
    with pytest.raises(AssertionError):
        test_a_uniform_pattern_in_place_of_the_learned_one_gives_the_mean_of_the_values(plain)


@pytest.mark.parametrize(
    ("place", "chosen"),
    [
        ("blocks.1.hook_resid_pre", {}),
        ("blocks.0.hook_resid_post", {"placement": "post"}),
        ("blocks.1.hook_resid_pre", {"block": "parallel", "residual": "gated"}),
        ("blocks.1.hook_stream", {"residual": "hyper_connections"}),
        ("blocks.1.hook_stream", {"residual": "residual2", "placement": "dual"}),
        ("blocks.1.hook_stream", {"residual": "dense"}),
        ("blocks.1.hook_stream", {"residual": "reversible"}),
        ("ln_final.hook_normalized", {}),
        ("hook_embed", {}),
    ],
)
def test_another_inputs_stream_makes_its_answer(place: str, chosen: dict[str, str]) -> None:
    """Nothing but the stream goes from layer to layer, so with another input's stream the answer is the other's."""
    model, one, other = model_of(**chosen), ids(2, 6, seed=1), ids(2, 6, seed=2)
    with torch.no_grad(), taps.record(model, place) as seen:
        expected = model(other)
    with torch.no_grad(), taps.replace(model, {place: lambda _: seen[place]}):
        found = model(one)
    assert torch.allclose(found, expected, atol=CLOSE)
    assert not torch.allclose(run(model, one), expected, atol=CLOSE)


def test_a_memory_of_another_source_makes_its_answer() -> None:
    model, inputs = model_of(topology="encoder_decoder"), ids(1, 5)
    read = {seed: (ids(1, 7, seed=seed), Tokens.of(7)) for seed in (3, 4)}
    name = "encoder.ln_final.hook_normalized"
    with torch.no_grad(), taps.record(model) as seen:
        expected = model(inputs, None, *read[3])
    assert seen["decoder.0.cross_attn.hook_pattern"].shape == (1, 4, 5, 7)
    assert torch.equal(seen["decoder.0.hook_resid_mid"] + seen["decoder.0.hook_cross_attn_out"],
                       seen["decoder.0.hook_resid_mid_cross"])  # fmt: skip
    memory = seen[name]
    with torch.no_grad(), taps.replace(model, {name: lambda _: memory}):
        assert torch.equal(model(inputs, None, *read[4]), expected)


class Operators(TorchDispatchMode):
    """Writes down every operator that is dispatched, with the shapes of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shapes = [tuple(arg.shape) for arg in args if isinstance(arg, Tensor)]
        self.found.append(f"{func} {shapes}")
        return func(*args, **(kwargs or {}))


def step(model: Topology) -> list[str]:
    """The operators of a training step: forward, backward and update."""
    model.train()
    optimiser = torch.optim.AdamW(model.parameters())
    with Operators() as operators:
        loss_of(model, ids(2, 6)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return operators.found


STEPS = [
    {**PLAIN, "dropout": 0.1},
    {"attention": "linear", "ffn": "moe", "residual": "hyper_connections"},
    {"attention": "mamba2", "ffn": "block_sparse", "block": "parallel"},
    {"topology": "encoder_decoder", "attention": "mla", "ffn": "glu"},
]


@pytest.mark.parametrize("chosen", STEPS, ids=lambda chosen: chosen["attention"])
def test_unwatched_a_step_dispatches_the_same_operators_as_without_taps(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of(**chosen)
    found = step(subject.build())
    with monkeypatch.context() as absent:
        absent.setattr(Tapped, "tap", lambda self, place, value: value)
        absent.setattr(Tapped, "tap_as", lambda self, place, value, there, back: value)
        absent.setattr(Tapped, "watched", lambda self, *places: False)
        absent.setattr(Tapped, "observed", False)
        assert found == step(subject.build())
    monkeypatch.setattr(Tapped, "tap", lambda self, place, value: value.clone())
    assert found != step(subject.build()), "a tap that copies would be noticed"


def gradients(model: Topology) -> list[Tensor]:
    torch.manual_seed(0)
    model.zero_grad()
    loss_of(model, ids(2, 6)).backward()  # type: ignore[no-untyped-call]
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@contextmanager
def counted(model: Topology) -> Iterator[dict[str, int]]:
    """How often a forward and a backward pass come by each place."""
    visits: dict[str, int] = {}

    def see(name: str) -> Callable[[Tensor], Tensor]:
        def act(value: Tensor) -> Tensor:
            visits[name] = visits.get(name, 0) + 1
            return value

        return act

    quiet = [name for name in taps.names(model) if not name.endswith(("scores", "pattern", "hook_result"))]
    with taps.replace(model, {name: see(name) for name in quiet if taps.missing(model, name, replacing=True) is None}):
        yield visits


@pytest.mark.parametrize(
    ("chosen", "checkpointed"), [({**PLAIN, "dropout": 0.1}, True), ({"residual": "reversible"}, False)]
)
def test_what_is_computed_again_in_the_backward_pass_is_shown_once(chosen: dict[str, Any], checkpointed: bool) -> None:
    """And gradients are those of a model that nobody watches."""
    model = subject_of(**chosen).build().train()
    model.stack.checkpointed = checkpointed
    unwatched = gradients(model)
    with counted(model) as visits:
        watched = gradients(model)
    assert set(visits.values()) == {1} and len(visits) > 15
    assert all(torch.allclose(one, other, atol=CLOSE) for one, other in zip(watched, unwatched, strict=True))
    assert checkpointed == model.stack.checkpointed


def test_recording_in_training_takes_no_randomness_and_leaves_the_kernel_alone() -> None:
    model = subject_of(**PLAIN, dropout=0.2).build().train()
    unwatched = gradients(model)
    with taps.record(model) as seen:
        watched = gradients(model)
    assert all(torch.equal(one, other) for one, other in zip(watched, unwatched, strict=True))
    assert seen["blocks.0.attn.hook_z"].requires_grad
    assert torch.allclose(seen["blocks.0.attn.hook_pattern"].sum(-1), torch.ones(1, dtype=torch.float64))


def test_gradients_reach_what_was_recorded(plain: Topology) -> None:
    """The derivative by a head's output, against a finite difference of what replaces it."""
    name, inputs = "blocks.0.attn.hook_z", ids(1, 5)
    with taps.record(plain, name) as seen:
        (slope,) = torch.autograd.grad(plain(inputs)[0, -1, 3], seen[name])
    nudge = torch.zeros_like(slope)
    nudge[0, 2, 1, 0] = 1e-6
    sides = []
    for sign in (1, -1):
        with taps.replace(plain, {name: lambda z, sign=sign: z + sign * nudge}):
            sides.append(float(run(plain, inputs)[0, -1, 3]))
    assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(float(slope[0, 2, 1, 0]), abs=1e-6)


@pytest.mark.evidence
def test_a_compiled_model_computes_the_same_watched_and_unwatched() -> None:
    """Unwatched in one graph, without a break."""
    model = model_of(**PLAIN)
    inputs, expected = ids(1, 5), run(model, ids(1, 5))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(inputs), expected)
        with taps.record(model, "*.hook_pattern") as seen:
            assert torch.equal(compiled(inputs), expected)
        assert torch.equal(compiled(inputs), expected)
    assert seen.keys() == {"blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"}


class TestContexts:
    def test_act_in_the_order_in_which_they_were_entered(self, plain: Topology) -> None:
        name = "blocks.0.mlp.hook_post"
        with (
            taps.record(plain, name) as before,
            taps.replace(plain, {name: torch.zeros_like}),
            taps.record(plain, name) as after,
        ):
            run(plain, ids(1, 5))
        assert before[name].any() and not after[name].any()

    def test_leave_no_trace_after_an_error(self, plain: Topology) -> None:
        def fails(value: Tensor) -> Tensor:
            raise RuntimeError

        expected = run(plain, ids(1, 5))
        with pytest.raises(RuntimeError), taps.replace(plain, {"hook_embed": fails}):
            run(plain, ids(1, 5))
        assert not plain.observed and not plain.stack.observed
        assert torch.equal(run(plain, ids(1, 5)), expected)

    def test_show_the_last_of_several_forwards(self, plain: Topology) -> None:
        with taps.record(plain, "hook_logits") as seen:
            run(plain, ids(1, 5))
            last = run(plain, ids(1, 4))
        assert torch.equal(seen["hook_logits"], last)

    def test_show_each_step_of_a_generation_with_a_cache(self, plain: Topology) -> None:
        """The last row of the whole map; the answer itself is that of an unwatched model."""
        inputs, name, cache = ids(1, 5), "blocks.1.attn.hook_pattern", Cache()
        with torch.no_grad(), taps.record(plain, name) as whole:
            expected = plain(inputs)
        with torch.no_grad(), taps.record(plain, name) as seen:
            for place in range(5):
                tokens = Tokens.of(1, start=place)
                found = plain(inputs[:, place : place + 1], tokens, cache=cache)
        assert torch.allclose(found[:, -1], expected[:, -1], atol=CLOSE)
        assert torch.allclose(seen[name], whole[name][:, :, -1:], atol=CLOSE)


class TestErrors:
    def test_of_a_name_that_fits_nothing_name_near_ones(self, plain: Topology) -> None:
        with (
            pytest.raises(ValueError, match=r"near it are blocks\.\*\.attn\.hook_pattern") as error,
            taps.record(plain, "blocks.*.attn.hook_patern"),
        ):
            pass
        assert "\n" not in str(error.value) and len(str(error.value)) <= 300

    def test_of_long_and_strange_names_stay_one_line(self, plain: Topology) -> None:
        message = taps.missing(plain, "a\n\x1b[31m" * 100)
        assert message is not None and message.isprintable() and len(message) <= 300

    def test_are_known_before_anything_has_numbers(self) -> None:
        """On a device without numbers, as a probe asks."""
        model = subject_of(attention="mamba2").build().to("meta")
        assert taps.missing(model, "blocks.*.attn.hook_z") is None
        assert "fits 'blocks.*.attn.hook_pattern'; near it are" in str(
            taps.missing(model, "blocks.*.attn.hook_pattern")
        )

    def test_of_what_can_only_be_recorded_name_what_can_be_replaced(self) -> None:
        model = model_of(residual="hyper_connections")
        with (
            pytest.raises(ValueError, match=r"replace blocks\.0\.hook_stream"),
            taps.replace(model, {"blocks.*.hook_resid_mid": torch.zeros_like}),
        ):
            pass
        assert taps.missing(model, "blocks.*.hook_resid_mid") is None
        behind = {0: "replace blocks.1.hook_stream", 1: "replace ln_final.hook_normalized"}
        for layer, instead in behind.items():
            found = taps.missing(model, f"blocks.{layer}.hook_resid_post", replacing=True)
            assert found is not None and found.endswith(instead)

    @pytest.mark.parametrize("wrong", [lambda x: x[:, :1], lambda x: x.float(), lambda x: None])
    def test_of_a_function_name_the_place_and_both_shapes(self, plain: Topology, wrong: Any) -> None:
        with (
            pytest.raises(ValueError, match=r"blocks\.0\.mlp\.hook_post must be a tensor \(1, 5, 128\)"),
            taps.replace(plain, {"blocks.0.mlp.hook_post": wrong}),
        ):
            run(plain, ids(1, 5))

    def test_of_a_pattern_whose_keys_a_cache_has_summed_up(self) -> None:
        model = model_of(attention="linear")
        with pytest.raises(ValueError, match="cache=False"), taps.record(model, "*.hook_pattern"), torch.no_grad():
            model(ids(1, 5), cache=Cache())


def places(option: str, slot: str) -> str:
    """What the guide's table says of a part: its places without the layer's name, and their axes."""
    subject = subject_of(**{slot: option})
    names = taps.names(factory(subject.config["model"]["topology"])(build_plan(subject.config, 11)))
    layer = {"attention": "blocks.0.attn.", "ffn": "blocks.0.mlp."}.get(slot, "blocks.0.")
    if slot == "topology":
        shown = {
            re.sub(r"\.\d+\.", ".N.", name): axes
            for name, axes in names.items()
            if not re.search(r"\b(self_)?(attn|mlp)\.", name)
        }
        shown = {name: axes for name, axes in shown.items() if ".cross_attn." not in name}
    else:
        own = {name: axes for name, axes in names.items() if name.startswith(layer)}
        shown = {name.removeprefix(layer): axes for name, axes in own.items()}
        shown = (
            shown if slot in ("attention", "ffn") else {name: axes for name, axes in shown.items() if "." not in name}
        )
    return ", ".join(f"`{name}` [{', '.join(axes.split())}]" for name, axes in shown.items()) or "none"


def table() -> str:
    """The table of docs/guides/watching.md: parts that have the same places share a row."""
    lines = ["| slot | options | places |", "|---|---|---|"]
    for slot in ("topology", "residual", "block", "attention", "ffn"):
        rows: dict[str, list[str]] = {}
        for own, option in every_part():
            if own == slot:
                rows.setdefault(places(option, slot), []).append(option)
        lines += [f"| {slot} | {', '.join(options)} | {shown} |" for shown, options in rows.items()]
    return "\n".join(lines)


def test_the_guides_table_is_what_every_part_states(request: pytest.FixtureRequest) -> None:
    """Found by glob; that a forward comes by them with these axes is the law `places_hold`."""
    text = GUIDE.read_text(encoding="utf-8")
    before, rest = text.split("<!-- places -->\n")
    _, after = rest.split("<!-- end -->\n")
    if request.config.getoption("--refresh-golden"):
        GUIDE.write_text(f"{before}<!-- places -->\n{table()}\n<!-- end -->\n{after}", encoding="utf-8")
    assert table() in GUIDE.read_text(encoding="utf-8"), "write it anew with --refresh-golden"


def test_answers_of_whole_sequences_have_no_positions() -> None:
    """The encoder's example: axes say what the answer is."""
    model = model_of(topology="encoder", pattern="full")
    assert taps.names(model)["hook_logits"] == "B T V"
    assert answer(model, ids(1, 5)).shape == (1, 5, 11)
