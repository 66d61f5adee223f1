"""Llama (Touvron et al. 2023, arXiv:2302.13971) in the format of Hugging Face `transformers`."""

from __future__ import annotations

from typing import Any

from swapformer.errors import UsageError
from swapformer.interop.format import Config, Format, Setting, Variant
from swapformer.interop.gpt2 import ACTIVATIONS
from swapformer.interop.rules import inside, module

STRETCHES = {"default": "rope", "linear": "rope_linear", "llama3": "rope_llama3"}
"""Our option of model/position for each rope_type of config.json."""

_ROPE = {
    "rope_theta": "rope_theta",
    "partial_rotary_factor": "partial_rotary_factor",
    "factor": "rope_factor",
    "original_max_position_embeddings": "rope_original_len",
    "low_freq_factor": "rope_turns_low",
    "high_freq_factor": "rope_turns_high",
}
"""The flat key for each setting of rotary positions in its node of config.json."""


_NEEDED = {
    "linear": ("factor",),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
}
"""Settings that a rope_type requires."""


def flat(config: Config) -> Config:
    """Flatten rotary settings, which transformers 5 stores in `rope_parameters` and older ones in `rope_scaling`.

    Raises:
        UsageError: if a stretch lacks one of its numbers.
    """
    rest = {key: value for key, value in config.items() if key not in ("rope_parameters", "rope_scaling")}
    node = config.get("rope_scaling") or config.get("rope_parameters") or {}
    rest["rope_type"] = node.get("rope_type", node.get("type", "default"))
    if missing := [key for key in _NEEDED.get(rest["rope_type"], ()) if node.get(key) is None]:
        raise UsageError(f"rope_type {rest['rope_type']!r} of config.json needs {', '.join(missing)}, which it lacks")
    return rest | {_ROPE[key]: value for key, value in node.items() if key in _ROPE}


def nested(config: Config) -> dict[str, Any]:
    """Nest rotary settings in both ways, for old and new versions of transformers."""
    rest = {key: value for key, value in config.items() if key not in ("rope_type", *_ROPE.values())}
    node = {"rope_type": config.get("rope_type", "default")}
    node |= {key: config[ours] for key, ours in _ROPE.items() if ours in config}
    old = {"rope_scaling": node} if node["rope_type"] != "default" else {}
    return {**rest, "rope_theta": node.get("rope_theta", 10000.0), "rope_parameters": node, **old}


LLAMA = Format(
    name="llama",
    parts=("model/norm=rmsnorm", "model/placement=pre", "model/attention=gqa", "model/ffn=glu"),
    settings=(
        Setting("num_layers", ("num_hidden_layers",), 32),
        Setting("d_model", ("hidden_size",), 4096),
        Setting("num_heads", ("num_attention_heads",), 32),
        Setting("head_dim", ("head_dim",), lambda c: c.get("hidden_size", 4096) // c.get("num_attention_heads", 32)),
        Setting("attention.num_kv_heads", ("num_key_value_heads",), lambda c: c.get("num_attention_heads", 32)),
        Setting("max_len", ("max_position_embeddings",), 2048),
        Setting("position", ("rope_type",), "default", STRETCHES),
        Setting("position.base", ("rope_theta",), 10000.0),
        Setting("position.factor", ("rope_factor",), None),
        Setting("position.original_len", ("rope_original_len",), None),
        Setting("position.turns_low", ("rope_turns_low",), None),
        Setting("position.turns_high", ("rope_turns_high",), None),
        Setting("ffn.width", ("intermediate_size",), 11008),
        Setting("activation", ("hidden_act",), "silu", ACTIVATIONS),
        Setting("norm.eps", ("rms_norm_eps",), 1e-6),
        Setting("bias", ("attention_bias", "mlp_bias"), False),
        Setting("topology.tie_embeddings", ("tie_word_embeddings",), False),
    ),
    required={"partial_rotary_factor": 1.0},
    harmless=("attention_dropout", "pretraining_tp"),
    rules=(
        *module("model.embed_tokens", "embedding", kinds=("weight",), also=("lm_head",)),
        *inside("model.layers", {
            "self_attn.q_proj": "attention.query",
            "self_attn.k_proj": "attention.key",
            "self_attn.v_proj": "attention.value",
            "self_attn.o_proj": "attention.out",
            "mlp.gate_proj": "ffn.gate",
            "mlp.up_proj": "ffn.up",
            "mlp.down_proj": "ffn.down",
        }),
        *inside("model.layers", {
            "input_layernorm": "block.sublayers.0.before",
            "post_attention_layernorm": "block.sublayers.1.before",
        }, kinds=("weight",)),
        *module("model.norm", "stack.final_norm", kinds=("weight",)),
    ),
    variants=(Variant("LlamaForCausalLM", tuple(module("lm_head", "head", kinds=("weight",)))),),
    prefix="model.",
    unprefixed=("lm_head.",),
    ignored=(r".*rotary_emb\.inv_freq",),
    unread=("dropout",),
    flat=flat,
    nested=nested,
)  # fmt: skip
