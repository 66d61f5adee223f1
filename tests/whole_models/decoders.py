"""Models of one stack: those that predict the next symbol, and ModernBERT, which our decoder without its mask is."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from swapformer.interop.gpt2 import GPT2
from swapformer.interop.llama import LLAMA
from swapformer.interop.rules import Rule, inside, module
from whole_models.case import (
    AFTER,
    BEFORE,
    DOWN,
    INSIDE,
    LAYERS,
    LEARNED,
    LENGTH,
    OUT,
    QKV,
    REST,
    RMS,
    SIZES,
    UP,
    VOCABULARY,
    WEIGHT,
    Case,
    Given,
    model_of,
)

GPT = {"n_embd": 32, "n_layer": LAYERS, "n_head": 4, **REST}


NARROW = {**SIZES, "intermediate_size": 52, "num_key_value_heads": 2}


ROPE = ["model/position=rope"]


GQA = ["model/attention=gqa", "model.attention.num_kv_heads=2"]


GATED = ["model/ffn=glu", "model.ffn.width=52", "model/activation=silu", "model.bias=false"]


UNTIED = ["model.topology.tie_embeddings=false"]


TANH = ["model/activation=gelu_tanh"]


PARALLEL = ["model/block=parallel"]


def projections(place: str, out: str = "o_proj", **layout: Any) -> list[Rule]:
    """Queries, keys, values and output as linear maps of their own."""
    names = {f"self_attn.{a}_proj": own for a, own in zip("qkv", QKV, strict=True)}
    return inside(place, {**names, f"self_attn.{out}": OUT}, **layout)


def llama_like(norms: dict[str, str], *, plus: float = 0.0, **layout: Any) -> list[Rule]:
    """What the models that descend from Llama share."""
    return [
        *module("model.embed_tokens", "embedding", kinds=WEIGHT),
        *module("model.norm", "stack.final_norm", plus=plus, **layout),
        *module("lm_head", "head", kinds=WEIGHT),
        *projections("model.layers", **layout),
        *inside("model.layers", norms, plus=plus, **layout),
    ]


MLP = inside("model.layers", {f"mlp.{name}_proj": f"ffn.{name}" for name in ("gate", "up", "down")}, kinds=WEIGHT)


PRE = {"input_layernorm": BEFORE[0], "post_attention_layernorm": BEFORE[1]}


QK_NORM = [
    Rule(f"model.layers.{{layer}}.self_attn.{a}_norm.weight", (f"stack.layers.{{layer}}.attention.qk_norm.{own}",))
    for a, own in (("q", "query"), ("k", "key"))
]


def no_bias(*ours: str) -> list[Rule]:
    """Biases of ours in every layer that they have not."""
    return [Rule(None, (f"stack.layers.{{layer}}.{name}.bias",)) for name in ours]


def zero_head_bias(model: nn.Module) -> None:
    """Our heads have no bias."""
    nn.init.zeros_(model.lm_head.bias)


def one_norm(model: nn.Module) -> None:
    """GPT-NeoX norms the input of each parallel branch by itself; our parallel block has one norm for all."""
    for layer in model.gpt_neox.layers:
        layer.post_attention_layernorm.load_state_dict(layer.input_layernorm.state_dict())


def first_norm(model: nn.Module) -> None:
    """ModernBERT's first layer has no norm before its attention; it is given one."""
    norm = nn.LayerNorm(32, bias=False)
    nn.init.normal_(norm.weight, 1.0, 0.3)
    model.layers[0].attn_norm = norm


def tied_to_embedding(model: nn.Module, given: Given) -> Tensor:
    """The logits of a model without a head."""
    return model(given.ids).last_hidden_state @ model.get_input_embeddings().weight.T


class TorchDecoder(nn.Module):
    """torch.nn.TransformerEncoder under a causal mask, between embeddings and a head."""

    def __init__(self, norm_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 128, 0.0, "relu", batch_first=True, norm_first=norm_first)
        self.embedding = nn.Embedding(VOCABULARY, 32)
        final = nn.LayerNorm(32) if norm_first else None
        self.encoder = nn.TransformerEncoder(layer, LAYERS, norm=final, enable_nested_tensor=False)
        self.head = nn.Linear(32, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.encoder(self.embedding(ids), mask, is_causal=True))


def nothing(model: nn.Module) -> None:
    """Theirs is one that ours can be."""


def one_norm_rules() -> list[Rule]:
    """Our one norm of a parallel block, which is two equal ones of theirs."""
    also = ["gpt_neox.layers.{layer}.post_attention_layernorm"]
    return inside("gpt_neox.layers", {"input_layernorm": BEFORE[0]}, also=also)


def heads_of_8(heads: int) -> list[str]:
    """The sizes of a model with so many heads."""
    return [f"model.d_model={8 * heads}", f"model.num_heads={heads}"]


DECODERS = [
    Case(
        "gpt2",
        model_of("GPT2", GPT, "LMHeadModel", n_positions=LENGTH),
        ["model/position=learned", f"model.max_len={LENGTH}", *TANH],
        [*GPT2.rules, *GPT2.variants[0].rules],
        "transformer.h",
    ),
    *(
        Case(
            f"llama, {heads} key-value heads",
            model_of("Llama", NARROW, num_key_value_heads=heads),
            [*ROPE, *RMS, *GATED, *UNTIED, "model/attention=gqa", f"model.attention.num_kv_heads={heads}"],
            [*LLAMA.rules, *LLAMA.variants[0].rules],
        )
        for heads in (4, 2, 1)
    ),
    Case(
        "olmo2",
        model_of("Olmo2", NARROW, rms_norm_eps=1e-6),
        [*ROPE, *GQA, *GATED, *RMS, *UNTIED, "model/placement=inside", "model/qk_norm=rmsnorm_width"],
        [
            *llama_like({"post_attention_layernorm": INSIDE[0], "post_feedforward_layernorm": INSIDE[1]}, kinds=WEIGHT),
            *MLP,
            *QK_NORM,
        ],
    ),
    Case(
        "qwen3",
        model_of("Qwen3", NARROW, head_dim=8, rms_norm_eps=1e-6),
        [*ROPE, *GQA, *GATED, *RMS, *UNTIED, "model/qk_norm=rmsnorm"],
        [*llama_like(PRE, kinds=WEIGHT), *MLP, *QK_NORM],
    ),
    Case(  # gains are kept as γ − 1, embeddings are scaled by √d
        "gemma2",
        model_of(
            "Gemma2",
            NARROW,
            head_dim=8,
            query_pre_attn_scalar=8,
            sliding_window=64,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=None,
            rms_norm_eps=1e-6,
        ),
        [
            *(*ROPE, *GQA, *GATED, *RMS, "model/activation=gelu_tanh", "model/placement=sandwich"),
            *("model/score=softcap", "model.score.cap=3.0", f"model.topology.embedding_scale={32**0.5!r}"),
        ],
        [
            *llama_like(
                {
                    "input_layernorm": BEFORE[0],
                    "post_attention_layernorm": INSIDE[0],
                    "pre_feedforward_layernorm": BEFORE[1],
                    "post_feedforward_layernorm": INSIDE[1],
                },
                plus=1.0,
                kinds=WEIGHT,
            ),
            *MLP,
        ],
    ),
    Case(  # biases in its norms alone, whose gains are kept as γ − 1
        "nemotron",
        model_of("Nemotron", NARROW, hidden_act="relu2", partial_rotary_factor=0.5, norm_eps=1e-5),
        [*ROPE, *GQA, *UNTIED, "model.position.fraction=0.5", "model/activation=relu2", "model.ffn.width=52"],
        [
            *module("model.embed_tokens", "embedding", kinds=WEIGHT),
            *module("model.norm", "stack.final_norm", plus=1.0),
            *module("lm_head", "head", kinds=WEIGHT),
            *projections("model.layers", kinds=WEIGHT),
            *inside("model.layers", {"mlp.up_proj": UP, "mlp.down_proj": DOWN}, kinds=WEIGHT),
            *inside("model.layers", PRE, plus=1.0),
            *no_bias(*QKV, OUT, UP, DOWN),
        ],
    ),
    Case(
        "cohere",
        model_of("Cohere", NARROW, logit_scale=1.0, layer_norm_eps=1e-5),
        [*GQA, *GATED, *PARALLEL, "model/position=rope_interleaved", "model.position.base=500000.0"],
        [*llama_like({"input_layernorm": BEFORE[0]}, kinds=WEIGHT), *MLP],
    ),
    Case(
        "phi",
        model_of("Phi", NARROW, partial_rotary_factor=0.5, hidden_act="gelu_new", layer_norm_eps=1e-5),
        [*ROPE, *GQA, *UNTIED, *PARALLEL, *TANH, "model.position.fraction=0.5", "model.ffn.width=52"],
        [
            *module("model.embed_tokens", "embedding", kinds=WEIGHT),
            *module("model.final_layernorm", "stack.final_norm"),
            *module("lm_head", "head", kinds=WEIGHT),
            Rule("lm_head.bias", ()),
            *projections("model.layers", "dense"),
            *inside("model.layers", {"mlp.fc1": UP, "mlp.fc2": DOWN, "input_layernorm": BEFORE[0]}),
        ],
        prepare=zero_head_bias,
    ),
    *(
        Case(  # its positions are counted from 2
            f"opt, {placement}",
            model_of("OPT", SIZES, ffn_dim=128, do_layer_norm_before=placement == "pre"),
            ["model/position=learned", "model.max_len=64", "model/activation=relu", f"model/placement={placement}"],
            [
                *module("model.decoder.embed_tokens", "embedding", kinds=WEIGHT),
                *module("model.decoder.embed_positions", LEARNED, kinds=WEIGHT, skip=2),
                *projections("model.decoder.layers", "out_proj"),
                *inside("model.decoder.layers", {"fc1": UP, "fc2": DOWN}),
                *inside(
                    "model.decoder.layers", dict(zip(("self_attn_layer_norm", "final_layer_norm"), norms, strict=True))
                ),
                *module("model.decoder.final_layer_norm", "stack.final_norm"),
            ],
            "model.decoder.layers",
        )
        for placement, norms in (("pre", BEFORE), ("post", AFTER))
    ),
    *(
        Case(  # the constants of its GELU have eight digits
            f"bloom, {heads} heads",
            model_of("Bloom", REST, hidden_size=8 * heads, n_layer=LAYERS, n_head=heads),
            ["model/position=alibi", "model.placement.embed=true", *TANH, *heads_of_8(heads)],
            [
                *module("transformer.word_embeddings", "embedding", kinds=WEIGHT),
                *module("transformer.word_embeddings_layernorm", "stack.embed_norm"),
                *inside("transformer.h", {"self_attention.query_key_value": QKV}, blocks=heads),
                *inside(
                    "transformer.h", {"self_attention.dense": OUT, "mlp.dense_h_to_4h": UP, "mlp.dense_4h_to_h": DOWN}
                ),
                *inside("transformer.h", PRE),
                *module("transformer.ln_f", "stack.final_norm"),
            ],
            "transformer.h",
            bound=1e-7,
        )
        for heads in (4, 6)
    ),
    *(
        Case(
            f"mpt, {heads} heads",
            model_of("Mpt", REST, d_model=8 * heads, n_layers=LAYERS, n_heads=heads, max_seq_len=LENGTH),
            ["model/position=alibi", "model.bias=false", *heads_of_8(heads)],
            [
                *module("transformer.wte", "embedding", kinds=WEIGHT),
                *inside("transformer.blocks", {"attn.Wqkv": QKV, "attn.out_proj": OUT}, kinds=WEIGHT),
                *inside("transformer.blocks", {"ffn.up_proj": UP, "ffn.down_proj": DOWN}, kinds=WEIGHT),
                *inside("transformer.blocks", {"norm_1": BEFORE[0], "norm_2": BEFORE[1]}, kinds=WEIGHT),
                *module("transformer.norm_f", "stack.final_norm", kinds=WEIGHT),
            ],
            "transformer.blocks",
        )
        for heads in (4, 6, 12)
    ),
    *(
        Case(
            f"gpt-neox, {'parallel' if parallel else 'sequential'}",
            model_of("GPTNeoX", SIZES, intermediate_size=128, use_parallel_residual=parallel, rotary_pct=fraction),
            [*ROPE, *UNTIED, f"model.position.fraction={fraction}", *(PARALLEL if parallel else [])],
            [
                *module("gpt_neox.embed_in", "embedding", kinds=WEIGHT),
                *inside("gpt_neox.layers", {"attention.query_key_value": QKV}, blocks=4),
                *inside(
                    "gpt_neox.layers", {"attention.dense": OUT, "mlp.dense_h_to_4h": UP, "mlp.dense_4h_to_h": DOWN}
                ),
                *(one_norm_rules() if parallel else inside("gpt_neox.layers", PRE)),
                *module("gpt_neox.final_layer_norm", "stack.final_norm"),
                *module("lm_head", "head", kinds=WEIGHT),
            ],
            "gpt_neox.layers",
            prepare=one_norm if parallel else nothing,
        )
        for parallel, fraction in ((False, 1.0), (False, 0.25), (True, 0.25))
    ),
    *(
        Case(
            f"gpt-j, {turning} of 8 turned",
            model_of("GPTJ", GPT, n_positions=64, rotary_dim=turning),
            [*UNTIED, *PARALLEL, *TANH, "model/position=rope_interleaved", f"model.position.fraction={turning / 8}"],
            [
                *module("transformer.wte", "embedding", kinds=WEIGHT),
                *inside(
                    "transformer.h", {f"attn.{a}_proj": own for a, own in zip("qkv", QKV, strict=True)}, kinds=WEIGHT
                ),
                *inside("transformer.h", {"attn.out_proj": OUT}, kinds=WEIGHT),
                *no_bias(*QKV, OUT),
                *inside("transformer.h", {"mlp.fc_in": UP, "mlp.fc_out": DOWN, "ln_1": BEFORE[0]}),
                *module("transformer.ln_f", "stack.final_norm"),
                *module("lm_head", "head", kinds=WEIGHT),
                Rule("lm_head.bias", ()),
            ],
            "transformer.h",
            prepare=zero_head_bias,
        )
        for turning in (4, 8)
    ),
    Case(
        "mistral, window of 6",
        model_of("Mistral", NARROW, sliding_window=6),
        [*ROPE, *RMS, *GATED, *UNTIED, *GQA, "model/pattern=window", "model.pattern.before=5"],
        [*LLAMA.rules, *LLAMA.variants[0].rules],
    ),
    Case(  # global and local layers in turn, logits without a scale, biases where attention writes
        "gpt-neo",
        model_of(
            "GPTNeo",
            REST,
            hidden_size=32,
            max_position_embeddings=64,
            num_layers=3,
            num_heads=4,
            attention_types=[[["global", "local", "global"], 1]],
            window_size=6,
        ),
        [
            *("model/position=learned", "model.max_len=64", "model/score=dot_unscaled", *TANH),
            "model.layers=[{at: 1, pattern: window, pattern.before: 5}]",
        ],
        [
            *module("transformer.wte", "embedding", kinds=WEIGHT),
            *module("transformer.wpe", LEARNED, kinds=WEIGHT),
            *inside(
                "transformer.h",
                {f"attn.attention.{a}_proj": own for a, own in zip("qkv", QKV, strict=True)},
                kinds=WEIGHT,
            ),
            *no_bias(*QKV),
            *inside("transformer.h", {"attn.attention.out_proj": OUT, "mlp.c_fc": UP, "mlp.c_proj": DOWN}),
            *inside("transformer.h", {"ln_1": BEFORE[0], "ln_2": BEFORE[1]}),
            *module("transformer.ln_f", "stack.final_norm"),
        ],
        "transformer.h",
    ),
    Case(  # full and local attention in turn, each with a rotary base of its own
        "modernbert",
        model_of(
            "ModernBert", SIZES, "Model", intermediate_size=52, local_attention=8, cls_token_id=None, sep_token_id=None
        ),
        [
            *(*ROPE, "model.position.base=160000.0", "model/pattern=full", "model/ffn=glu", "model.ffn.width=52"),
            *("model.bias=false", "model.placement.embed=true"),
            'model.layers=[{at: "1:", pattern: window, pattern.before: 4, pattern.after: 4, position.base: 10000.0}]',
        ],
        [
            *module("embeddings.tok_embeddings", "embedding", kinds=WEIGHT),
            *module("embeddings.norm", "stack.embed_norm", kinds=WEIGHT),
            *inside(
                "layers", {"attn.Wqkv": QKV, "attn.Wo": OUT, "mlp.Wi": ("ffn.gate", UP), "mlp.Wo": DOWN}, kinds=WEIGHT
            ),
            *inside("layers", {"attn_norm": BEFORE[0], "mlp_norm": BEFORE[1]}, kinds=WEIGHT),
            *module("final_norm", "stack.final_norm", kinds=WEIGHT),
        ],
        "layers",
        prepare=first_norm,
        ask=tied_to_embedding,
    ),
    *(
        Case(  # its attention is torch.nn.MultiheadAttention
            f"torch.nn.TransformerEncoder, {placement}",
            lambda placement=placement: TorchDecoder(placement == "pre"),  # type: ignore[misc]
            ["model/position=none", f"model/placement={placement}", "model/activation=relu", *UNTIED],
            [
                *module("embedding", "embedding", kinds=WEIGHT),
                *(
                    Rule(
                        f"encoder.layers.{{layer}}.self_attn.in_proj_{kind}",
                        tuple(f"stack.layers.{{layer}}.{own}.{kind}" for own in QKV),
                    )
                    for kind in ("weight", "bias")
                ),
                *inside("encoder.layers", {"self_attn.out_proj": OUT, "linear1": UP, "linear2": DOWN}),
                *inside("encoder.layers", {"norm1": norms[0], "norm2": norms[1]}),
                *module("encoder.norm", "stack.final_norm"),
                *module("head", "head", kinds=WEIGHT),
            ],
            "encoder.layers",
        )
        for placement, norms in (("pre", BEFORE), ("post", AFTER))
    ),
]
