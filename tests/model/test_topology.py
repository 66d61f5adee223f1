"""What stands around the layers: answers by name, segments, poolers, and a decoder that reads a source."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from configs import small
from swapformer.conformance.subject import Subject
from swapformer.interface import MAIN, Interface, Readout
from swapformer.model.dims import Side
from swapformer.model.layers import Embedding, origin_of
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.training.assemble import build_model, build_plan

V = 11
AHEAD = "model.topology.source=inputs"


def made(interface: Interface, *overrides: str) -> Topology:
    model = Subject._perturb(build_model(small(list(overrides)), interface).double())
    assert not model.training
    return model


def ids(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(V, (rows, length), generator=stream("ids", seed))


def padded(rows: int, length: int, kept: int) -> Tensor:
    padding = torch.zeros(rows, length, dtype=torch.bool)
    padding[0, kept:] = True
    return padding


CLASSES = Readout(3, "classes", "sequence")


class TestAnswers:
    ASKED = Interface(
        V, readouts={MAIN: Readout(V), "topic": CLASSES, "kind": Readout(4, "classes"), "size": Readout(2, "values")}
    )

    @pytest.mark.parametrize("topology", ["decoder", "encoder"])
    def test_have_the_shapes_that_were_asked_for(self, topology: str) -> None:
        answers = made(self.ASKED, f"model/topology={topology}").answers(ids(2, 7))
        shapes = {name: list(answer.shape) for name, answer in answers.items()}
        assert shapes == {MAIN: [2, 7, V], "topic": [2, 3], "kind": [2, 7, 4], "size": [2, 7, 2]}

    @pytest.mark.parametrize("topology", ["decoder", "encoder"])
    def test_are_the_same_where_a_gpu_needs_aligned_rows(self, topology: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The rows of zeros that are added count for nothing, forward and backward."""
        model, found = made(Interface(V), f"model/topology={topology}"), []
        given = torch.randn(2, 7, V, generator=stream("given", 0), dtype=torch.float64)
        linear, widths = functional.linear, []
        monkeypatch.setattr(functional, "linear", lambda x, w, b=None: widths.append(len(w)) or linear(x, w, b))
        for aligned in (False, True):
            monkeypatch.setattr("swapformer.model.ops.MANY", 0 if aligned else 4096)
            monkeypatch.setattr("swapformer.model.ops._needs_alignment", lambda x, needed=aligned: needed)
            logits = model(ids(2, 7))
            found.append([logits, *torch.autograd.grad((logits * given).sum(), list(model.parameters()))])
            assert widths[-1] == (64 if aligned else V)
        for ours, plain in zip(*found, strict=True):
            assert torch.allclose(ours, plain, atol=1e-12)

    def test_a_decoder_reads_a_sequence_from_its_last_place(self) -> None:
        model = made(Interface(V, readouts={MAIN: CLASSES}))
        inputs, padding = ids(2, 7), padded(2, 7, 5)
        whole = model(inputs, Tokens.of(7, padding=padding))
        assert torch.allclose(whole[:1], model(inputs[:1, :5]), atol=1e-10)
        states = model.states(inputs, Tokens.of(7))
        assert model.head is not None
        assert torch.allclose(model(inputs), states[:, -1] @ model.head.weight.T + model.head.bias, atol=1e-10)

    def test_an_encoder_reads_a_sequence_from_its_pooled_first_place(self) -> None:
        model = made(Interface(V, readouts={MAIN: CLASSES}), "model/topology=encoder")
        inputs = ids(2, 7)
        first = model.states(inputs, Tokens.of(7))[:, 0]
        weights = dict(model.named_parameters())
        pooled = (first @ weights["pooler.weight"].T + weights["pooler.bias"]).tanh()
        assert torch.allclose(model(inputs), pooled @ weights["head.weight"].T + weights["head.bias"], atol=1e-10)

    def test_values_go_in_and_come_out(self) -> None:
        """A linear map of each place, so that twice the values give twice what they add."""
        model = made(Interface(1, channels=2, readouts={MAIN: Readout(2, "values")}))
        x = torch.randn(2, 7, 2, dtype=torch.float64, generator=stream("values"))
        assert model(x).shape == (2, 7, 2)
        zero, once, twice = (model.embed(scale * x, Tokens.of(7)) for scale in (0, 1, 2))
        assert torch.allclose(twice - zero, 2 * (once - zero), atol=1e-12)


class TestTheShortcut:
    """How the loss at place t depends on the input at place t + 1, which is its target."""

    @pytest.mark.parametrize(
        ("overrides", "reaches"),
        [([], False), (["model/pattern=full"], True), (["model/topology=encoder_decoder", AHEAD], True)],
        ids=["causal", "full", "an encoder of the inputs"],
    )
    def test_a_gradient_goes_from_the_loss_to_its_own_target_unless_the_future_is_hidden(
        self, overrides: list[str], reaches: bool
    ) -> None:
        model, inputs = made(Interface(V), *overrides), ids(2, 7)
        tables = [part for part in model.modules() if isinstance(part, Embedding)]
        given: list[Tensor] = []
        for table in tables:
            table.register_forward_hook(lambda _, __, out: given.append(out))
        losses = functional.cross_entropy(
            model(inputs)[:, :-1].flatten(0, 1), inputs[:, 1:].flatten(), reduction="none"
        )
        at_three = losses.view(2, 6)[:, 3].sum()
        gradients = [grad for grad in torch.autograd.grad(at_three, given, allow_unused=True) if grad is not None]
        sizes = torch.stack([grad.norm(dim=-1) for grad in gradients]).sum(0)
        assert (sizes[:, 3] > 1e-6).all(), "it depends on the symbol before its target"
        assert ((sizes[:, 4] > 1e-6) == reaches).all() and (reaches or not sizes[:, 4:].any())


class TestEncoder:
    def test_sees_both_sides(self) -> None:
        model, inputs = made(Interface(V), "model/topology=encoder"), ids(1, 7)
        changed = inputs.clone()
        changed[:, 6] = (changed[:, 6] + 1) % V
        assert ((model(inputs) - model(changed))[:, 0].abs() > 1e-6).any()

    def test_embeds_segments(self) -> None:
        model = made(Interface(V, segments=2), "model/topology=encoder")
        inputs, segment = ids(1, 7), torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
        tokens = Tokens.of(7, tags={"segment": segment})
        table = dict(model.named_parameters())["segments.weight"]
        assert torch.allclose(model.embed(inputs, tokens), model.embedding(inputs) + table[segment], atol=1e-12)
        other = Tokens.of(7, tags={"segment": 1 - segment})
        assert not torch.allclose(model(inputs, tokens), model(inputs, other))

    def test_symbols_are_read_through_a_layer_where_it_is_asked_for(self) -> None:
        with_it = {name for name, _ in made(Interface(V), "model/topology=encoder").named_parameters()}
        without = {
            name
            for name, _ in made(
                Interface(V), "model/topology=encoder", "model.topology.transform=false"
            ).named_parameters()
        }
        assert with_it - without == {"dense.weight", "dense.bias", "norm.weight", "norm.bias", "symbol_bias"}


class TestEncoderDecoder:
    ASKED = Interface(V, source=True)

    def model(self, *overrides: str) -> Topology:
        return made(self.ASKED, "model/topology=encoder_decoder", *overrides)

    def test_later_symbols_change_nothing_and_the_source_does(self) -> None:
        model, inputs, source = self.model(), ids(2, 6), ids(2, 9, 1)
        out = model(inputs, None, source)
        later, other = inputs.clone(), source.clone()
        later[:, 4] = (later[:, 4] + 1) % V
        other[:, 8] = (other[:, 8] + 1) % V
        assert (model(later, None, source) - out)[:, :4].abs().max() < 1e-10
        assert (model(inputs, None, other) - out)[:, 0].abs().min() > 1e-9

    @pytest.mark.parametrize("attention", ["mha", "gqa", "linear", "performer"])
    def test_padding_of_the_source_is_never_seen(self, attention: str) -> None:
        model, inputs, source = self.model(f"model/attention={attention}"), ids(2, 6), ids(2, 9, 1)
        tokens = Tokens.of(9, padding=padded(2, 9, 5))
        out = model(inputs, None, source, tokens)
        assert (out[:1] - model(inputs[:1], None, source[:1, :5])).abs().max() < 1e-10

    def test_cross_attention_knows_no_positions(self) -> None:
        """With no encoding in the encoder, reordering the source changes nothing, whatever the decoder's encoding.

        T5 has no table in cross-attention (Raffel et al. 2020; transformers' T5Stack).
        """
        layers = [
            {"position": {"_target_": "swapformer.model.position.Position", "_partial_": True, "_convert_": "all"}}
        ] * 2
        config = small(["model/topology=encoder_decoder", "model/position=rope"])
        config["model"]["encoder"]["layers"] = layers
        model = Subject._perturb(build_model(config, self.ASKED).double())
        inputs, source = ids(2, 6), ids(2, 9, 1)
        order = torch.randperm(9, generator=stream("order"))
        assert (model(inputs, None, source) - model(inputs, None, source[:, order])).abs().max() < 1e-10
        swapped = inputs[:, [1, 0, 2, 3, 4, 5]]
        assert (model(inputs, None, source) - model(swapped, None, source))[:, 2:].abs().max() > 1e-6

    def test_an_encoder_of_the_inputs_is_one_that_gets_them_as_its_source(self) -> None:
        """The leak of tutorials that hand one sequence to both stacks: the same weights, the inputs as the source."""
        usual, leaking = self.model(), made(Interface(V), "model/topology=encoder_decoder", AHEAD)
        inputs, tokens = ids(2, 6), Tokens.of(6, padding=padded(2, 6, 4))
        assert leaking.reads_ahead and not usual.reads_ahead
        assert torch.equal(leaking(inputs, tokens), usual(inputs, tokens, inputs, tokens))
        with pytest.raises(ValueError, match="pass no `source`"):
            leaking(inputs, tokens, inputs, tokens)

    def test_an_encoder_of_the_inputs_shows_the_decoder_its_targets(self) -> None:
        """The loss at place t moves with the input at t + 1, which is its target, past the decoder's causal mask."""
        leaking, inputs = made(Interface(V), "model/topology=encoder_decoder", AHEAD), ids(2, 6)
        later = inputs.clone()
        later[:, 4] = (later[:, 4] + 1) % V
        assert (leaking(later) - leaking(inputs))[:, 3].abs().min() > 1e-9
        with pytest.raises(ValueError, match="must be one of task, inputs, but it is 'both'"):
            made(Interface(V), "model/topology=encoder_decoder", "model.topology.source=both")

    def test_embeddings_are_one_table_or_two(self) -> None:
        shared = {name for name, _ in self.model().named_parameters()}
        own = {name for name, _ in self.model("model.topology.share_embeddings=false").named_parameters()}
        assert own - shared == {"source_embedding.weight"}

    def test_every_weight_knows_its_side(self) -> None:
        for name, parameter in self.model("model/position=t5").named_parameters():
            side = Side.ENCODER if name.startswith("encoder.") else Side.DECODER
            assert origin_of(name, parameter).side is side

    def test_the_encoder_has_its_own_depth_and_tells_both_sides_apart_in_t5(self) -> None:
        config = small(["model/topology=encoder_decoder", "model/position=t5", "model.encoder.num_layers=3"])
        plan = build_plan(config, self.ASKED)
        assert (len(plan.encoder), len(plan.layers)) == (3, 2)
        assert [stack[0].position().bidirectional for stack in plan.stacks] == [True, False]  # type: ignore[attr-defined]
        assert {layer.dims.encoder_layers for stack in plan.stacks for layer in stack} == {3}
        assert [layer.pattern().full for layer in plan.encoder] == [True] * 3

    def test_without_a_source_it_says_so(self) -> None:
        with pytest.raises(ValueError, match="source"):
            self.model()(ids(1, 3))

    def test_equals_torchs_own(self) -> None:
        """torch.nn.Transformer, post-norm, two layers on either side, the same weights: outputs and gradients."""
        width, heads = 32, 4
        theirs = torch.nn.Transformer(
            width, heads, 2, 2, 64, dropout=0.0, activation="gelu", batch_first=True, dtype=torch.float64
        ).eval()
        theirs.encoder.norm = theirs.decoder.norm = None  # post-norm has no further norm
        ours = self.model("model/placement=post", "model.ffn.expansion=2", "model/position=none")
        self._copy(ours, theirs)
        inputs, source = ids(2, 6), ids(2, 9, 1)
        padding = padded(2, 9, 5)
        causal = torch.nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
        expected = theirs(
            ours.embedding(source), ours.embedding(inputs), tgt_mask=causal,
            src_key_padding_mask=padding, memory_key_padding_mask=padding, tgt_is_causal=True,
        )  # fmt: skip
        found = ours.states(inputs, Tokens.of(6), source, Tokens.of(9, padding=padding))
        assert (found - expected).abs().max() < 1e-10
        weight = ours.embedding.weight
        grads = [torch.autograd.grad(out.square().sum(), weight)[0] for out in (found, expected)]
        assert (grads[0] - grads[1]).abs().max() < 1e-8 * grads[1].abs().max()

    @staticmethod
    def _copy(ours: Topology, theirs: torch.nn.Transformer) -> None:
        state = ours.state_dict()
        renamed = {}
        for name, _ in theirs.named_parameters():
            side, _, layer, rest = name.split(".", 3)
            base = f"{'encoder' if side == 'encoder' else 'stack'}.layers.{layer}"
            rest = rest.replace("multihead_attn", "cross_attention").replace("self_attn", "attention")
            norms = {"norm1": 0, "norm2": 1, "norm3": 2}
            word, _, tail = rest.partition(".")
            if word in norms:
                renamed[name] = state[f"{base}.block.sublayers.{norms[word]}.after.{tail}"]
            elif word == "linear1":
                renamed[name] = state[f"{base}.ffn.up.{tail}"]
            elif word == "linear2":
                renamed[name] = state[f"{base}.ffn.down.{tail}"]
            elif tail.startswith("in_proj_"):
                kind = tail.removeprefix("in_proj_")
                renamed[name] = torch.cat([state[f"{base}.{word}.{part}.{kind}"] for part in ("query", "key", "value")])
            else:
                renamed[name] = state[f"{base}.{word}.{tail.replace('out_proj', 'out')}"]
        theirs.load_state_dict(renamed)


def test_reversible_streams_carry_the_sources_gradient() -> None:
    """Walking back reaches the encoder through the memory: its gradients are those of a walk that keeps everything."""
    config = small(["model/topology=encoder_decoder", "model/residual=reversible"])
    model = Subject._perturb(build_model(config, Interface(V, source=True)).double())
    inputs, source = ids(2, 6), ids(2, 9, 1)

    def grads(keep: bool) -> dict[str, Tensor]:
        model.zero_grad()
        if keep:
            for stack in (model.stack, model.encoder):
                residual = stack._residual(0)  # type: ignore[operator, union-attr]
                residual.run = super(type(residual), residual).run  # type: ignore[method-assign]
        functional.cross_entropy(model(inputs, None, source).flatten(0, 1), inputs.flatten()).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    walked, kept = grads(False), grads(True)
    assert walked.keys() == kept.keys() >= {"encoder.layers.0.attention.query.weight"}
    assert max((walked[name] - kept[name]).abs().max().item() for name in kept) < 1e-9


def test_source_tokens_may_hold_positions_of_their_own() -> None:
    """Positions of a source are what its encodings see."""
    model = made(Interface(V, source=True), "model/topology=encoder_decoder", "model/position=sinusoidal")
    inputs, source = ids(1, 4), ids(1, 6, 1)
    plain, moved = Tokens.of(6), replace(Tokens.of(6), position=torch.tensor([[0, 2, 4, 6, 8, 10]]), extent=11)
    assert not torch.allclose(model(inputs, None, source, plain), model(inputs, None, source, moved))
