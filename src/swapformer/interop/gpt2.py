"""GPT-2 (Radford et al. 2019) in the format of Hugging Face `transformers`."""

from __future__ import annotations

from swapformer.interop.format import Format, Setting, Variant
from swapformer.interop.rules import inside, module
from swapformer.model.layers import Role

ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "mish": "mish",
    "relu2": "relu2",
    "sigmoid": "sigmoid",
}
"""Our option of model/activation for each word of Hugging Face; of several words for one, the first is written."""

GPT2 = Format(
    name="gpt2",
    parts=("model/position=learned", "model/norm=layernorm", "model/placement=pre", "model/ffn=mlp"),
    settings=(
        Setting("num_layers", ("n_layer",), 12),
        Setting("d_model", ("n_embd",), 768),
        Setting("num_heads", ("n_head",), 12),
        Setting("max_len", ("n_positions",), 1024),
        Setting("ffn.width", ("n_inner",), lambda config: 4 * config.get("n_embd", 768)),
        Setting("activation", ("activation_function",), "gelu_new", ACTIVATIONS),
        Setting("norm.eps", ("layer_norm_epsilon",), 1e-5),
        Setting("topology.tie_embeddings", ("tie_word_embeddings",), True),
        Setting("dropout", ("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.1),
    ),
    required={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    harmless=("reorder_and_upcast_attn", "n_ctx", "summary_type", "summary_use_proj", "summary_activation",
              "summary_proj_to_labels", "summary_first_dropout"),
    rules=(
        *module("transformer.wte", "embedding", kinds=("weight",), also=("lm_head",)),
        *module("transformer.wpe", "stack.positions.Learned.table", kinds=("weight",)),
        *inside("transformer.h", {
            "attn.c_attn": ("attention.query", "attention.key", "attention.value"),
            "attn.c_proj": "attention.out",
            "mlp.c_fc": "ffn.up",
            "mlp.c_proj": "ffn.down",
        }, transposed=True),
        *inside("transformer.h", {"ln_1": "block.sublayers.0.before", "ln_2": "block.sublayers.1.before"}),
        *module("transformer.ln_f", "stack.final_norm"),
    ),
    variants=(Variant("GPT2LMHeadModel", tuple(module("lm_head", "head", kinds=("weight",)))),),
    prefix="transformer.",
    unprefixed=("lm_head.",),
    filled=(Role.BIAS,),
    ignored=(r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",),
)  # fmt: skip
