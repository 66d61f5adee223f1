"""Generation and training steps: exact counts by formula, phases by a clock whose seconds are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from measure.conftest import TINY, Hand, measured
from swapformer.errors import UsageError
from swapformer.measure import step
from swapformer.measure.clock import Clock
from swapformer.model.cache import Cache
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import check, compose, task_of
from swapformer.study.config.cost import kept_bytes
from swapformer.training.assemble import build_model, build_plan
from swapformer.training.module import TrialModule

DECODE = ("measure=decode", "measure.warm_up=1", "measure.repeats=2", "measure.batch=3")
STEP = ("measure=step", "measure.warm_up=1", "measure.repeats=2")


@pytest.mark.parametrize(("kind", "groups"), [("mha", 2), ("mqa", 1)])
def test_the_bytes_of_a_cache_are_those_of_its_keys_and_values(kind: str, groups: int) -> None:
    """Two tensors [rows, groups, n, 8] in float32 for each of two layers; the cost that is counted says the same."""
    overrides = [*DECODE, "measure.lengths=[16,64]", f"model/attention={kind}", "model.num_layers=2"]
    finding = measured(*overrides)
    found = finding.metrics
    assert set(finding.exact) == {"decode/parameters", "decode/cache_bytes@16", "decode/cache_bytes@64"}
    for length in (16, 64):
        assert found[f"decode/cache_bytes@{length}"] == 2 * 2 * groups * 8 * 4 * 3 * length
    config = compose([*TINY, *overrides])
    assert kept_bytes(build_plan(config, task_of(config).interface), 64, torch.float32) == 2 * 2 * groups * 8 * 4 * 64


@pytest.mark.parametrize("kind", ["mha", "gqa", "primer", "linear", "gated_delta", "mamba2", "performer"])
def test_the_counted_bytes_are_those_that_generation_keeps(kind: str) -> None:
    config = compose([*TINY, f"model/attention={kind}", "model.num_layers=2"])
    task = task_of(config)
    model, cache = build_model(config, task.interface), Cache()
    with torch.no_grad():
        model(torch.zeros(1, 9, dtype=torch.int64), Tokens.of(9), cache=cache)
    assert cache.num_bytes == kept_bytes(build_plan(config, task.interface), 9, torch.float32)


def test_a_decoder_that_reads_a_source_keeps_the_source_too() -> None:
    """Keys and values of the text and of the source in each layer, and the source as the encoder gives it."""
    config = compose([*TINY, "task=spans", "model/topology=encoder_decoder", "model.num_layers=2"])
    plan = build_plan(config, task_of(config).interface)
    width, n = plan.dims.d_model, 64
    assert kept_bytes(plan, n, torch.float32) == 4 * n * (2 * (2 * width + 2 * width) + width)


def test_parameters_are_counted() -> None:
    """A table [V, 16] that is tied, four maps [16, 16], a feed-forward layer of width 64, their biases, three norms."""
    config = compose([*TINY, *DECODE])
    vocabulary = task_of(config).vocab_size
    attention, ffn, norms = 4 * (16 * 16 + 16), 2 * 16 * 64 + 64 + 16, 3 * 2 * 16
    found = measured(*DECODE, "measure.lengths=[16]").metrics
    assert found["decode/parameters"] == vocabulary * 16 + attention + ffn + norms


def test_a_step_reads_one_token_of_each_sequence_behind_the_whole_context(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int]] = []
    extend = Cache.extend

    def watched(cache: Cache, tokens: object) -> object:
        found = extend(cache, tokens)  # type: ignore[arg-type]
        read.append((len(tokens), len(found)))  # type: ignore[arg-type]
        return found

    monkeypatch.setattr(Cache, "extend", watched)
    found = measured(*DECODE, "measure.lengths=[64]").metrics
    prefills = [seen for seen in read if seen == (64, 64)]
    steps = [seen for seen in read if seen[0] == 1]
    assert len(prefills) + len(steps) == len(read) and len(prefills) >= 3
    assert [context for _, context in steps] == list(range(65, 65 + len(steps))) and len(steps) <= 1 + 64 // 8
    assert found["decode/tokens_per_second@64"] == pytest.approx(3 / found["decode/step@64"])


@pytest.mark.parametrize(("settings", "prefills"), [((), 3), (("measure.prefills=1",), 2)])
def test_the_steps_go_on_behind_the_last_context_that_was_timed(
    settings: tuple[str, ...], prefills: int, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call that does not count and each that does, so long that it is a sample alone; nothing is read again."""
    read: list[int] = []

    def watched(cache: Cache, tokens: Tokens) -> Tokens:
        read.append(len(tokens))
        return extend(cache, tokens)

    extend = hand.slow(Cache.extend, 1.0)
    monkeypatch.setattr(Cache, "extend", watched)
    found = measured(*DECODE, "measure.lengths=[16]", *settings, now=hand).metrics
    assert read == [16] * prefills + [1] * 3
    assert (found["decode/prefill@16"], found["decode/step@16"]) == (1, 1)


def test_decoding_needs_a_cache_and_a_table_that_reaches_beyond_the_context() -> None:
    for overrides, why in (
        (["model/attention=nystrom", "model/pattern=full"], "a part of this model has none"),
        (["model/position=learned", "measure.lengths=[64]"], "but the table of Learned has 65; set model.max_len=73"),
    ):
        with pytest.raises(UsageError, match=why):
            check(compose([*TINY, *DECODE, *overrides]))


def test_each_phase_of_a_step_takes_its_own_seconds(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrialModule, "training_step", hand.slow(TrialModule.training_step, 3.0))
    monkeypatch.setattr(torch.autograd, "backward", hand.slow(torch.autograd.backward, 5.0))
    monkeypatch.setattr(torch.optim.AdamW, "step", hand.slow(torch.optim.AdamW.step, 2.0))
    found = measured(*STEP, "measure.lengths=[8,16]", "measure.tokens=32", now=hand).metrics
    for length in (8, 16):
        seconds = [found[f"time/{phase}@{length}"] for phase in ("forward", "backward", "update", "step")]
        assert seconds == [3, 5, 2, 10]
        assert found[f"bytes/step@{length}"] > 0


def test_a_step_is_checkpointed_clipped_and_scaled_as_the_trial_says(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = (*STEP, "measure.lengths=[32]", "measure.tokens=256", "model.num_layers=6", "model.max_len=32")
    plain, kept = (
        measured(*deep, f"trainer.gradient_checkpointing={each}").metrics["bytes/step@32"] for each in ("false", "true")
    )
    assert kept < 0.7 * plain
    clipped: list[str] = []
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        monkeypatch.setattr(step, name, lambda *_, name=name: clipped.append(name))
    small = (*STEP, "measure.lengths=[8]", "measure.tokens=8", "measure.repeats=1", "measure.warm_up=0")
    for way, limit, calls in (
        ("norm", 1.0, {"clip_grad_norm_"}),
        ("value", 1.0, {"clip_grad_value_"}),
        ("value", 0, set()),
    ):
        clipped.clear()
        measured(*small, f"trainer.gradient_clip_algorithm={way}", f"trainer.gradient_clip_val={limit}")
        assert set(clipped) == calls
    given: list[list[dict[str, object]]] = []
    groups = step.parameter_groups
    monkeypatch.setattr(step, "parameter_groups", lambda *of: given.append(list(groups(*of))) or given[-1])
    base = ("optim.scaling=mup", "optim.base={d_model: 8, num_heads: 2}", "model.topology.tie_embeddings=false")
    measured(*small, *base)
    assert len({group.get("lr") for group in given[0]}) > 1, "matrices learn at half of the rate"


def test_a_batch_has_as_many_tokens_at_each_length(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []
    original = TrialModule.training_step

    def watched(module: TrialModule, share: object, index: int) -> torch.Tensor:
        shapes.append(tuple(share.batch.inputs.shape))  # type: ignore[attr-defined]
        return original(module, share, index)  # type: ignore[arg-type]

    monkeypatch.setattr(TrialModule, "training_step", watched)
    measured(*STEP, "measure.lengths=[8,16,64]", "measure.tokens=32")
    assert set(shapes) == {(4, 8), (2, 16), (1, 64)}


@pytest.mark.parametrize(
    "overrides",
    [
        ("task=sunspots", "model/position=alibi"),
        ("model/position=randomized", "model.position.drawn_from=128"),
    ],
    ids=lambda each: each[0],
)
def test_every_kind_of_model_has_steps(overrides: tuple[str, ...]) -> None:
    assert measured(*STEP, "measure.lengths=[8]", "measure.tokens=16", *overrides).metrics["time/step@8"] > 0


def test_an_encoder_decoder_has_steps_too(tmp_path: Path) -> None:
    rows = [{"text": f"text {number}", "target": str(number)} for number in range(40)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = ("task=sequence_to_sequence", f"task.source.path={path}", "task.block=16", "task.answer=8")
    overrides = ("model/topology=encoder_decoder", "measure.lengths=[8]", "measure.tokens=16")
    assert measured(*STEP, *task, *overrides).metrics["time/step@8"] > 0


def test_the_clock_of_a_step_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    clock = Clock(torch.device("cuda"), lambda: 0.0)
    clock.timed(lambda: None)
    assert len(waits) == 2, "before and after"
