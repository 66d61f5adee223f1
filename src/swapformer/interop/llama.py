"""Llama (Touvron et al. 2023, arXiv:2302.13971) as Hugging Face `transformers` keeps it."""

from __future__ import annotations

from typing import Any

from swapformer.errors import UsageError
from swapformer.interop.format import Config, Format, Setting, Variant
from swapformer.interop.gpt2 import ACTIVATIONS
from swapformer.interop.rules import inside, module


def flat(config: Config) -> Config:
    """Rotary settings are nested since transformers 5, and stood beside `rope_scaling` before."""
    rest = {key: value for key, value in config.items() if key not in ("rope_parameters", "rope_scaling")}
    for node in [config.get(key) or {} for key in ("rope_scaling", "rope_parameters")]:
        kind = node.get("rope_type", node.get("type", "default"))
        if kind != "default":
            raise UsageError(
                f"rope_type of config.json must be 'default', but it is {kind!r}; no position here turns in that way"
            )
        rest |= {key: node[key] for key in ("rope_theta", "partial_rotary_factor") if key in node}
    return rest


def nested(config: Config) -> dict[str, Any]:
    """Both spellings of the rotary base, for old and new readers."""
    base = {key: config[key] for key in ("rope_theta", "partial_rotary_factor") if key in config}
    return {**config, "rope_parameters": {"rope_type": "default", **base}}


LLAMA = Format(
    name="llama",
    parts=("model/position=rope", "model/norm=rmsnorm", "model/placement=pre", "model/attention=gqa", "model/ffn=glu"),
    settings=(
        Setting("num_layers", ("num_hidden_layers",), 32),
        Setting("d_model", ("hidden_size",), 4096),
        Setting("num_heads", ("num_attention_heads",), 32),
        Setting("head_dim", ("head_dim",), lambda c: c.get("hidden_size", 4096) // c.get("num_attention_heads", 32)),
        Setting("attention.num_kv_heads", ("num_key_value_heads",), lambda c: c.get("num_attention_heads", 32)),
        Setting("max_len", ("max_position_embeddings",), 2048),
        Setting("position.base", ("rope_theta",), 10000.0),
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
    beside=("lm_head.",),
    ignored=(r".*rotary_emb\.inv_freq",),
    unread=("dropout",),
    flat=flat,
    nested=nested,
)  # fmt: skip
