"""`swapformer cost`: numbers that can be worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from configs import every_part
from swapformer.errors import UsageError
from swapformer.model.cache import Cache
from swapformer.model.generate import Prompt, StepwiseGeneration
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology, take_auxiliary_loss
from swapformer.paths import experiments_dir
from swapformer.study.config.compose import compose, task_of
from swapformer.study.config.cost import measure
from swapformer.tools.cost import main
from swapformer.training.assemble import build_model, count_parameters

GPT = ["task=copy", "model.num_layers=3", "model.d_model=64", "model.num_heads=4", "model.max_len=64"]


def cost(*overrides: str, batch: int = 1, lengths: tuple[int, ...] = (32,), dtype: str = "float32") -> dict[str, Any]:
    config = compose([*GPT, *overrides])
    return measure(config, task_of(config).vocab_size, batch, lengths, dtype)


@pytest.mark.parametrize("kernel", ["reference", "sdpa"])
def test_operations_are_those_of_the_closed_form(kernel: str) -> None:
    """A GPT's matrices: 12·L·D² weights and the head's V·D, each used once for each token; QKᵀ and AV beside them."""
    batch, length, width, layers = 2, 32, 64, 3
    config = compose([*GPT, f"model/kernel={kernel}"])
    vocabulary = task_of(config).vocab_size
    found = measure(config, vocabulary, batch, [length], "float32")["lengths"][0]
    weights = 2 * batch * length * (12 * layers * width**2 + vocabulary * width)
    forward = weights + 4 * batch * length**2 * width * layers
    assert found["forward"] == forward
    if kernel == "reference":
        assert found["backward"] == 2 * forward


def attention_alone(attention: str, length: int, *settings: str) -> tuple[int, int | None]:
    """Operations of the attention's mixing in all layers, what the forward has beside linear maps; bytes of a cache."""
    report = cost(f"model/attention={attention}", "model.max_len=512", *settings, lengths=(length,))
    maps = ("token_embedding", "query", "key", "value", "attention_out", "ffn_in", "ffn_out")
    weights = sum(report["by_role"].get(role, 0) for role in maps)
    filters = 3 * 4 * 35 if attention == "nystrom" else 0  # of values, but no map of the stream
    found = report["lengths"][0]
    return found["forward"] - 2 * length * (weights - filters), found["kv_cache"]


def test_attentions_by_landmarks_and_buckets_cost_what_their_formulas_say() -> None:
    """Three layers of width D = 64 in H = 4 heads of E = 16, T places; a product [a, b]·[b, c] is 2abc operations.

    For generation Reformer keeps query, value and 4 numbers of buckets of every place and head; the others see the
    future.
    """
    length, layers, width, heads, size, landmarks = 256, 3, 64, 4, 16, 32
    full = "model/pattern=full"
    # A·k, C·v, q·k̃ᵀ and the weights times ṽ.
    linformer = layers * 4 * (2 * length * landmarks * width)
    assert attention_alone("linformer", length, full, f"model.attention.landmarks={landmarks}") == (linformer, None)
    # Two means, three matrices, two of them times values, three small products, the inverse and the convolution.
    inverse = 6 * 4 * 2 * landmarks**3 + 2 * landmarks**2 * size + 2 * landmarks**2 * size
    nystrom = layers * (6 * 2 * length * landmarks * width + heads * inverse + 2 * 35 * length * width)
    assert attention_alone("nystrom", length, full) == (nystrom, None)
    # For each of 4 rounds the hash by 8 directions, and q·kᵀ and the weights times v over three chunks of 32.
    reformer = layers * 4 * (2 * length * 8 * width + 2 * (2 * length * 96 * width))
    assert attention_alone("reformer", length) == (reformer, layers * length * (2 * width + heads * 4) * 4)


def test_parts_that_draw_their_own_constants_can_be_counted() -> None:
    """Directions are drawn on the CPU, but the count is taken on meta."""
    assert cost("model/attention=performer")["lengths"][0]["forward"] > 0


def test_parameters_are_those_of_the_model() -> None:
    config = compose(GPT)
    report = cost()
    assert report["parameters"] == count_parameters(build_model(config, task_of(config).vocab_size))
    assert sum(report["by_role"].values()) == report["parameters"]["total"]


@pytest.mark.parametrize(
    ("attention", "elements"),
    [
        (["model/attention=mha"], 33_554_432),
        (["model/attention=gqa", "model.attention.num_kv_heads=4"], 16_777_216),
        (["model/attention=mqa"], 4_194_304),
    ],
    ids=["mha", "gqa", "mqa"],
)
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2)])
def test_the_cache_holds_two_numbers_for_each_channel_of_a_key(
    attention: list[str], elements: int, dtype: str, size: int
) -> None:
    """2·B·n·G·E elements a layer with B = 32, n = 1024, E = 512/8: G = 8, 4 and 1 (Shazeer 2019; Ainslie 2023)."""
    sizes = ["model.num_layers=1", "model.d_model=512", "model.num_heads=8", "model.max_len=1024"]
    report = cost(*sizes, *attention, batch=32, lengths=(1024,), dtype=dtype)
    assert report["lengths"][0]["kv_cache"] == elements * size


CHAPTER = ["task=copy", "model/kernel=reference", "model/position=none", "model.bias=false", "model.num_layers=1",
           "model.d_model=512", "model.num_heads=8", "model.max_len=1025"]  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "projections", "training", "token"),
    [(8, 786_432, 824.6, 8_388_608), (4, 524_288, 773.1, 7_864_320), (2, 393_216, 747.3, 7_602_176),
     (1, 327_680, 734.4, 7_471_104)],
)  # fmt: skip
def test_shared_keys_and_values_save_parameters_and_few_operations(
    groups: int, projections: int, training: float, token: int
) -> None:
    """The numbers of experiments/05_kv_sharing: a layer with D = 512, H = 8, 32 sequences of n = 1024 tokens.

    Q, K and V have D² + 2·D·G·64 weights, W_o and the feed-forward layer 9·D² more. A token takes twice the weights and
    4·n·D operations for q·k and the weights times v, in training thrice that; a token behind n − 1 cached ones as much.
    """
    config = compose([*CHAPTER, "model/attention=gqa", f"model.attention.num_kv_heads={groups}"])
    vocabulary = task_of(config).vocab_size
    report = measure(config, vocabulary, 32, [1024], "float32")
    assert (
        sum(report["by_role"][role] for role in ("query", "key", "value")) == projections == 512**2 + 128 * 512 * groups
    )
    assert token == 2 * (projections + 9 * 512**2) + 4 * 1024 * 512
    head = 2 * 512 * vocabulary
    found = report["lengths"][0]
    assert found["forward"] == 32 * 1024 * (token + head)
    assert found["forward"] + found["backward"] - 3 * 32 * 1024 * head == 3 * 32 * 1024 * token
    assert round(3 * 32 * 1024 * token / 1e9, 1) == training
    assert decoded(config, vocabulary, 1023) == token + head


def test_bytes_and_operations_explain_the_measured_times_of_decoding() -> None:
    """1.07 ms, .122 ms a megabyte and .0195 ms a MFLOP, least squares of relative errors, as that README says."""
    rows = pd.read_csv(experiments_dir() / "05_kv_sharing" / "decode" / "results" / "results.csv")
    means = rows.groupby(["arm", "metric"])["value"].mean().dropna()
    speeds = means[means.index.get_level_values("metric").str.startswith("decode/tokens_per_second@")]
    groups = {"mha8": 8, "gqa4": 4, "gqa2": 2, "mqa": 1}
    facts, times = [], []
    for (arm, metric), speed in speeds.items():
        heads, several, context = groups[arm.split("_")[0]], 32 if arm.endswith("b32") else 1, int(metric.split("@")[1])
        weights = means[arm, "decode/parameters"]
        read = 4 * (weights + several * 2 * 64 * heads * context)
        facts.append((1, read / 1e6, several * (2 * weights + 4 * context * 512) / 1e6))
        times.append(1000 * several / speed)
    design, measured = np.array(facts), np.array(times)
    found = np.linalg.lstsq(design / measured[:, None], np.ones(len(times)), rcond=None)[0]
    assert len(times) == 20 and found == pytest.approx([1.07, 0.122, 0.0195], rel=0.01)
    assert design @ found == pytest.approx(measured, rel=0.053)
    (shared,) = [row for row, time in zip(design, times, strict=True) if round(time, 1) == 8.8]
    assert (found * shared).tolist() == pytest.approx([1.07, 3.4, 4.7], rel=0.01)


def decoded(config: dict[str, Any], vocabulary: int, context: int) -> int:
    """Operations of one token behind a context that is cached."""
    model, cache = build_model(config, vocabulary).to("meta"), Cache()
    with torch.no_grad():
        model(*model.example(1, context, "meta"), cache)
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, 1, dtype=torch.int64, device="meta"), Tokens.of(1, start=context, device="meta"),
                  None, None, cache)  # fmt: skip
    return int(counter.get_total_flops())


def test_a_kernel_that_keeps_no_weights_keeps_less() -> None:
    kept = [cost(f"model/kernel={kernel}")["lengths"][0]["activations"] for kernel in ("sdpa", "reference")]
    assert kept[0] < kept[1]


def test_an_early_answer_costs_one_more_head() -> None:
    """In training every exit is read: V·D weights for each token, used once forward and twice backward."""
    fixed, early = (
        cost(f"model/depth={depth}", "model/kernel=reference")["lengths"][0] for depth in ("fixed", "early_exit")
    )
    head = 2 * 32 * 64 * task_of(compose(GPT)).vocab_size
    assert early["forward"] - fixed["forward"] == head
    assert early["backward"] - fixed["backward"] == 2 * head


def test_a_loss_of_the_model_s_own_is_walked_backwards_too() -> None:
    """A loss between heads costs products in the forward pass, and so twice as many in the backward pass."""
    plain, apart = (
        cost(f"model/attention={name}", "model/kernel=reference")["lengths"][0] for name in ("mha", "orthogonal_heads")
    )
    assert apart["forward"] > plain["forward"]
    assert apart["backward"] - plain["backward"] == 2 * (apart["forward"] - plain["forward"])


def test_json_is_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GPT, "--lengths", "16,32", "--batch", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["batch"] == 2 and [entry["length"] for entry in report["lengths"]] == [16, 32]
    assert main([*GPT]) == 0
    assert "parameters" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lengths", "16,x"], "whole numbers"),
        (["model/position=learned", "model.max_len=96", "--lengths", "97"], "table of 96 rows of Learned"),
        (
            [
                "model/attention=linformer",
                "model/pattern=full",
                "allow=[future]",
                "model.max_len=96",
                "--lengths",
                "97",
            ],
            "table of 96 rows of Linformer",
        ),
        (["model/ffn=moe"], "depends on the data"),
    ],
    ids=["no-number", "beyond-the-table", "beyond-the-landmarks", "routed"],
)
def test_what_cannot_be_counted_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        main([*GPT, *arguments])


def kept_while_writing(model: Topology, length: int) -> int:
    """Elements that lie in the cache of a model that has read `length` places, one after the other."""
    generation = StepwiseGeneration(model, Prompt(torch.zeros(1, 1, dtype=torch.int64)))
    for _ in range(length):
        generation.logits()
        generation.append(torch.zeros(1, dtype=torch.int64))
    assert generation._cache is not None
    return sum(value.numel() for values in generation._cache._entries.values() for value in values)


@pytest.mark.parametrize("option", ["mha", "gqa", "mqa", "mla", "linear", "performer", "gated_delta", "mamba2"])
def test_what_generation_keeps_is_what_lies_in_the_cache(option: str) -> None:
    config = compose([*GPT, f"model/attention={option}"])
    report = measure(config, 11, 1, [9], "float32")
    assert report["lengths"][0]["kv_cache"] == 4 * kept_while_writing(build_model(config, 11), 9)


def test_a_window_keeps_only_what_it_sees() -> None:
    config = compose([*GPT, "model/pattern=window", "model.pattern.before=3"])
    whole, cut = measure(config, 11, 1, [4, 64], "float32")["lengths"]
    assert whole["kv_cache"] == cut["kv_cache"] == 4 * kept_while_writing(build_model(config, 11), 9)


def test_nothing_is_kept_where_all_is_computed_anew() -> None:
    config = compose([*GPT, "model/position=rope_ntk_dynamic"])
    assert measure(config, 11, 1, [9], "float32")["lengths"][0]["kv_cache"] is None


def test_a_study_is_counted_before_it_was_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "baseline: narrow\narms: {narrow: [], wide: [model.ffn.expansion=8], half: [trainer.precision=bf16-mixed], "
        "parts: [trainer.accumulate_grad_batches=4]}\nseeds: 2\n"
        f"overrides: [{', '.join(GPT)}]\n"
    )
    assert main([str(study), "--json", f"runs_dir={tmp_path / 'runs'}"]) == 0
    arms = {arm["arm"]: arm for arm in json.loads(capsys.readouterr().out)["arms"]}
    told = {name: arm["flops"] for name, arm in arms.items()}
    config = compose(GPT)
    rows, length = task_of(config).train_batch(0, 0).inputs.shape
    more = 3 * 2 * (8 * 64**2) * 3 * rows * length
    assert told["wide"] - told["narrow"] == more, "two matrices of 4·D² more in 3 layers, forward and twice that back"
    assert told["parts"] == told["half"] == told["narrow"]
    held = {name: arm["activations"] for name, arm in arms.items()}
    assert 4 * held["parts"] == pytest.approx(held["narrow"], rel=0.02) and 0.4 < held["half"] / held["narrow"] < 0.7
    assert not (tmp_path / "runs").exists()
    assert main([str(study)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "narrow"
    with pytest.raises(UsageError, match="--batch does nothing here"):
        main([str(study), "--batch", "2"])


def executed(config: dict[str, Any], vocabulary: int, batch: int, length: int) -> tuple[int, int]:
    """Operations that torch counts while a model trains on this machine's CPU, forward and backward."""
    model = build_model(config, vocabulary).train()
    with FlopCounterMode(display=False) as forward:
        total = model(*model.example(batch, length, "cpu")).sum()
        if (auxiliary := take_auxiliary_loss(model)) is not None:
            total = total + auxiliary
    with FlopCounterMode(display=False) as backward:
        total.backward()
    return int(forward.get_total_flops()), int(backward.get_total_flops())


NOT_COUNTED = {
    ("depth", "early_exit"): "its early answers are losses of training, which a plain forward does not have",
    ("attention", "gated_delta"): "torch does not count the triangular systems, which swapformer does",
    ("attention", "linformer"): "torch's counter leaves out its own fused attention on a CPU",
}
"""Options whose operations torch's counter does not see in a plain forward and backward."""


@pytest.mark.parametrize(("slot", "option"), every_part())
def test_operations_are_those_that_a_cpu_executes(slot: str, option: str) -> None:
    """Of every part: what is counted on the meta device is what torch's own counter sees on the CPU."""
    if (slot, option) in NOT_COUNTED:
        pytest.skip(NOT_COUNTED[slot, option])
    chosen = [f"model/{slot}={option}"] if slot == "kernel" else [f"model/{slot}={option}", "model/kernel=reference"]
    if option == "nystrom":  # no model that predicts what comes next may have it
        chosen += ["task=masked", "model/pattern=full", "task.block=128"]
    try:
        config = compose([*GPT, "model.num_layers=2", "model.max_len=128", *chosen])
        vocabulary = task_of(config).vocab_size
        found = measure(config, vocabulary, 2, [128], "float32")["lengths"][0]
    except UsageError as refused:
        pytest.skip(str(refused)[:80])
    if slot == "kernel" and option != "reference":
        pytest.skip("torch's counter leaves out its own fused attention on a CPU")
    assert (found["forward"], found["backward"]) == executed(config, vocabulary, 2, 128)


def test_operations_are_those_of_the_accelerator() -> None:
    """On a GPU kernel=auto computes all pairs of a window, and a cumulative sum is a product with triangles."""
    long = ["task=copy", "task.lengths=[4,500]", "task.eval_lengths=[510]", "model.max_len=2048", "model.num_layers=2"]
    window = [*long, "model.d_model=64", "model.num_heads=4", "model/pattern=window", "model.pattern.before=31"]
    plain = [*long, "model.d_model=64", "model.num_heads=4"]

    def forward(*overrides: str) -> int:
        return int(measure(compose(overrides), 40, 1, [1024], "float32")["lengths"][0]["forward"])

    assert forward(*window, "trainer=gpu") == forward(*plain, "trainer=gpu") == forward(*plain, "trainer=cpu")
    assert forward(*window, "trainer=cpu") < 0.5 * forward(*window, "trainer=gpu")
    cope = [*GPT, "model/position=cope"]
    on = {
        kind: measure(compose([*cope, f"trainer={kind}"]), 40, 1, [64], "float32")["lengths"][0]
        for kind in ("cpu", "gpu")
    }
    assert on["cpu"]["forward"] < on["gpu"]["forward"]
    steps = {
        position: compose([*GPT, "budget.flops=1e10", "model/kernel=reference", f"model/position={position}"])[
            "budget"
        ]["steps"]
        for position in ("none", "cope")
    }
    assert steps["none"] > steps["cope"] > 0.5 * steps["none"]
