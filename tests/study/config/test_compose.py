"""Composition: layer overrides, refusals, identity."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from configs import accepted
from swapformer.errors import UsageError
from swapformer.study.config.compose import check, compose
from swapformer.study.config.identity import trial_id
from swapformer.training.assemble import build_model

COPY = ["task=copy", "model.num_layers=4", "model.d_model=32", "model.num_heads=4"]


def composed(*overrides: str) -> dict[str, Any]:
    return compose([*COPY, *overrides])


class TestLayerOverrides:
    def test_names_and_settings_are_expanded_for_their_layers_alone(self) -> None:
        layers = composed('model.layers=[{at: "0:2", pattern: window, pattern.before: 3}, {at: -1, num_heads: 2}]')[
            "model"
        ]["layers"]
        assert [sorted(layer) for layer in layers] == [["pattern"], ["pattern"], [], ["num_heads"]]
        assert layers[0]["pattern"]["before"] == 3
        assert layers[0]["pattern"]["_target_"].endswith("Window")

    def test_an_override_that_changes_nothing_is_no_override(self) -> None:
        config = composed('model.layers=[{at: "::", pattern: causal}, {at: 0, num_heads: 4}]')
        assert config["model"]["layers"] == []
        assert trial_id(config) == trial_id(composed())

    def test_the_model_is_built_as_the_layers_say(self) -> None:
        config = composed("model.layers=[{at: 1, num_heads: 8, norm: rmsnorm}, {at: 2, position: alibi}]")
        check(config)
        stack = build_model(config, 11).stack
        assert [layer.attention.head_dim for layer in stack.layers] == [8, 4, 8, 8]
        assert type(stack.layers[1].block.sublayers[0].before).__name__ == "RMSNorm"
        # rope with 4 heads is shared by two layers, rope with 8 heads and alibi stand alone
        assert list(stack.positions) == ["Rotary", "Rotary_2", "ALiBi"]

    def test_an_embedded_position_is_shared_whatever_the_heads_of_a_layer(self) -> None:
        config = composed("model/position=learned", "model.layers=[{at: 1, num_heads: 8}]")
        check(config)
        assert list(build_model(config, 11).stack.positions) == ["Learned"]

    @pytest.mark.parametrize("override", ["model/position=learned", "model/position=sinusoidal"])
    def test_an_embedded_position_cannot_differ_between_layers(self, override: str) -> None:
        with pytest.raises(UsageError, match="is there for every layer"):
            check(composed(override, "model.layers=[{at: 1, position: none}]"))

    def test_a_rotation_fits_the_heads_of_its_layer(self) -> None:
        config = composed("model.layers=[{at: 1, head_dim: 16}]")
        widths = {name: part.rotation.width for name, part in build_model(config, 11).stack.positions.items()}
        assert widths == {"Rotary": 8, "Rotary_2": 16}

    def test_weights_of_a_position_start_equal_whatever_other_layers_have(self) -> None:
        base = build_model(composed("model/position=t5"), 11).state_dict()
        arm = build_model(composed("model/position=t5", "model.layers=[{at: 0, position: alibi}]"), 11).state_dict()
        assert torch.equal(base["stack.positions.T5.table.weight"], arm["stack.positions.T5.table.weight"])

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("[{pattern: window}]", "needs `at`"),
            ("[{at: 9, pattern: window}]", r"must name some of the layers 0 … 3"),
            ('[{at: "4:", pattern: window}]', r"must name some of the layers"),
            ("[{at: 0, patern: window}]", "did you mean 'pattern'"),
            ("[{at: 0, pattern: windw}]", "did you mean 'window'"),
            ("[{at: 0, pattern: window, pattern.befor: 2}]", "did you mean 'before'"),
        ],
    )
    def test_mistakes_are_named(self, override: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            composed(f"model.layers={override}")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.num_heads=7"], r"7 does not divide 32; try 8"),
        (["model.num_heads=32"], r"rope turns pairs.*gives 1.*num_heads"),
        (["model/attention=gqa", "model.attention.num_kv_heads=3"], r"`num_kv_heads` must divide `num_heads`"),
        (["model/position=learned", "model.max_len=20"], r"table of 20 rows \(model.max_len\).*raise model.max_len"),
        (["trainer.devices=2"], r"must share a trial in some way"),
        (["budget.steps=-1"], r"`budget.steps` must be a whole number of at least 0"),
        (["model.ffn.width=0"], r"`model.ffn.width` must be a whole number of at least 1 or null, but it is 0"),
        (["model.dropout=1.0"], r"`model.dropout` must be a number in \[0, 1\), but it is 1.0"),
        (["model/kernel=sdpa", "model.kernel.backend=warp"], r"must be one of auto, math"),
        (["trainer.precision=16-mixed"], r"set optim.fused=false"),
        (["trainer.precision=32"], r"`trainer.precision` must be one of 32-true"),
        (["trainer.accelerator=tpu"], r"`trainer.accelerator` must be one of cpu, gpu"),
        (["model.num_heads=many"], r"`model.num_heads` must be a whole number of at least 1, but it is 'many'"),
        (["model.num_layers=2.5"], r"`model.num_layers` must be a whole number"),
        (["optim.lr=fast"], r"`optim.lr` must be a number above 0, but it is 'fast'"),
        (["optim.lr=-1"], r"`optim.lr` must be a number above 0, but it is -1"),
        (["model/pattern=full"], r"no position of the topology Decoder may see a later one.*allow=\[future\]"),
        (["model.layers=[{at: 0, pattern: full}]"], r"may see a later one, but the pattern Full lets it"),
        (["allow=[past]"], r"`allow` may list bf16, future, leftovers, same_model, size, vocabulary, but not 'past'"),
        (["+model.dropuot=0.3"], r"`model` has no key 'dropuot'.*did you mean 'dropout'"),
        (["+trainer.max_epochs=3"], r"trainer.max_epochs is not an option here"),
        (["model.ffn.expansion=0"], r"`model.ffn.expansion` must be a number above 0 or null"),
        (["model.ffn.width=3.5"], r"`model.ffn.width` must be a whole number"),
        (["trainer.accumulate_grad_batches=64"], r"batch_size=32 cannot be cut into"),
        (["model.norm.eps=-1"], r"`model.norm.eps` must be a number above 0"),
        (["model.init.std=abc"], r"`model.init.std` must be a number above 0, but it is 'abc'"),
        (["model.placement.before=abc"], r"`model.placement.before` must be true or false"),
        (["model.bias=null"], r"`model.bias` must be true or false"),
        (["trainer.deterministic=banana"], r"`trainer.deterministic` must be true or false"),
        (["model/norm=none", "model/placement=post"], r"norm=none leaves nothing to place"),
        (["model.layers=[{at: 0, placement: inside, placement.final: false}]"], r"must be the same for all of them"),
        (["model/position=t5", "model.position.buckets=33", "model.position.bidirectional=true"], r"an even number"),
        (["model.layers=[{at: 0, 3: x}]"], r"not '3'"),
        (["schedule.final=-1"], r"`schedule.final` must be a number in \[0, 1\], but it is -1"),
        (["schedule.warmup_steps=1.5"], r"`schedule.warmup_steps` must be a whole number"),
        (["schedule.warmup_steps=-1"], r"`schedule.warmup_steps` must be a whole number of at least 0, but it is -1"),
        (["trainer.gradient_clip_val=-1"], r"`trainer.gradient_clip_val` must be a number of at least 0"),
        (["seed=zero"], r"`seed` must be a whole number"),
        (["model.layers=[{at: 0, num_heads: 7}]"], r"7 does not divide 32"),
        (["optim.betas=0.9"], r"`optim.betas` must be a list of 2: a number in \[0, 1\), .* but it is 0.9"),
        (["model.num_heads='4'"], r"`model.num_heads` must be a whole number .* but it is '4'; write 4 without quotes"),
        (["allow=future"], r"`allow` must be a list, but it is 'future'; write allow=\[future\]"),
        (["init_fresh=position"], r"`init_fresh` must be a list, .*; write init_fresh=\[position\]"),
        (["optim.freeze=body"], r"`optim.freeze` must be a list, .*; write optim.freeze=\[body\]"),
        (["trainer.threads=99999"], r"`trainer.threads` must be a whole number in \[1, 1024\], but it is 99999"),
        (["optim.lr=inf"], r"`optim.lr` must be a number above 0, and finite, but it is inf"),
        (["optim.lr=true"], r"`optim.lr` must be a number above 0, but it is True"),
        (["divergence=nan"], r"`divergence` must be a number of at least 1, and finite, but it is nan"),
        (["optim.lr=nan"], r"`optim.lr` must be a number"),
        (["model/pattern=window", "model.pattern.before=nan"], r"`model.pattern.before` must be a whole number .*nan"),
        (["model.layers=[{at: 0, norm.eps: .nan}]"], r"`model.layers.0.norm.eps` must be a number above 0"),
        (["model.layers=[{at: 0, num_heads: '4'}]"], r"`num_heads` must be a whole number"),
        (["model.residual=3"], r"model/residual is a group of options: write model/residual=NAME"),
    ],
)
def test_what_cannot_work_is_refused_when_composed(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(composed(*overrides))


AHEAD = ("model/topology=encoder_decoder", "model.topology.source=inputs")


def test_an_encoder_that_reads_the_targets_is_refused_but_for_a_study_of_the_leak() -> None:
    with pytest.raises(UsageError, match=r"task Copy .* EncoderDecoder reads the decoder's own .*allow=\[future\]"):
        check(composed(*AHEAD))
    assert accepted(*COPY, *AHEAD, "allow=[future]")["model"]["topology"]["source"] == "inputs"
    with pytest.raises(UsageError, match=r"task Copy has a source, but the encoder .* set model.topology.source=task"):
        check(composed(*AHEAD, "allow=[future]", "task.as_source=true"))


def test_a_study_of_the_leak_may_let_a_decoder_see_the_future() -> None:
    config = accepted(*COPY, "model/pattern=full", "allow=[future]")
    assert config["allow"] == ["future"] and config["model"]["topology"]["_target_"].endswith(".Decoder")
