"""OLMo 2, Qwen3, Gemma 2, Nemotron, Cohere and Phi of Hugging Face `transformers` compute the same in float64.

They are the oracles of the placements inside and sandwich, of the norms of queries and keys, of the softcap, of relu2
and of the parallel block. Weights are drawn wide (standard deviation 0.3). All of them cast to float32 inside: their
rotary angles (…RotaryEmbedding.forward) and softmax (eager_attention_forward), and four of them their norms
(…RMSNorm.forward, CohereLayerNorm.forward), so the bound is 1e-5 of the largest number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from configs import small
from swapformer.training.assemble import build_model

transformers = pytest.importorskip("transformers")

VOCABULARY, LENGTH, LAYERS = 17, 20, 2
Mapping = dict[str, Tensor]
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 52,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "attn_implementation": "eager",
}
GQA = ["model/position=rope", "model/attention=gqa", "model.attention.num_kv_heads=2"]
GATED = ["model/ffn=glu", "model.ffn.width=52", "model/activation=silu", "model.bias=false"]
RMS = ["model/norm=rmsnorm"]
UNTIED = ["model.topology.tie_embeddings=false"]


@pytest.fixture(scope="module", autouse=True)
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def rename(state: Mapping, names: dict[str, str], **top: str) -> Mapping:
    """Our names for their weights: `top` for the model's own, `names` for those of each layer; a + 1 adds 1 (Gemma)."""
    pairs = dict(top)
    for i in range(LAYERS):
        pairs.update({f"stack.layers.{i}.{a}": f"model.layers.{i}.{b}" for a, b in names.items()})
    return {a: state[b.removesuffix("+1")] + b.endswith("+1") for a, b in pairs.items()}


def attention(out: str = "o_proj", kinds: tuple[str, ...] = ("weight",)) -> dict[str, str]:
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": out}
    return {f"attention.{a}.{kind}": f"self_attn.{b}.{kind}" for a, b in names.items() for kind in kinds}


def norms(**of: str) -> dict[str, str]:
    return {f"block.sublayers.{a[-1]}.{a[:-1]}.weight": f"{b}" for a, b in of.items()}


MLP = {f"ffn.{name}.weight": f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
TOP = {"embedding.weight": "model.embed_tokens.weight", "stack.final_norm.weight": "model.norm.weight"}
HEAD = {"head.weight": "lm_head.weight"}
QK = {"attention.qk_norm.query": "self_attn.q_norm.weight", "attention.qk_norm.key": "self_attn.k_norm.weight"}
Case = tuple[nn.Module, list[str], Callable[[Mapping], Mapping]]


def olmo2() -> Case:
    """Norms inside the branches only; queries and keys normed over their full width."""
    theirs = transformers.Olmo2ForCausalLM(transformers.Olmo2Config(**SIZES, rms_norm_eps=1e-6))
    ours = [*GQA, *GATED, *RMS, *UNTIED, "model/placement=inside", "model/qk_norm=rmsnorm_width"]
    inside = norms(inside0="post_attention_layernorm.weight", inside1="post_feedforward_layernorm.weight")
    return theirs, ours, lambda s: rename(s, {**attention(), **MLP, **QK, **inside}, **TOP, **HEAD)


def qwen3() -> Case:
    """Queries and keys of each head normed by RMSNorm."""
    theirs = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, head_dim=8, rms_norm_eps=1e-6))
    ours = [*GQA, *GATED, *RMS, *UNTIED, "model/qk_norm=rmsnorm"]
    before = norms(before0="input_layernorm.weight", before1="post_attention_layernorm.weight")
    return theirs, ours, lambda s: rename(s, {**attention(), **MLP, **QK, **before}, **TOP, **HEAD)


def gemma2() -> Case:
    """Norms before and inside with gains γ + 1, logits capped, embeddings scaled by √d."""
    settings = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 64, "attn_logit_softcapping": 3.0}
    config = transformers.Gemma2Config(**SIZES, **settings, final_logit_softcapping=None, rms_norm_eps=1e-6)
    theirs = transformers.Gemma2ForCausalLM(config)
    parts = ["model/placement=sandwich", "model/score=softcap", "model.score.cap=3.0"]
    scale = [f"model.topology.embedding_scale={32**0.5!r}"]
    ours = [*GQA, *GATED, *RMS, *parts, *scale, "model/activation=gelu_tanh"]
    both = norms(
        before0="input_layernorm.weight+1",
        inside0="post_attention_layernorm.weight+1",
        before1="pre_feedforward_layernorm.weight+1",
        inside1="post_feedforward_layernorm.weight+1",
    )
    top = {**TOP, "stack.final_norm.weight": "model.norm.weight+1"}
    return theirs, ours, lambda s: rename(s, {**attention(), **MLP, **both}, **top)


def nemotron() -> Case:
    """Squared ReLU, LayerNorm with gain γ + 1, half of each head rotated."""
    theirs = transformers.NemotronForCausalLM(
        transformers.NemotronConfig(**SIZES, hidden_act="relu2", partial_rotary_factor=0.5, norm_eps=1e-5)
    )
    ours = [*GQA, *UNTIED, "model.position.fraction=0.5", "model/activation=relu2", "model.ffn.width=52"]
    names = {**attention(), "ffn.up.weight": "mlp.up_proj.weight", "ffn.down.weight": "mlp.down_proj.weight"}
    for j, norm in enumerate(("input_layernorm", "post_attention_layernorm")):
        names[f"block.sublayers.{j}.before.weight"] = f"{norm}.weight+1"
        names[f"block.sublayers.{j}.before.bias"] = f"{norm}.bias"
    top = {**TOP, "stack.final_norm.weight": "model.norm.weight+1", "stack.final_norm.bias": "model.norm.bias"}
    return theirs, ours, lambda s: rename(s, names, **top, **HEAD)


def cohere() -> Case:
    """Attention and feed-forward layer side by side under one norm, neighbours paired in the rotation."""
    theirs = transformers.CohereForCausalLM(transformers.CohereConfig(**SIZES, logit_scale=1.0, layer_norm_eps=1e-5))
    ours = [*GQA, *GATED, "model/position=rope_interleaved", "model.position.base=500000.0", "model/block=parallel"]
    return theirs, ours, lambda s: rename(s, {**attention(), **MLP, **norms(before0="input_layernorm.weight")}, **TOP)


def phi() -> Case:
    """Attention and feed-forward layer side by side, with biases; its head's bias, which we have not, is zero."""
    theirs = transformers.PhiForCausalLM(
        transformers.PhiConfig(**SIZES, partial_rotary_factor=0.5, hidden_act="gelu_new", layer_norm_eps=1e-5)
    )
    parts = ["model/block=parallel", "model/activation=gelu_tanh", "model.position.fraction=0.5", "model.ffn.width=52"]
    names = attention("dense", ("weight", "bias"))
    top = {"embedding.weight": "model.embed_tokens.weight"}
    for kind in ("weight", "bias"):
        names |= {f"ffn.up.{kind}": f"mlp.fc1.{kind}", f"ffn.down.{kind}": f"mlp.fc2.{kind}"}
        names[f"block.sublayers.0.before.{kind}"] = f"input_layernorm.{kind}"
        top[f"stack.final_norm.{kind}"] = f"model.final_layernorm.{kind}"
    return theirs, [*GQA, *UNTIED, *parts], lambda s: rename(s, names, **top, **HEAD)


def widen(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name == "lm_head.bias":
                parameter.zero_()
            else:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("make", [olmo2, qwen3, gemma2, nemotron, cohere, phi])
def test_outputs_and_gradients_agree(make: Callable[[], Case], record_property: Any) -> None:
    theirs, overrides, weights = make()
    widen(theirs.eval())
    bias = ["model.bias=false"] if make in (olmo2, qwen3, gemma2, cohere) else []
    ours = build_model(small([*overrides, f"model.num_layers={LAYERS}", *bias]), VOCABULARY).double().eval()
    mapped = weights(dict(theirs.state_dict()))
    if make is nemotron:  # biases in its norms alone
        missing = {name for name in ours.state_dict() if name not in mapped}
        assert all(name.endswith("bias") for name in missing)
        mapped |= {name: torch.zeros_like(ours.state_dict()[name]) for name in missing}
    assert set(mapped) == set(ours.state_dict()), "the mapping must name every weight"
    ours.load_state_dict({name: weight.clone() for name, weight in mapped.items()})

    ids = torch.randint(VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    mine, seen = ours(ids), []
    expected = theirs(ids, output_hidden_states=True)
    hooks = [layer.register_forward_hook(lambda _m, _i, out: seen.append(out)) for layer in ours.stack.layers]
    ours(ids)
    for hook in hooks:
        hook.remove()
    pairs = [*zip(seen[:-1], expected.hidden_states[1:-1], strict=True), (mine, expected.logits)]
    gap = max(((a - b).abs().max() / (1 + b.abs().max())).item() for a, b in pairs)
    assert gap <= 1e-5

    probe = torch.randn(mine.shape, generator=torch.Generator().manual_seed(2))
    (mine * probe).sum().backward()
    (expected.logits * probe).sum().backward()
    grads = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    slopes = weights(Shifted(grads))
    worst = 0.0
    for name, parameter in ours.named_parameters():
        if name in slopes:
            worst = max(worst, ((parameter.grad - slopes[name]).abs().max() / (1 + slopes[name].abs().max())).item())
    assert worst <= 1e-5
    record_property("largest_difference", max(gap, worst))
    print(f"\n{make.__name__}: outputs {gap:.1e}, gradients {worst:.1e}")


class Shifted(dict[str, Tensor]):
    """Gradients under the mapping of weights: where a weight is γ + 1, its gradient is that of γ."""

    def __getitem__(self, name: str) -> Tensor:
        return Gradient(super().__getitem__(name))  # type: ignore[return-value]


class Gradient:
    """A tensor to which adding a constant adds nothing."""

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __add__(self, other: bool) -> Tensor:
        return self.value
