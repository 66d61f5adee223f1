"""Writing with a cache equals computing every place anew; samplers and beams do what they say."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from configs import SMALL, small
from swapformer.catalogue import options
from swapformer.conformance.subject import VOCABULARY, Subject, ids, run
from swapformer.errors import UsageError
from swapformer.interface import Interface
from swapformer.model.generate import Prompt, Sampler, StepwiseGeneration, beam_search, complete, generate, greedy
from swapformer.model.position.rotary import Rotation
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.study.config.compose import check, compose
from swapformer.training.assemble import build_model


def wide(*overrides: str) -> Topology:
    return Subject(small(list(overrides)), "position").perturbed()


def steps_of(model: Topology, inputs: Tensor, *, cache: bool, padding: Tensor | None = None) -> Tensor:
    """Logits after each of the last six places, which are handed over one by one."""
    given = None if padding is None else padding[:, :-6]
    generation = StepwiseGeneration(model, Prompt(inputs[:, :-6], given), cache=cache)
    found = [generation.logits()]
    for place in range(-6, 0):
        generation.append(inputs[:, place])
        found.append(generation.logits())
    return torch.stack(found, 1)


class TestPadding:
    @pytest.mark.parametrize(
        "part",
        [
            "position=rope",
            "attention=mla",
            "attention=gated_delta",
            "attention=mamba2",
            "attention=linear convolution=3",
            "position=transformer_xl model/pattern=window model.pattern.before=3",
        ],
    )
    def test_shorter_prompts_write_what_they_write_alone(self, part: str) -> None:
        model, inputs = wide(*f"model/{part}".replace(" convolution", " model.attention.convolution").split()), ids(2)
        padding = torch.zeros_like(inputs, dtype=torch.bool)
        padding[1, :5] = True
        for cache in (True, False):
            together = steps_of(model, inputs, cache=cache, padding=padding)
            alone = steps_of(model, inputs[1:, 5:], cache=cache)
            assert (together[1:] - alone).abs().max() < 1e-10

    def test_behind_the_symbols_is_refused(self) -> None:
        padding = torch.tensor([[False, True]])
        with pytest.raises(ValueError, match="padded on the left"):
            StepwiseGeneration(wide(), Prompt(ids(1, 2), padding))


class TestLimits:
    def test_beyond_the_table_the_last_places_are_read_as_a_text_of_their_own(self) -> None:
        model = wide("model/position=learned", "model.max_len=8")
        inputs = ids(1, 12)
        generation = StepwiseGeneration(model, Prompt(inputs))
        expected = run(model, inputs[:, -8:], Tokens.of(8))[:, -1]
        assert (generation.logits() - expected).abs().max() < 1e-10
        assert not generation.cached

    def test_an_encoding_that_depends_on_the_length_has_no_cache(self) -> None:
        for position in ("rope_ntk_dynamic", "learned_interpolated"):
            assert not StepwiseGeneration(wide(f"model/position={position}"), Prompt(ids(1))).cached

    def test_a_pattern_that_depends_on_the_length_has_no_cache_and_writes_what_it_computes_anew(self) -> None:
        """A token of the last block sees everything before it, until another block follows."""
        model = wide("model/pattern=bigbird_causal", "+model.pattern.patterns.reach.last=1")
        assert not StepwiseGeneration(model, Prompt(ids(1))).cached
        inputs = ids(2)
        assert torch.equal(steps_of(model, inputs, cache=True), steps_of(model, inputs, cache=False))
        assert StepwiseGeneration(wide("model/pattern=bigbird_causal"), Prompt(ids(1))).cached

    def test_tags_that_nobody_gives_are_refused(self) -> None:
        with pytest.raises(ValueError, match="tags"):
            StepwiseGeneration(wide("model/pattern=same_tag"), Prompt(ids(1)))

    def test_an_empty_prompt_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at least one symbol"):
            StepwiseGeneration(wide(), Prompt(ids(1, 0)))


def test_a_window_keeps_only_what_it_sees() -> None:
    model = wide("model/pattern=window", "model.pattern.before=3")
    generation = StepwiseGeneration(model, Prompt(ids(1)))
    generation.logits()
    assert generation._cache is not None
    kept = [value.shape[-2] for values in generation._cache._entries.values() for value in values]
    assert kept and set(kept) == {4}


@pytest.mark.parametrize("part", ["attention=mha", "attention=mla", "position=rope_yarn", "position=xpos"])
def test_a_key_is_turned_once(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key's angle is its own position's, so the cache holds it turned: a new token turns its own query and key."""
    turned = []
    turn = Rotation.turn
    monkeypatch.setattr(Rotation, "turn", lambda *given: turned.append(given[1].shape[2]) or turn(*given))
    model, inputs = wide("model/position=rope", f"model/{part}"), ids(2)
    steps_of(model, inputs, cache=True)
    layers = len(model.stack.layers)
    assert turned == [inputs.shape[1] - 6] * 2 * layers + [1] * 6 * 2 * layers
    monkeypatch.setattr(Rotation, "turn", turn)
    assert (steps_of(model, inputs, cache=True) - steps_of(model, inputs, cache=False)).abs().max() < 1e-10


class TestEncoderDecoder:
    READING = ("task=copy", "task.as_source=true", "model/topology=encoder_decoder")

    @pytest.mark.parametrize(
        "part",
        [
            *(f"model/attention={name}" for name in options("attention")),
            *(f"model/extension=[{name}]" for name in options("extension")),
            "model/attention=linear model.attention.convolution=3",
        ],
    )
    def test_the_cache_changes_nothing(self, part: str) -> None:
        config = compose([*self.READING, *SMALL, "model/position=t5", *part.split()])
        try:
            check(config)
        except UsageError:
            pytest.skip("no attention that can read a source")
        model = build_model(config, Interface(VOCABULARY, source=True)).double().eval()
        assert model.stack.can_cache
        noise = torch.Generator().manual_seed(0)
        with torch.no_grad():  # what begins as the identity does something
            for weight in model.parameters():
                weight += 0.3 * torch.randn(weight.shape, generator=noise, dtype=weight.dtype)
        source = ids(2, 7, seed=3)
        padding = torch.zeros(2, 7, dtype=torch.bool)
        padding[0, 5:] = True
        prompt = Prompt(ids(2, 3), source=source, source_tokens=Tokens.of(7, padding=padding))
        generations = [StepwiseGeneration(model, prompt, cache=cache) for cache in (True, False)]
        for symbol in range(5):
            first, second = (generation.logits() for generation in generations)
            assert (first - second).abs().max() < 1e-10
            for generation in generations:
                generation.append(torch.full((2,), symbol))

    def test_an_encoder_of_the_inputs_reads_anew_what_has_been_written(self) -> None:
        """It has no cache: with each symbol its output changes, and the whole is read as a sequence of its own."""
        ahead = ["model/topology=encoder_decoder", "model.topology.source=inputs", "model/position=t5"]
        model, prompt = build_model(small(ahead), VOCABULARY).double().eval(), ids(2, 3)
        generation = StepwiseGeneration(model, Prompt(prompt))
        assert not generation.cached
        for symbol in range(4):
            assert torch.allclose(generation.logits(), run(model, generation.ids)[:, -1], atol=1e-12)
            generation.append(torch.full((2,), symbol))


class TestSampler:
    LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64)

    def test_temperature_divides_logits(self) -> None:
        found = Sampler(stream(0), temperature=2.0).probabilities(self.LOGITS)
        assert torch.allclose(found, (self.LOGITS / 2).softmax(-1))

    def test_top_k_leaves_the_k_most_probable_in_proportion(self) -> None:
        found = Sampler(stream(0), top_k=2).probabilities(self.LOGITS)
        assert torch.allclose(found[0, :2], self.LOGITS[0, :2].softmax(-1))
        assert not found[0, 2:].any()

    def test_top_p_leaves_the_smallest_set_that_reaches_p(self) -> None:
        p = self.LOGITS.softmax(-1)[0]  # .644, .237, .087, .032
        for top_p, count in ((0.6, 1), (0.65, 2), (0.9, 3), (1.0, 4)):
            found = Sampler(stream(0), top_p=top_p).probabilities(self.LOGITS)[0]
            assert int((found > 0).sum()) == count
            assert torch.allclose(found[:count], p[:count] / p[:count].sum())

    def test_frequencies_are_the_probabilities(self) -> None:
        """Within four standard errors of a binomial count."""
        sampler = Sampler(stream("draws"), temperature=1.5)
        p = sampler.probabilities(self.LOGITS)[0]
        draws = sampler(self.LOGITS.expand(20_000, -1))
        share = torch.bincount(draws, minlength=4) / 20_000
        assert ((share - p).abs() < 4 * (p * (1 - p) / 20_000).sqrt()).all()

    @pytest.mark.parametrize("setting", [{"temperature": 0.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}])
    def test_settings_out_of_range_are_refused(self, setting: dict[str, float]) -> None:
        with pytest.raises(ValueError, match=next(iter(setting))):
            Sampler(stream(0), **setting)  # type: ignore[arg-type]


class TestCompleting:
    def test_greedy_writing_feeds_back_the_most_probable_symbol(self) -> None:
        model, inputs = wide(), ids(2, 5)
        written = torch.stack(list(generate(model, Prompt(inputs), 6, greedy)), 1)
        whole = torch.cat([inputs, written], 1)
        assert torch.equal(run(model, whole).argmax(-1)[:, 4:-1], written)

    def test_stops_where_all_rows_have_stopped_and_fills_with_stop(self) -> None:
        model, inputs = wide(), ids(3, 5)
        free = complete(model, Prompt(inputs), 12, greedy)
        stop = int(free[0, 3])
        found = complete(model, Prompt(inputs), 12, greedy, stop=stop)
        for row, all_of_it in zip(found, free, strict=True):
            hits = (all_of_it == stop).nonzero()
            end = int(hits[0]) + 1 if len(hits) else 12
            assert torch.equal(row[:end], all_of_it[:end][: len(row)])
            assert (row[end:] == stop).all()


class TestBeams:
    def best(self, model: Topology, prompt: Tensor, steps: int, stop: int, penalty: float) -> tuple[list[int], float]:
        """By trying every answer of at most `steps` symbols."""
        found: list[tuple[float, list[int]]] = []
        for answer in itertools.product(range(VOCABULARY), repeat=steps):
            kept = list(answer[: answer.index(stop) + 1] if stop in answer else answer)
            whole = torch.cat([prompt, torch.tensor([kept])], 1)
            logits = run(model, whole).log_softmax(-1)[0, prompt.shape[1] - 1 : -1]
            total = float(logits.gather(1, torch.tensor(kept)[:, None]).sum())
            found.append((total / ((5 + len(kept)) / 6) ** penalty, kept))
        score, answer = max(found)
        return answer, score

    @pytest.mark.parametrize("penalty", [0.0, 1.0])
    def test_with_enough_beams_the_best_answer_of_all_is_found(self, penalty: float) -> None:
        model, prompt, stop = wide("model.num_layers=1"), ids(1, 3), 4
        answer, score = self.best(model, prompt, 2, stop, penalty)
        found, value = beam_search(model, Prompt(prompt), 2, width=VOCABULARY**2, stop=stop, length_penalty=penalty)
        assert found[0, : len(answer)].tolist() == answer
        assert float(value[0]) == pytest.approx(score, abs=1e-10)

    def test_one_beam_is_greedy(self) -> None:
        model, inputs = wide(), ids(3, 5)
        found, _ = beam_search(model, Prompt(inputs), 5, width=1, stop=0)
        assert torch.equal(found, complete(model, Prompt(inputs), 5, greedy, stop=0)[:, : found.shape[1]])

    def test_the_cache_changes_nothing(self) -> None:
        model, inputs = wide("model/position=t5"), ids(2, 5)
        for first, second in zip(
            *(beam_search(model, Prompt(inputs), 5, width=3, stop=0, cache=cache) for cache in (True, False)),
            strict=True,
        ):
            assert torch.allclose(first, second)

    def test_no_beam_is_refused(self) -> None:
        with pytest.raises(ValueError, match="`width` must be"):
            beam_search(wide(), Prompt(ids(1)), 3, width=0, stop=0)
