"""What `python -m benchmarks parts` compares is the same work; what it prints follows from what it measured."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor

from benchmarks import decoder
from benchmarks.__main__ import BENCHMARKS, GROUPS, parser
from benchmarks.attention import CASES, attention_step
from benchmarks.measurement import compare, growth
from benchmarks.nanogpt import NanoGPT
from benchmarks.parts import EPS, MEASURED, ON_CUDA, layer_norm, measure, rms_norm
from swapformer.errors import UsageError
from swapformer.model.dims import Dims
from swapformer.model.norm import LayerNorm, RMSNorm
from swapformer.study.config.compose import compose
from swapformer.training.assemble import build_model

VOCABULARY, LAYERS, WIDTH = 11, 2, 16
COMMON = {"benchmark", "force", "json", "debug"}
"""What the command itself reads."""


def borrowed(name: str) -> str:
    """Where the direct GPT keeps a weight of our decoder, the attention's three first ones aside."""
    for ours, theirs in (
        ("embedding.weight", "wte.weight"),
        ("stack.positions.Learned.table.weight", "wpe.weight"),
        ("stack.final_norm.weight", "ln_f.weight"),
        ("stack.layers.", "h."),
        (".attention.out.", ".attn.c_proj."),
        (".ffn.up.", ".mlp.c_fc."),
        (".ffn.down.", ".mlp.c_proj."),
        (".block.sublayers.0.before.", ".ln_1."),
        (".block.sublayers.1.before.", ".ln_2."),
    ):
        name = name.replace(ours, theirs)
    return name


def test_with_many_symbols_both_sides_take_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "SYMBOLS", (101, 128))
    found = list(decoder.with_many_symbols(1, "cpu", (1, 2, 16, 8, 2), None))
    assert [each.name.split(", ")[2] for each in found] == ["101 symbols", "128 symbols"]
    assert all(each.ours > 0 and each.theirs > 0 for each in found)


def test_the_gpt_of_the_benchmark_computes_what_the_decoder_does() -> None:
    """Same weights, same logits and gradients: the step that is compared is the same step."""
    sizes = [f"model.num_layers={LAYERS}", f"model.d_model={WIDTH}", "model.num_heads=2", "model.max_len=9"]
    ours = build_model(compose(["+preset=nanogpt_cpu", "task/source=python", *sizes]), VOCABULARY).double()
    theirs = NanoGPT(LAYERS, 2, WIDTH, 9, VOCABULARY).double()
    with torch.no_grad():
        weights = {borrowed(name): value for name, value in ours.named_parameters()}
        for value in weights.values():
            value.copy_(torch.randn(value.shape, generator=torch.Generator().manual_seed(len(value))))
        parts: dict[str, list[Tensor]] = {}
        for name, value in theirs.named_parameters():
            if "c_attn" in name:
                stem = name.replace("attn.c_attn.weight", "attention.")
                parts[name] = [weights[f"{stem}{part}.weight"] for part in ("query", "key", "value")]
                value.copy_(torch.cat(parts[name]))
            else:
                value.copy_(weights[name])
    ids, targets = torch.randint(VOCABULARY, (2, 3, 9), generator=torch.Generator().manual_seed(0))
    logits, loss = theirs(ids, targets)
    assert torch.allclose(ours(ids), logits, rtol=0, atol=1e-10)
    torch.nn.functional.cross_entropy(ours(ids).flatten(0, 1), targets.flatten()).backward()
    loss.backward()
    for name, value in theirs.named_parameters():
        own = [part.grad for part in parts.get(name, [weights.get(name)]) if part is not None and part.grad is not None]
        assert value.grad is not None and torch.allclose(torch.cat(own), value.grad, rtol=0, atol=1e-10), name


@pytest.mark.parametrize(("part", "written"), [(LayerNorm, layer_norm), (RMSNorm, rms_norm)])
def test_norms_written_out_are_those_of_the_model(part: type[LayerNorm | RMSNorm], written: object) -> None:
    norm = part(Dims(8, 1, 1, 8, 4, 2, bias=False), eps=EPS, affine=True).double()
    x, weight = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    assert norm.weight is not None and callable(written)
    norm.weight.data = weight
    assert torch.allclose(norm(x), written(x, weight), rtol=0, atol=1e-12)


def test_a_kernel_is_measured_where_it_takes_what_is_asked() -> None:
    asked = ("causal", "window of 64", "longformer of 64")
    taken = [attention_step(["model/kernel=blocked", *CASES[case]], 64) is not None for case in asked]
    assert taken == [False, True, True]


@pytest.mark.parametrize(("power", "verdict"), [(1.0, "met"), (2.0, "missed")])
def test_growth_is_the_power_of_the_size(power: float, verdict: str) -> None:
    found = growth("g", "ms", {size: 3 * size**power for size in (10, 20, 40)}, 1.2)
    assert found.slope == pytest.approx(power)
    assert f"slope {power:.2f}; asked: slope ≤ 1.2: {verdict}" in found.line()


def test_a_comparison_without_a_target_has_no_verdict() -> None:
    assert (
        compare("c", "ms", [(1.0, 2.0), (1.0, 4.0), (3.0, 4.0)])
        .line()
        .endswith("ratio 0.500 [0.250, 0.750] over 3 rounds")
    )
    asked = compare("c", "ms", [(1.0, 2.0)], "≤ 1", lambda ratio: ratio <= 1)
    assert asked.line().endswith("asked: ≤ 1: met")


def test_every_group_can_be_measured() -> None:
    assert tuple(MEASURED) == GROUPS and set(ON_CUDA) <= set(GROUPS)


NEEDED = {"checkout": ["elsewhere"]}
"""What has to be said of a benchmark."""


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_takes_the_options_of_its_command_line(name: str) -> None:
    options = {
        key: value
        for key, value in vars(parser().parse_args([name, *NEEDED.get(name, ())])).items()
        if key not in COMMON
    }
    inspect.signature(BENCHMARKS[name].load()).bind(**options)


def test_a_word_that_is_no_benchmark_is_answered_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    for word, answer in (("stpe", "did you mean 'step'?"), ("zzz", f"known: {', '.join(sorted(BENCHMARKS))}")):
        with pytest.raises(SystemExit):
            parser().parse_args([word])
        assert f"no benchmark {word!r}; {answer}" in capsys.readouterr().err


def test_a_group_that_is_about_a_cpu_alone_is_not_measured_elsewhere_in_silence() -> None:
    with pytest.raises(
        UsageError, match="kernels, decoder, decode, norms alone, not for blocked, which are about a CPU"
    ):
        list(measure(["blocked", "norms"], "cuda", 1))
