"""BERT (Devlin et al. 2018, arXiv:1810.04805) in the format of Hugging Face `transformers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from swapformer.interface import MAIN, Readout
from swapformer.interop.format import Config, Format, Setting, Variant, symbols
from swapformer.interop.gpt2 import ACTIVATIONS
from swapformer.interop.rules import Rule, Shapes, inside, module
from swapformer.model.layers import Role
from swapformer.task.next_sentence import NEXT_SENTENCE as NEXT

_POOLER = module("bert.pooler.dense", "pooler")
_SYMBOLS = [
    *module("cls.predictions.transform.dense", "dense"),
    *module("cls.predictions.transform.LayerNorm", "norm"),
    Rule("cls.predictions.bias", ("symbol_bias",), also=("cls.predictions.decoder.bias",)),
]


def _with_next(config: Config) -> Mapping[str, Readout]:
    return {**symbols(config), NEXT: Readout(2, "classes", "sequence")}


def _classes(per: Literal["position", "sequence"]) -> Callable[[Config], Mapping[str, Readout]]:
    def readouts(config: Config) -> Mapping[str, Readout]:
        return {MAIN: Readout(len(config.get("id2label") or range(2)), "classes", per)}

    return readouts


def _labels(shapes: Shapes) -> dict[str, Any]:
    return {"id2label": {str(label): f"LABEL_{label}" for label in range(shapes["head.weight"][0])}}


BERT = Format(
    name="bert",
    parts=("model/topology=encoder", "model/position=learned", "model/norm=layernorm", "model/placement=bert",
           "model/ffn=mlp"),
    settings=(
        Setting("num_layers", ("num_hidden_layers",), 12),
        Setting("d_model", ("hidden_size",), 768),
        Setting("num_heads", ("num_attention_heads",), 12),
        Setting("max_len", ("max_position_embeddings",), 512),
        Setting("ffn.width", ("intermediate_size",), 3072),
        Setting("activation", ("hidden_act",), "gelu", ACTIVATIONS),
        Setting("norm.eps", ("layer_norm_eps",), 1e-12),
        Setting("dropout", ("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1),
    ),
    required={"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False,
              "tie_word_embeddings": True},  # untied, two biases of one name would be two tensors
    harmless=("classifier_dropout", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
              "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"),
    rules=(
        *module("bert.embeddings.word_embeddings", "embedding", kinds=("weight",), also=("cls.predictions.decoder",)),
        *module("bert.embeddings.token_type_embeddings", "segments", kinds=("weight",)),
        *module("bert.embeddings.position_embeddings", "stack.positions.Learned.table", kinds=("weight",)),
        *module("bert.embeddings.LayerNorm", "stack.embed_norm"),
        *inside("bert.encoder.layer", {
            "attention.self.query": "attention.query",
            "attention.self.key": "attention.key",
            "attention.self.value": "attention.value",
            "attention.output.dense": "attention.out",
            "attention.output.LayerNorm": "block.sublayers.0.after",
            "intermediate.dense": "ffn.up",
            "output.dense": "ffn.down",
            "output.LayerNorm": "block.sublayers.1.after",
        }),
    ),
    variants=(
        Variant("BertForPreTraining", (*_SYMBOLS, *_POOLER, *module("cls.seq_relationship", f"readouts.{NEXT}")),
                _with_next),
        Variant("BertForMaskedLM", tuple(_SYMBOLS)),
        Variant("BertForSequenceClassification", (*_POOLER, *module("classifier", "head")),
                _classes("sequence"), _labels),
        Variant("BertForTokenClassification", tuple(module("classifier", "head")), _classes("position"), _labels),
        Variant("BertModel", tuple(_POOLER), _with_next),
        Variant("BertModel", ()),
    ),
    prefix="bert.",
    unprefixed=("cls.", "classifier."),
    renamed={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    ignored=(r"bert\.embeddings\.position_ids",),
    filled=(Role.BIAS, Role.SEGMENT_EMBEDDING),
    segments="type_vocab_size",
)  # fmt: skip
