"""DeepSeek, Qwen3-Next and Mamba-2 of Hugging Face `transformers` compute the same layers in float64, and backwards.

Weights are drawn wide. All of them cast to float32 inside: DeepSeek its RMSNorm, the rotation and the softmax
(DeepseekV2RMSNorm.forward, apply_rotary_emb, eager_attention_forward), Qwen3-Next its recurrence and the gated norm
(torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule, Qwen3NextRMSNormGated.forward), Mamba-2 its scan and
the gated norm (mamba2_chunk_scan, MambaRMSNormGated.forward). These casts are to float64 here, so that nothing but the
function is compared, and the bound is 1e-10 of the largest number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from casts import casts_lifted
from swapformer.model.attention import MLA, Attention, GatedDeltaNet, Mamba2
from swapformer.model.attention.recurrence import StateUpdates, by_chunk, by_step
from swapformer.model.context import Context
from swapformer.model.dims import Dims
from swapformer.model.kernel import Auto
from swapformer.model.normaliser import Softmax
from swapformer.model.pattern import Causal
from swapformer.model.position import Position, Rotary
from swapformer.model.score import Dot
from swapformer.model.tokens import Tokens
from swapformer.random import stream

pytest.importorskip("transformers")

HEADS, HEAD_DIM, WIDTH, LENGTH = 4, 8, 24, 70


@pytest.fixture(scope="module", autouse=True)
def float64() -> Iterator[None]:
    with casts_lifted():
        yield


def noise(*shape: int, name: str = "x") -> Tensor:
    return torch.randn(*shape, generator=stream("oracle of attention", name))


def widen(model: nn.Module) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            start = 1.0 if "norm" in name else 0.0
            parameter.copy_(start + 0.4 * noise(*parameter.shape, name=name))


Run = Callable[[Tensor], Tensor]


def gaps(ours: Run, theirs: Run, leaves: list[tuple[Tensor, Callable[[], Tensor]]]) -> float:
    """The largest difference of outputs and gradients, relative to 1 + the largest number.

    `leaves` are our parameters, each with what the gradient of theirs amounts to for ours.
    """
    x = noise(2, LENGTH, WIDTH)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outs = [run(x) for run, x in zip((ours, theirs), inputs, strict=True)]
    probe = noise(*outs[0].shape, name="probe")
    for out in outs:
        (out * probe).sum().backward()
    pairs = [tuple(outs), (inputs[0].grad, inputs[1].grad)]
    pairs += [(parameter.grad, expected()) for parameter, expected in leaves]
    return max(((a - b).abs().max() / (1 + b.abs().max())).item() for a, b in pairs)  # type: ignore[union-attr]


Part = Callable[[Callable[[str], Tensor]], Tensor]


def matched(
    ours: Attention, theirs: nn.Module, mapping: dict[str, Part], starts: dict[str, Tensor] | None = None
) -> list[tuple[Tensor, Callable[[], Tensor]]]:
    """Give our parameters the values of theirs; each mapping is linear and so maps gradients alike.

    `starts` are constants that our parameters are counted from.
    """
    parameters = dict(theirs.named_parameters())
    found = []
    with torch.no_grad():
        own = dict(ours.named_parameters())
        assert own.keys() == mapping.keys(), "the mapping must name every weight"
        for name, part in mapping.items():
            own[name].copy_(part(lambda key: parameters[key]) - (starts or {}).get(name, torch.zeros(())))
            found.append((own[name], lambda part=part: part(lambda key: parameters[key].grad)))
    return found


def named(key: str) -> Part:
    return lambda of: of(key)


def rows(key: str, begin: int, end: int | None) -> Part:
    return lambda of: of(key)[begin:end]


def per_head(key: str, sizes: tuple[int, ...], which: int) -> Part:
    """Rows that lie head by head as blocks of these sizes: one of the blocks."""
    return lambda of: of(key).unflatten(0, (HEADS, sum(sizes))).split(sizes, dim=1)[which].flatten(0, 1)


# DeepSeek.

RANK, QUERY_RANK, TURNING, VALUES = 10, 12, 4, 6
DEEPSEEK: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "kv_lora_rank": RANK,
    "qk_rope_head_dim": TURNING,
    "qk_nope_head_dim": HEAD_DIM - TURNING,
    "v_head_dim": VALUES,
    "rms_norm_eps": 1e-6,
    "attn_implementation": "eager",
}


def mla(query_rank: int | None, bias: bool, interleaved: bool) -> tuple[MLA, Run]:
    dims = Dims(WIDTH, 1, HEADS, HEAD_DIM, 128, 5, bias=bias)
    turned = Dims(WIDTH, 1, HEADS, TURNING, 128, 5)
    part = MLA(
        dims,
        score=Dot(dims, exponent=-0.5),
        normaliser=Softmax(dims),
        pattern=Causal(dims),
        kernel=Auto(dims),
        kv_rank=RANK,
        query_rank=query_rank,
        rotary_dim=TURNING,
        value_dim=VALUES,
        norm_eps=1e-6,
    )
    tokens = Tokens.of(LENGTH)
    rope = Rotary(turned, base=10000.0, fraction=1.0, interleaved=interleaved)
    return part, lambda x: part(x, Context(tokens, tokens, torch.float64), rope)


def deepseek_names(query_rank: int | None, bias: bool) -> dict[str, Part]:
    both, keys = (HEAD_DIM - TURNING, VALUES), "kv_b_proj.weight"
    names = {"key.weight": per_head(keys, both, 0), "value.weight": per_head(keys, both, 1)}
    names |= {"gain": named("kv_a_layernorm.weight")}
    for kind in ("weight", "bias")[: 1 + bias]:
        names |= {f"latent.{kind}": rows(f"kv_a_proj_with_mqa.{kind}", 0, RANK), f"out.{kind}": named(f"o_proj.{kind}")}
        names[f"rotary_key.{kind}"] = rows(f"kv_a_proj_with_mqa.{kind}", RANK, None)
        if query_rank is not None:
            names[f"query_latent.{kind}"] = named(f"q_a_proj.{kind}")
    if query_rank is None:
        return names | {"query.weight": named("q_proj.weight")}
    return names | {"query.weight": named("q_b_proj.weight"), "query_gain": named("q_a_layernorm.weight")}


CAUSAL = torch.full((1, 1, LENGTH, LENGTH), float("-inf"), dtype=torch.float64).triu(1)


@pytest.mark.parametrize("query_rank", [None, QUERY_RANK])
def test_mla_is_deepseek_v2s(query_rank: int | None, record_property: Callable[[str, object], None]) -> None:
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as deepseek

    bias = query_rank is not None
    config = deepseek.DeepseekV2Config(**DEEPSEEK, q_lora_rank=query_rank, attention_bias=bias, head_dim=TURNING)
    theirs = deepseek.DeepseekV2Attention(config, layer_idx=0).eval()
    widen(theirs)
    angles = deepseek.DeepseekV2RotaryEmbedding(config)(torch.empty(0), torch.arange(LENGTH)[None])
    ours, run = mla(query_rank, bias, interleaved=True)
    leaves = matched(ours, theirs, deepseek_names(query_rank, bias))
    worst = gaps(run, lambda x: theirs(x, attention_mask=CAUSAL, position_embeddings=angles)[0], leaves)
    record_property("largest_difference", worst)
    print(f"\nDeepSeek-V2, query_rank={query_rank}: {worst:.1e}")
    assert worst <= 1e-10


@pytest.mark.parametrize("interleaved", [True, False])
def test_mla_is_deepseek_v3s(interleaved: bool) -> None:
    """With either pairing of the dimensions that turn, and torch's fused attention."""
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

    settings = {**DEEPSEEK, "attn_implementation": "sdpa", "q_lora_rank": QUERY_RANK, "attention_bias": True}
    config = deepseek.DeepseekV3Config(**settings, rope_interleave=interleaved)
    theirs = deepseek.DeepseekV3Attention(config, layer_idx=0).eval()
    widen(theirs)
    angles = torch.arange(LENGTH)[:, None] * 10000.0 ** -(torch.arange(0, TURNING, 2) / TURNING)
    both = torch.cat([angles, angles], dim=-1)[None]
    ours, run = mla(QUERY_RANK, True, interleaved)
    leaves = matched(ours, theirs, deepseek_names(QUERY_RANK, True))
    worst = gaps(run, lambda x: theirs(x, (both.cos(), both.sin()), CAUSAL)[0], leaves)
    print(f"\nDeepSeek-V3, interleaved={interleaved}: {worst:.1e}")
    assert worst <= 1e-10


# The recurrent mixers. Their starts (`rates`, `steps`) are constants that our learned offsets are counted from.

RATES: dict[str, Any] = {"rate_min": 1.0, "rate_max": 16.0, "step_min": 0.001, "step_max": 0.1}


def taps(width: int) -> Part:
    """Their filters lie with the past first; ours are what is added to the place itself."""
    return lambda of: of("conv1d.weight")[:, 0].flip(-1).T


def recurrent(part: Attention) -> Run:
    tokens = Tokens.of(LENGTH)
    return lambda x: part(x, Context(tokens, tokens, torch.float64), Position(Dims(WIDTH, 1, HEADS, HEAD_DIM, 8, 5)))


def starts(part: Any) -> dict[str, Tensor]:
    """The identity of the convolution, and the heads' spread rates and steps."""
    identity = functional.one_hot(torch.tensor(0), len(part.taps)).double()[:, None]
    return {"taps": identity, "decay.rate": part.decay.rates, "decay.step": part.decay.steps}


def test_gated_delta_is_qwen3_nexts() -> None:
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    dims = Dims(WIDTH, 1, HEADS, HEAD_DIM, 128, 5, bias=False)
    config = qwen.Qwen3NextConfig(
        hidden_size=WIDTH,
        num_hidden_layers=1,
        linear_num_value_heads=HEADS,
        linear_num_key_heads=HEADS,
        linear_key_head_dim=HEAD_DIM,
        linear_value_head_dim=2 * HEAD_DIM,
        linear_conv_kernel_dim=4,
        rms_norm_eps=1e-6,
    )
    theirs = qwen.Qwen3NextGatedDeltaNet(config, layer_idx=0)
    widen(theirs)
    ours = GatedDeltaNet(dims, pattern=Causal(dims), expand=2, convolution=4, norm_eps=1e-6, **RATES)
    sizes = (HEAD_DIM, HEAD_DIM, 2 * HEAD_DIM, 2 * HEAD_DIM)
    mapping: dict[str, Part] = {
        f"{name}.weight": per_head("in_proj_qkvz.weight", sizes, i)
        for i, name in enumerate(("query", "key", "value", "gate"))
    }
    mapping |= {"strength.weight": per_head("in_proj_ba.weight", (1, 1), 0)}
    mapping |= {"decay.map.weight": per_head("in_proj_ba.weight", (1, 1), 1)}
    mapping |= {"taps": taps(4), "decay.rate": named("A_log"), "decay.step": named("dt_bias")}
    mapping |= {"gain": named("norm.weight"), "out.weight": named("out_proj.weight")}
    worst = gaps(recurrent(ours), lambda x: theirs(x), matched(ours, theirs, mapping, starts(ours)))
    print(f"\nQwen3-Next: {worst:.1e}")
    assert worst <= 1e-10


@pytest.mark.parametrize("form", [by_step, by_chunk])
@pytest.mark.parametrize("name", ["torch_recurrent_gated_delta_rule", "torch_chunk_gated_delta_rule"])
def test_the_rule_itself_is_qwen3_nexts_from_a_state_to_a_state(form: Any, name: str) -> None:
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    q, k, v = (noise(2, 3, LENGTH, width, name=f"{width}") for width in (5, 6, 7))
    q, k = (functional.normalize(y[..., :5], dim=-1) for y in (q, k))
    decay, strength = -noise(2, 3, LENGTH, name="decay").abs(), noise(2, 3, LENGTH, name="strength").sigmoid()
    start = noise(2, 3, 5, 7, name="state")
    out, state = form(StateUpdates(q * 5**-0.5, k, v, decay, strength), start)
    given = (y.transpose(1, 2) for y in (q, k, v, decay, strength))
    expected, end = getattr(qwen, name)(*given, initial_state=start, output_final_state=True)
    gap = max((out - expected.transpose(1, 2)).abs().max().item(), (state - end).abs().max().item())
    print(f"\n{name}, {form.__name__}: {gap:.1e}")
    assert gap <= 1e-10


@pytest.mark.parametrize("groups", [1, 2])
def test_mamba2_is_transformers_own(groups: int) -> None:
    from transformers.models.mamba2 import modeling_mamba2 as mamba

    dims, states, inner = Dims(WIDTH, 1, HEADS, 6, 128, 5, bias=False), 5, 2 * WIDTH
    config = mamba.Mamba2Config(
        hidden_size=WIDTH,
        num_hidden_layers=1,
        expand=2,
        num_heads=HEADS,
        head_dim=12,
        state_size=states,
        n_groups=groups,
        conv_kernel=4,
        use_conv_bias=False,
        use_bias=False,
        chunk_size=16,
        layer_norm_epsilon=1e-5,
    )
    theirs = mamba.Mamba2Mixer(config, layer_idx=0)
    widen(theirs)
    ours = Mamba2(
        dims,
        pattern=Causal(dims),
        state_dim=states,
        num_groups=groups,
        expand=2,
        convolution=4,
        norm_eps=1e-5,
        **RATES,
    )
    keys, mapping = groups * states, dict[str, Part]()
    begin = 0
    for name, width in (("gate", inner), ("value", inner), ("key", keys), ("query", keys), ("decay.map", HEADS)):
        mapping[f"{name}.weight"] = rows("in_proj.weight", begin, begin + width)
        begin += width
    order = torch.cat([torch.arange(inner + keys, inner + 2 * keys), torch.arange(inner, inner + keys)])
    order = torch.cat([order, torch.arange(inner)])  # theirs is x, B, C; ours C, B, x
    mapping["taps"] = lambda of: taps(4)(of)[:, order]
    mapping |= {"decay.rate": named("A_log"), "decay.step": named("dt_bias"), "skip": named("D")}
    mapping |= {"gain": named("norm.weight"), "out.weight": named("out_proj.weight")}
    worst = gaps(recurrent(ours), lambda x: theirs(x), matched(ours, theirs, mapping, starts(ours)))
    print(f"\nMamba-2, groups={groups}: {worst:.1e}")
    assert worst <= 1e-10
