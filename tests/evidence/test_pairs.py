"""Every two options of two slots go together and train, or are refused with both names and a way out that works."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from evidence.pairs.judge import Advice, Judge, advised, names
from evidence.pairs.rows import cover, every_pair, pair, pairs_in, train
from evidence.pairs.stages import SMALL, STAGES, Option, options_of, stages
from swapformer.errors import UsageError
from swapformer.model.activation import Mish
from swapformer.model.norm import ScaleNorm
from swapformer.model.plan import LayerPlan
from swapformer.paths import experiments_dir
from swapformer.study.config.compose import check, compose, task_of
from swapformer.study.config.rules import stack, whole_model
from swapformer.task.base import Task

pytestmark = pytest.mark.evidence


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(stages())


def option(text: str) -> Option:
    slot, _, name = text.removeprefix("model/").partition("=")
    return Option(slot, name)


def verdict(*texts: str) -> Any:
    """A fresh judgement, which remembers nothing from before a fault was planted."""
    return Judge(stages()).judge(pair(*map(option, texts)))


def outcome(*texts: str, stage: str = "decoder") -> Any:
    found = next(one for one in stages() if one.name == stage)
    config = found.configure(map(option, texts))
    return train(config, task_of(config))


class TestStages:
    @pytest.mark.parametrize("name", STAGES)
    def test_an_option_is_put_in_as_hydra_would_compose_it(self, name: str) -> None:
        """Nested options, presets and plain ones; what is refused is refused in the same words."""
        stage = next(one for one in stages() if one.name == name)
        chosen = random.Random(name).sample([o for o in options_of() if o.slot not in ("topology", "position")], 2)
        for position in ("sum", "randomized"):
            picked = [Option("position", position), *chosen]
            composed = compose([*STAGES[name], *SMALL, *map(str, picked)])
            assert stage.configure(picked) == composed
            refused = " ".join(stage.problems(picked))
            try:
                check(composed)
                assert not refused
            except UsageError as error:
                assert str(error) == refused

    def test_know_which_option_fills_each_slot(self) -> None:
        for stage in stages():
            options = {Option(slot, name) for slot, name in stage.chosen.items()}
            assert stage.configure(options) == stage.config

    def test_have_every_topology(self) -> None:
        assert {stage.topology for stage in stages()} == {name for _, name in options_of(["topology"])}


class TestEveryPair:
    @pytest.mark.timeout(7200)
    def test_goes_together_and_trains_or_is_refused_with_both_names_and_a_way_out(self, judge: Judge) -> None:
        """Rows that hold every compatible pair between them train 20 steps on one batch, those of a GPU where it is."""
        verdicts = [judge.judge(found) for found in every_pair()]
        assert [(found.pair, found.reasons, found.faults) for found in verdicts if found.faults] == []
        refused = sum(not found.compatible for found in verdicts)
        trained, elsewhere, wrong = 0, 0, []
        for row in cover(verdicts, judge):
            config = row.setup.stage.configure(row.setup.options, row.setup.settings)
            if config["trainer"]["accelerator"] == "gpu" and not torch.cuda.is_available():
                elsewhere += 1
                continue
            trained += 1
            found = train(config, task_of(config))
            if found.fault is not None:
                wrong.append((row.setup.stage.name, row.setup.overrides, found.fault))
        print(f"{len(verdicts)} pairs, {refused} refused; {trained} rows trained, {elsewhere} need a GPU")
        assert wrong == []

    def test_that_goes_together_does_so_in_the_setup_that_is_named(self, judge: Judge) -> None:
        found = judge.judge(pair(option("attention=linformer"), option("position=randomized")))
        assert found.compatible
        composed = compose([*STAGES[found.setup.stage.name], *SMALL, *found.setup.overrides])
        check(composed)
        assert composed["model"]["max_len"] == composed["model"]["position"]["drawn_from"]

    def test_that_hold_linear_and_recurrent_attention_are_as_many_as_exercise_14_says(self, judge: Judge) -> None:
        others = [each for each in options_of() if each.slot != "attention"]
        linear, recurrent = (
            sum(judge.judge(pair(option(f"attention={name}"), each)).compatible for each in others)
            for name in ("linear", "gated_delta")
        )
        readme = (experiments_dir() / "14_architecture_tradeoffs" / "README.md").read_text(encoding="utf-8")
        assert f"of {len(others)} other options linear takes {linear}, gated_delta {recurrent}" in readme


class TestRows:
    def test_hold_every_compatible_pair_and_no_refused_one(self, judge: Judge) -> None:
        verdicts = [judge.judge(found) for found in every_pair(["norm", "ffn", "depth"])]
        held: set[tuple[Option, Option]] = set()
        rows = list(cover(verdicts, judge))
        for row in rows:
            assert judge.problems(row.setup) == []
            held |= set(pairs_in(row.setup.stage.all_options(row.setup.options)))
        assert {v.pair for v in verdicts if v.compatible} <= held
        assert not {v.pair for v in verdicts if not v.compatible} & held
        most = len(options_of(["ffn"])) * len(options_of(["norm"]))
        assert len(rows) < 1.5 * most, "a greedy array needs little more than the two largest slots together"


class TestAdvice:
    def test_is_read_with_the_options_listed_behind_it(self) -> None:
        text = "use model/norm=layernorm, rmsnorm or dyt, or a pattern that is not causal (model/pattern=full)."
        found = ["model/norm=layernorm", "model/norm=rmsnorm", "model/norm=dyt", "model/pattern=full"]
        assert list(map(str, advised(text))) == found

    def test_stops_where_the_list_stops(self) -> None:
        assert list(map(str, advised("use model/norm=none, or model/init=gpt2, xavier or deepnorm."))) == [
            "model/norm=none",
            "model/init=gpt2",
            "model/init=xavier",
            "model/init=deepnorm",
        ]

    def test_may_be_a_setting(self) -> None:
        text = "set model.max_len=320, model.topology.tie_embeddings=false; or use trainer=gpu, or add allow=[future]."
        assert advised(text) == [
            Advice("model.max_len", 320),
            Advice("model.topology.tie_embeddings", False),
            Advice("trainer", "gpu"),
            Advice("allow", ("future",)),
        ]


class TestPlantedFaults:
    def test_a_rule_removed_lets_a_row_crash(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the rule on tags, an encoder-decoder takes a pattern whose tags no task with a source has."""
        rules = stack.layer_rules

        def without_tags(layer: LayerPlan, task: Task) -> Iterator[str]:
            return (problem for problem in rules(layer, task) if "needs the tags" not in problem)

        texts = "topology=encoder_decoder", "pattern=same_tag"
        assert not verdict(*texts).compatible
        monkeypatch.setattr(stack, "layer_rules", without_tags)
        found = verdict(*texts)
        assert found.compatible
        assert "speaker" in outcome(*texts, stage=found.setup.stage.name).fault

    def test_a_part_that_crashes_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def crash(self: Mish, x: Tensor) -> Tensor:
            raise RuntimeError("not so wide")

        assert outcome("activation=mish").fault is None
        monkeypatch.setattr(Mish, "forward", crash)
        assert "RuntimeError where nothing should be raised" in outcome("activation=mish").fault

    def test_a_part_that_lets_nothing_through_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert outcome("norm=scalenorm").fault is None
        monkeypatch.setattr(ScaleNorm, "forward", lambda self, x, padding=None: x * 0)
        assert "the loss must fall in 20 steps on one batch" in outcome("norm=scalenorm").fault

    def test_a_gradient_that_is_not_finite_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """√0 has an infinite slope, while the values stay finite."""
        monkeypatch.setattr(Mish, "forward", lambda self, x: (x * 0).sqrt() + x)
        assert "is not finite" in outcome("activation=mish").fault

    def test_a_refusal_without_names_or_a_way_out_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(whole_model, "depth", lambda plan: ["this cannot be."])
        assert verdict("depth=early_exit", "residual=dense").faults == (
            "it does not name model/depth=early_exit",
            "it does not name model/residual=dense",
            "it names no alternative that could be chosen",
        )

    @pytest.mark.parametrize("advice", ["model/residual=hyper_connections", "model/residual=adding"])
    def test_a_way_out_that_leads_nowhere_is_found(self, monkeypatch: pytest.MonkeyPatch, advice: str) -> None:
        rule = whole_model.depth

        def misleading(plan: Any) -> Iterator[str]:
            return (f"EarlyExit cannot have Dense; use {advice}." for _ in rule(plan))

        monkeypatch.setattr(whole_model, "depth", misleading)
        assert verdict("depth=early_exit", "residual=dense").faults == (f"its alternative {advice} does not work",)


class TestFoundByPairs:
    """What the whole array once found, and what was made of it."""

    @pytest.mark.parametrize("init", ["fixup", "zero_branch"])
    def test_updates_of_zero_need_a_stream_that_carries(self, init: str) -> None:
        """fixup without a residual connection had a gradient of exactly zero everywhere: its loss stood still."""
        found = verdict(f"init={init}", "residual=none")
        assert not found.compatible and found.faults == ()
        assert "residual Replace lets nothing else past a branch" in " ".join(found.reasons)

    def test_an_encoders_bands_are_chosen_in_its_layers(self) -> None:
        own = [*STAGES["encoder_decoder"], *SMALL, "model/kernel=blocked", "model/pattern=window"]
        with pytest.raises(UsageError, match=r"in the encoder of EncoderDecoder, .* chosen in model.encoder.layers"):
            check(compose(own))
        check(compose([*own, "model.encoder.layers=[{at: '0:2', pattern: window}]"]))


def test_names_are_found_as_options_and_as_classes() -> None:
    text = "attention GatedDeltaNet does not use a kernel"
    assert names(text, option("attention=gated_delta"))
    assert not names(text, option("attention=gated"))
    assert not names(text, option("kernel=flex"))
