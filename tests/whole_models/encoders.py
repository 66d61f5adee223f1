"""Models that read all places at once, and models that read a source before they answer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from swapformer.interface import MAIN, Interface, Readout
from swapformer.interop.bert import BERT
from swapformer.interop.rules import Rule, inside, module
from swapformer.model.tokens import Tokens
from swapformer.task.next_sentence import NEXT_SENTENCE
from whole_models.case import (
    AFTER,
    DOWN,
    LAYERS,
    LENGTH,
    OUT,
    QKV,
    REST,
    RMS,
    SIZES,
    SOURCE,
    UP,
    VOCABULARY,
    WEIGHT,
    Case,
    Given,
    model_of,
)

distilbert = pytest.importorskip("transformers.models.distilbert.modeling_distilbert")
SEGMENTED = Interface(
    VOCABULARY, segments=2, readouts={MAIN: Readout(VOCABULARY), NEXT_SENTENCE: Readout(2, "classes", "sequence")}
)


def bert(model: nn.Module, given: Given) -> Tensor:
    """The logits of symbols, and after them those of the second segment's following the first."""
    out = model(given.ids, attention_mask=(~given.padding).long(), token_type_ids=given.segments)
    return torch.cat([out.prediction_logits.flatten(), out.seq_relationship_logits.flatten()])


def our_bert(model: nn.Module, given: Given) -> Tensor:
    """The same of ours."""
    tokens = Tokens.of(LENGTH, padding=given.padding, tags={"segment": given.segments})
    return torch.cat([answer.flatten() for answer in model.answers(given.ids, tokens).values()])


def masked(model: nn.Module, given: Given) -> Tensor:
    """The logits of a model that reads padded symbols."""
    return model(given.ids, attention_mask=(~given.padding).long()).logits


def our_masked(model: nn.Module, given: Given) -> Tensor:
    """The same of ours."""
    return model(given.ids, Tokens.of(LENGTH, padding=given.padding))


def sequence_to_sequence(model: nn.Module, given: Given) -> Tensor:
    """The logits of a model that reads a padded source."""
    return model(given.source, attention_mask=(~given.source_padding).long(), decoder_input_ids=given.ids).logits


def our_sequence_to_sequence(model: nn.Module, given: Given) -> Tensor:
    """The same of ours."""
    places = Tokens.of(SOURCE, padding=given.source_padding)
    return model(given.ids, Tokens.of(LENGTH), given.source, places)


WITH_SOURCE: dict[str, Any] = {
    "ask": sequence_to_sequence,
    "ask_ours": our_sequence_to_sequence,
    "asked": Interface(VOCABULARY, source=True),
}


def every_symbol_learns(model: nn.Module) -> None:
    """Their tables pass no gradient to the symbol for padding, which is one like any other here."""
    for table in model.modules():
        if isinstance(table, nn.Embedding):
            table.padding_idx = None


def their_sinusoids(model: nn.Module) -> None:
    """DistilBERT's table is no weight, though it is kept like one; its numbers are float32."""
    table = model.distilbert.embeddings.position_embeddings
    values = torch.empty_like(table.weight)
    distilbert.create_sinusoidal_embeddings(*table.weight.shape, out=values)
    del table.weight
    table.weight = nn.Buffer(values)


def t5_rules(feed: dict[str, str]) -> list[Rule]:
    """An encoder, and a decoder whose layers have cross-attention between attention and feed-forward layer."""
    rules = module("shared", "embedding", kinds=WEIGHT)
    for side, ours, branches in (("encoder", "encoder", 2), ("decoder", "stack", 3)):
        place = f"{side}.block"
        table = f"{place}.0.layer.0.SelfAttention.relative_attention_bias"
        rules += module(table, f"{ours}.positions.T5.table", kinds=WEIGHT)
        rules += module(f"{side}.final_layer_norm", f"{ours}.final_norm", kinds=WEIGHT)
        names = {f"layer.{j}.layer_norm": f"block.sublayers.{j}.before" for j in range(branches)}
        attentions = ["SelfAttention", "EncDecAttention"][: branches - 1]
        for j, (attention, own) in enumerate(zip(attentions, ("attention", "cross_attention"), strict=False)):
            kept = zip("qkvo", ("query", "key", "value", "out"), strict=True)
            names |= {f"layer.{j}.{attention}.{a}": f"{own}.{b}" for a, b in kept}
        names |= {f"layer.{branches - 1}.DenseReluDense.{a}": b for a, b in feed.items()}
        rules += inside(place, names, ours=f"{ours}.layers", kinds=WEIGHT)
    return rules


def bart_rules(norms: str) -> list[Rule]:
    """An encoder and a decoder, each with positions counted from 2 and a norm of its embeddings."""
    rules = module("model.shared", "embedding", kinds=WEIGHT)
    for side, ours, attentions in (
        ("encoder", "encoder", {"self_attn": "attention"}),
        ("decoder", "stack", {"self_attn": "attention", "encoder_attn": "cross_attention"}),
    ):
        place, last = f"model.{side}", len(attentions)
        rules += module(f"{place}.embed_positions", f"{ours}.positions.Learned.table", kinds=WEIGHT, skip=2)
        rules += module(f"{place}.layernorm_embedding", f"{ours}.embed_norm")
        rules += module(f"{place}.layer_norm", f"{ours}.final_norm")
        names = {"fc1": UP, "fc2": DOWN, "final_layer_norm": f"block.sublayers.{last}.{norms}"}
        for j, (attention, own) in enumerate(attentions.items()):
            kept = zip(("q_proj", "k_proj", "v_proj", "out_proj"), ("query", "key", "value", "out"), strict=True)
            names |= {f"{attention}.{a}": f"{own}.{b}" for a, b in kept}
            names[f"{attention}_layer_norm"] = f"block.sublayers.{j}.{norms}"
        rules += inside(f"{place}.layers", names, ours=f"{ours}.layers")
    return rules


BART = {
    **REST,
    **{
        f"{side}_{what}": size
        for side in ("encoder", "decoder")
        for what, size in (("layers", LAYERS), ("attention_heads", 4), ("ffn_dim", 128))
    },
    "d_model": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}

ENCODERS = [
    Case(
        "bert, segments and padding, symbols and next sentence",
        model_of("Bert", SIZES, "ForPreTraining", intermediate_size=128),
        [
            "model/topology=encoder",
            *(part for part in BERT.parts if part != "model/topology=encoder"),
            "model.norm.eps=1e-12",
            "model.max_len=64",
        ],
        [*BERT.rules, *BERT.variants[0].rules],
        "bert.encoder.layer",
        ask=bert,
        ask_ours=our_bert,
        asked=SEGMENTED,
    ),
    Case(  # its table of sinusoids is float32
        "distilbert, sinusoidal positions and padding",
        model_of(
            "DistilBert",
            REST,
            "ForMaskedLM",
            dim=32,
            hidden_dim=128,
            n_layers=LAYERS,
            n_heads=4,
            max_position_embeddings=64,
            sinusoidal_pos_embds=True,
        ),
        ["model/topology=encoder", "model/position=sinusoidal", "model/placement=bert", "model.norm.eps=1e-12"],
        [
            *module("distilbert.embeddings.word_embeddings", "embedding", kinds=WEIGHT),
            *module("distilbert.embeddings.LayerNorm", "stack.embed_norm"),
            *inside(
                "distilbert.transformer.layer",
                {
                    **{f"attention.{a}_lin": own for a, own in zip("qkv", QKV, strict=True)},
                    "attention.out_lin": OUT,
                    "sa_layer_norm": AFTER[0],
                    "ffn.lin1": UP,
                    "ffn.lin2": DOWN,
                    "output_layer_norm": AFTER[1],
                },
            ),
            *module("vocab_transform", "dense"),
            *module("vocab_layer_norm", "norm"),
            Rule("vocab_projector.bias", ("symbol_bias",)),
        ],
        "distilbert.transformer.layer",
        bound=1e-6,
        prepare=their_sinusoids,
        ask=masked,
        ask_ours=our_masked,
    ),
    *(
        Case(  # logits without a scale, in cross-attention without a bias
            f"t5, {name}",
            model_of(
                "T5",
                REST,
                "ForConditionalGeneration",
                d_model=32,
                d_kv=8,
                d_ff=52,
                num_layers=LAYERS,
                num_heads=4,
                feed_forward_proj=name,
                relative_attention_num_buckets=8,
                relative_attention_max_distance=16,
                tie_word_embeddings=False,
                decoder_start_token_id=0,
                pad_token_id=0,
            ),
            [
                "model/topology=encoder_decoder",
                "model/position=t5",
                "model.position.buckets=8",
                "model.position.max_distance=16",
                "model/score=dot_unscaled",
                *RMS,
                "model.bias=false",
                "model.ffn.width=52",
                f"model/activation={activation}",
                f"model/ffn={ffn}",
            ],
            t5_rules(feed),
            {"encoder": "encoder.block", "stack": "decoder.block"},
            **WITH_SOURCE,
        )
        for name, activation, ffn, feed in (
            ("relu", "relu", "mlp", {"wi": UP, "wo": DOWN}),
            ("gated-gelu", "gelu_tanh", "glu", {"wi_0": "ffn.gate", "wi_1": UP, "wo": DOWN}),
        )
    ),
    *(
        Case(
            f"{name.lower()}, {words}",
            model_of(name, BART, "ForConditionalGeneration", scale_embedding=scaled),
            [
                "model/topology=encoder_decoder",
                "model/position=learned",
                "model.max_len=64",
                *placement,
                *([f"model.topology.embedding_scale={32**0.5!r}"] if scaled else []),
            ],
            bart_rules(norms),
            {"encoder": "model.encoder.layers", "stack": "model.decoder.layers"},
            prepare=every_symbol_learns,
            **WITH_SOURCE,
        )
        for name, words, scaled, placement, norms in (
            ("Bart", "norms after", False, ["model/placement=bert"], "after"),
            ("MBart", "norms before", True, ["model/placement=pre", "model.placement.embed=true"], "before"),
        )
    ),
]
