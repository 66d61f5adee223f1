"""Checkpoints leave and come back: `transformers` computes the same from them, and what cannot be said is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface, Readout
from swapformer.interop import load, save
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.study.config.compose import compose
from swapformer.task.next_sentence import NEXT_SENTENCE
from swapformer.training.assemble import build_model

transformers = pytest.importorskip("transformers")

V, T = 11, 12
SIZES = ["task=copy", "model.num_layers=2", "model.d_model=32", "model.num_heads=4", "model.max_len=16"]
GPT2 = ["model/position=learned"]
LLAMA = ["model/norm=rmsnorm", "model/ffn=glu", "model/activation=silu", "model.bias=false", "model/attention=gqa"]
BERT = ["model/topology=encoder", "model/position=learned", "model/placement=bert"]
CLASSES = {MAIN: Readout(3, "classes", "sequence")}
BOTH = {MAIN: Readout(V), NEXT_SENTENCE: Readout(2, "classes", "sequence")}


def wide(overrides: list[str], asked: Interface) -> tuple[dict[str, Any], Topology]:
    """A configuration and its model with wide weights."""
    config = compose([*SIZES, *overrides])
    model = build_model(config, asked).eval()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return config, model


def given() -> tuple[Tensor, Tensor]:
    """Symbols and segments."""
    generator = torch.Generator().manual_seed(5)
    return torch.randint(V, (2, T), generator=generator), torch.randint(2, (2, T), generator=generator)


def answers(model: Topology) -> dict[str, Tensor]:
    ids, segments = given()
    with torch.no_grad():
        return model.answers(ids, Tokens.of(T, tags={"segment": segments}))


def theirs(directory: Path, architecture: str, segments: bool) -> Mapping[str, Tensor]:
    """What transformers computes from a checkpoint, all of whose weights it must find and use."""
    made = getattr(transformers, architecture).from_pretrained(directory, output_loading_info=True)
    model, found = made
    assert {kind: names for kind, names in found.items() if names} == {}
    ids, kinds = given()
    with torch.no_grad():
        out = model.eval()(ids, **({"token_type_ids": kinds} if segments else {}))
    first = out.prediction_logits if "prediction_logits" in out else out.logits
    return {MAIN: first, NEXT_SENTENCE: out.get("seq_relationship_logits")}


@pytest.mark.parametrize(
    ("format", "architecture", "overrides", "asked"),
    [
        ("gpt2", "GPT2LMHeadModel", [*GPT2, "model/activation=gelu_tanh", "model.dropout=0.1"], Interface(V)),
        ("gpt2", "GPT2LMHeadModel", [*GPT2, "model.topology.tie_embeddings=false", "model.ffn.width=40"], Interface(V)),
        ("gpt2", "GPT2LMHeadModel", [*GPT2, "model.bias=false"], Interface(V)),
        ("llama", "LlamaForCausalLM", [*LLAMA, "model.position.base=5000.0", "model.norm.eps=1e-5"], Interface(V)),
        ("llama", "LlamaForCausalLM", [*LLAMA, "model.bias=true", "model.head_dim=6"], Interface(V)),
        ("llama", "LlamaForCausalLM", [*LLAMA, "model/position=rope_linear"], Interface(V)),
        (
            "llama",
            "LlamaForCausalLM",
            [
                *LLAMA,
                "model/position=rope_llama3",
                "model.position.original_len=8",
                "model.position.turns_low=0.1",
                "model.position.turns_high=0.8",
            ],
            Interface(V),
        ),
        ("bert", "BertForMaskedLM", BERT, Interface(V, segments=2)),
        ("bert", "BertForPreTraining", BERT, Interface(V, segments=2, readouts=BOTH)),
        ("bert", "BertForSequenceClassification", BERT, Interface(V, segments=3, readouts=CLASSES)),
        ("bert", "BertForTokenClassification", BERT, Interface(V, readouts={MAIN: Readout(4, "classes")})),
    ],
)
def test_transformers_computes_the_same_and_so_do_we_again(
    format: str, architecture: str, overrides: list[str], asked: Interface, tmp_path: Path
) -> None:
    config, model = wide(overrides, asked)
    save(config, model.state_dict(), tmp_path / "out", format)
    mine, others = answers(model), theirs(tmp_path / "out", architecture, asked.segments > 0)
    for name, answer in mine.items():
        assert torch.allclose(answer, others[name], rtol=1e-4, atol=1e-4), name

    back = load(tmp_path / "out")
    assert back.architecture == architecture
    again = build_model(compose(["task=copy", *back.overrides]), back.interface).eval()
    again.load_state_dict(back.weights)
    for name, answer in answers(again).items():
        assert torch.equal(answer, mine[name])


def test_a_checkpoint_of_theirs_is_read_whole_or_in_shards_in_half_precision_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16, "vocab_size": V, "initializer_range": 0.3}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).bfloat16()
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    model.transformer.save_pretrained(tmp_path / "bare")
    assert (tmp_path / "shards" / "model.safetensors.index.json").is_file()
    expected = model.float().eval()(given()[0]).logits
    for name in ("whole", "shards", "bare"):
        found = load(tmp_path / name)
        ours = build_model(compose(["task=copy", *found.overrides]), found.interface).eval()
        ours.load_state_dict(found.weights)
        assert torch.allclose(ours(given()[0]), expected, rtol=1e-4, atol=1e-4), name


def test_old_berts_call_gains_gamma_and_keep_tables_of_places(tmp_path: Path) -> None:
    config, model = wide(BERT, Interface(V, segments=2))
    save(config, model.state_dict(), tmp_path, "bert")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    save_file({**old, "bert.embeddings.position_ids": torch.arange(16)[None]}, tmp_path / "model.safetensors")
    found = load(tmp_path).weights
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())


class TestRefusals:
    @pytest.mark.parametrize(
        ("format", "overrides", "message"),
        [
            ("gpt2", [], r"model\.position is Rotary, not Learned"),
            ("gpt2", [*LLAMA], r"model\.norm is RMSNorm, not LayerNorm.*; llama can"),
            ("llama", [*GPT2], r"model\.position is Learned, not Rotary.*; gpt2 can"),
            ("bert", [*GPT2], r"model\.topology is Decoder, not Encoder"),
            ("gpt2", [*GPT2, "model/attention=gqa"], r"model\.attention\.num_kv_heads is 2, not 4"),
            ("gpt2", [*GPT2, "model/extension=[gate,orthogonality]"], r"model\.extension has gate, which the format"),
            ("gpt2", [*GPT2, "model/residual=rezero"], r"model\.residual is ReZero, not Add"),
            ("gpt2", [*GPT2, "model.layers=[{at: 0, pattern: window}]"], r"model\.layers is"),
            ("gpt2", [*GPT2, "model.topology.embedding_scale=2.0"], r"embedding_scale is 2\.0, not 1\.0"),
            ("gpt2", [*GPT2, "model/activation=identity"], r"model\.activation is Identity, not"),
            ("gpt2", [*GPT2, "model/ffn=moe"], r"model\.ffn is MoE, not MLP"),
            ("llama", [*LLAMA, "model/position=rope_yarn"], r"model\.position is YaRN, not Rotary"),
            ("llama", [*LLAMA, "model.position.fraction=0.5"], r"model\.position\.fraction is 0\.5, not 1\.0"),
        ],
    )
    def test_a_model_that_the_format_cannot_express(
        self, format: str, overrides: list[str], message: str, tmp_path: Path
    ) -> None:
        config, model = wide(overrides, Interface(V))
        with pytest.raises(UsageError, match=rf"the format {format} cannot express this model: .*{message}"):
            save(config, model.state_dict(), tmp_path / "out", format)
        assert not (tmp_path / "out").exists()

    def test_a_loss_on_heads_is_nothing_that_a_format_would_have_to_express(self, tmp_path: Path) -> None:
        config, model = wide([*GPT2, "model/attention=orthogonal_heads"], Interface(V))
        save(config, model.state_dict(), tmp_path, "gpt2")
        found = load(tmp_path).weights
        assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())

    def test_answers_that_the_format_has_no_place_for(self, tmp_path: Path) -> None:
        readouts = {MAIN: Readout(V), "topic": Readout(3, "classes", "sequence")}
        config, model = wide(GPT2, Interface(V, readouts=readouts))
        with pytest.raises(UsageError, match=r"has no tensor for readouts\.topic\.bias"):
            save(config, model.state_dict(), tmp_path / "out", "gpt2")

    def test_a_model_that_reads_values(self, tmp_path: Path) -> None:
        config, model = wide(GPT2, Interface(0, channels=2, readouts={MAIN: Readout(1, "values", "position")}))
        with pytest.raises(UsageError, match="this model reads values; no format does"):
            save(config, model.state_dict(), tmp_path / "out", "gpt2")

    def test_a_directory_that_holds_a_checkpoint(self, tmp_path: Path) -> None:
        config, model = wide(GPT2, Interface(V))
        save(config, model.state_dict(), tmp_path, "gpt2")
        with pytest.raises(UsageError, match=r"must be free, but .* holds config\.json, model\.safetensors"):
            save(config, model.state_dict(), tmp_path, "gpt2")


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A GPT-2 checkpoint that can be spoiled."""
    config, model = wide(GPT2, Interface(V))
    save(config, model.state_dict(), tmp_path, "gpt2")
    return tmp_path


class TestDamage:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"model_type": "gpt_bigcode"}, r"model_type .* one of gpt2, bert, llama, but it is 'gpt_bigcode'"),
            ({"scale_attn_by_inverse_layer_idx": True}, r"scale_attn_by_inverse_layer_idx .* must be False"),
            ({"activation_function": "gelu_fast"}, r"activation_function .* must be one of gelu_new, .*'gelu_fast'"),
            ({"attn_pdrop": 0.1}, r"resid_pdrop and embd_pdrop and attn_pdrop .* must agree"),
            ({"n_head": 5}, r"`num_heads` must divide `d_model`"),
            ({"n_layer": 3}, r"12 tensors are missing: transformer\.h\.2\.attn\.c_attn\.bias"),
            ({"n_positions": 20}, r"transformer\.wpe\.weight must be \[20, 32\], but it is \[16, 32\]"),
            ({"vocab_size": 12}, r"transformer\.wte\.weight must be \[12, 32\], but it is \[11, 32\]"),
            ({"vocab_size": None}, r"vocab_size of config\.json must be a whole number"),
        ],
    )
    def test_a_configuration_that_cannot_be_made_or_does_not_fit_is_refused(
        self, changes: dict[str, Any], message: str, exported: Path
    ) -> None:
        config = json.loads((exported / "config.json").read_text())
        (exported / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(UsageError, match=message):
            load(exported)

    def test_keys_that_nothing_reads_are_said(self, exported: Path) -> None:
        config = json.loads((exported / "config.json").read_text())
        (exported / "config.json").write_text(json.dumps({**config, "logit_scale": 2.0}))
        assert load(exported).notes == ("keys of config.json that were not read: logit_scale",)

    @pytest.mark.parametrize("kind", ["longrope", "dynamic"])
    def test_angles_stretched_in_other_ways_are_refused(self, kind: str, tmp_path: Path) -> None:
        config, model = wide(LLAMA, Interface(V))
        save(config, model.state_dict(), tmp_path, "llama")
        own = json.loads((tmp_path / "config.json").read_text())
        for key in ("rope_scaling", "rope_parameters"):
            (tmp_path / "config.json").write_text(json.dumps({**own, key: {"rope_type": kind, "factor": 2.0}}))
            with pytest.raises(
                UsageError, match=f"rope_type .* must be one of default, linear, llama3, but it is '{kind}'"
            ):
                load(tmp_path)
        (tmp_path / "config.json").write_text(
            json.dumps({**own, "rope_parameters": {"rope_type": "llama3", "factor": 8}})
        )
        with pytest.raises(
            UsageError, match="needs original_max_position_embeddings, low_freq_factor, high_freq_factor"
        ):
            load(tmp_path)

    def test_a_truncated_file_is_named(self, exported: Path) -> None:
        whole = (exported / "model.safetensors").read_bytes()
        (exported / "model.safetensors").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(UsageError, match=r"model\.safetensors must be a whole safetensors file"):
            load(exported)

    def test_pickles_are_not_read(self, exported: Path) -> None:
        (exported / "model.safetensors").rename(exported / "pytorch_model.bin")
        with pytest.raises(UsageError, match=r"pytorch_model\.bin is a pickle, which could run any code"):
            load(exported)

    def test_a_config_that_is_missing_or_no_json_is_named(self, exported: Path) -> None:
        (exported / "config.json").write_text("{")
        with pytest.raises(UsageError, match=r"config\.json must be JSON"):
            load(exported)
        (exported / "config.json").unlink()
        with pytest.raises(UsageError, match=r"must hold config\.json"):
            load(exported)

    @pytest.mark.parametrize(
        ("place", "message"),
        [
            ("../outside.safetensors", r"must name files in its folder"),
            ("other.safetensors", r"other\.safetensors must be a whole safetensors file"),
            ("shard.safetensors", r"shard\.safetensors must hold gone, as model\.safetensors\.index\.json says"),
        ],
    )
    def test_an_index_that_leads_elsewhere_is_refused(self, place: str, message: str, exported: Path) -> None:
        (exported / "model.safetensors").rename(exported / "shard.safetensors")
        (exported / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"gone": place}}))
        with pytest.raises(UsageError, match=message):
            load(exported)
