"""Words for parameters, what is frozen by them, and learning rates that fall with depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from configs import small
from swapformer.errors import UsageError
from swapformer.interface import MAIN, Interface, Readout
from swapformer.model.topology import Topology
from swapformer.study.config.compose import check, compose
from swapformer.training.assemble import build_model
from swapformer.training.fit import fit
from swapformer.training.optimiser import freeze, parameter_groups
from swapformer.training.parameter_selection import select_parameters

SOURCE = Interface(9, source=True)
ADAMW = {"lr": 0.1, "weight_decay": 0.2, "freeze": [], "layer_decay": 1.0}


def made(*overrides: str, asked: Interface | int = 9) -> Topology:
    with torch.device("meta"):
        return build_model(small(overrides), asked)


def chosen(model: nn.Module, *entries: object) -> set[str]:
    return select_parameters(model, list(entries), "freeze")


def names(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters()}


class TestWords:
    def test_a_role_means_its_matrices_with_their_biases(self) -> None:
        model = made()
        queries = {f"stack.layers.{i}.attention.query.{kind}" for i in range(2) for kind in ("weight", "bias")}
        assert chosen(model, "query") == queries
        assert chosen(model, "token_embedding") == {"embedding.weight"}
        assert chosen(model, "bias") == {name for name in names(model) if name.endswith("bias")}

    def test_a_slot_means_what_its_parts_hold_and_parts_within_them(self) -> None:
        model = made("model/position=learned", "model/qk_norm=rmsnorm")
        assert chosen(model, "attention") == {name for name in names(model) if ".attention." in name}
        assert chosen(model, "qk_norm") == {name for name in names(model) if ".qk_norm." in name}
        assert chosen(model, "position") == {"stack.positions.Learned.table.weight"}
        norms = {name for name in names(model) if "norm" in name or ".before." in name} - chosen(model, "qk_norm")
        assert chosen(model, "norm") == norms

    def test_layers_are_named_as_elsewhere_and_may_be_narrowed(self) -> None:
        model = made("model.num_layers=3")
        assert chosen(model, {"at": "0:2"}) == {
            n for n in names(model) if n.startswith(("stack.layers.0.", "stack.layers.1."))
        }
        last = {f"stack.layers.2.ffn.{name}.{kind}" for name in ("up", "down") for kind in ("weight", "bias")}
        assert chosen(model, {"at": -1, "what": "ffn"}) == last

    def test_readout_is_what_stands_behind_the_layers_and_body_all_else(self) -> None:
        readouts = {MAIN: Readout(9), "next": Readout(2, "classes", "sequence")}
        model = made("model/topology=encoder", asked=Interface(9, segments=2, readouts=readouts))
        behind = {name for name in names(model) if name.split(".")[0] not in ("embedding", "segments", "stack")}
        assert behind == chosen(model, "readout") == names(model) - chosen(model, "body")
        assert "symbol_bias" in behind and "pooler.bias" in behind

    def test_one_of_two_stacks_goes_by_its_side(self) -> None:
        model = made("model/topology=encoder_decoder", asked=SOURCE)
        assert chosen(model, "encoder") == {name for name in names(model) if name.startswith("encoder.")}
        assert chosen(model, {"at": 0, "what": "encoder"}) == {
            n for n in names(model) if n.startswith("encoder.layers.0.")
        }

    @pytest.mark.parametrize(
        ("entries", "message"),
        [
            (["atention"], r"'atention' means none; did you mean 'attention'"),
            (["gate"], r"'gate' means none"),
            (["decoder"], r"'decoder' means none"),  # of one stack there is no other side
            ([{"at": 2}], r"\{'at': 2\} means none"),
            ([{"at": 0, "what": "token_embedding"}], r"means none"),
            ([{"layers": 0}], r"has `at` and perhaps `what`"),
            ("attention", r"must be a list"),
        ],
    )
    def test_an_entry_that_means_nothing_is_refused(self, entries: Any, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            select_parameters(made(), entries, "freeze")


class TestFreezing:
    @pytest.mark.parametrize("residual", ["add", "reversible"])
    @pytest.mark.parametrize("optim", ["adamw", "muon"])
    def test_frozen_weights_stay_and_the_others_move(self, optim: str, residual: str, tmp_path: Path) -> None:
        frozen = ["token_embedding", "{at: 0, what: attention}"]
        config = compose(
            [
                *("task=copy", "task.eval_lengths=[]", "model.d_model=16", "model.num_heads=2", "model.num_layers=2"),
                *("budget.steps=3", "eval.final_batches=1", "schedule=constant", "schedule.warmup_steps=1"),
                *(f"optim={optim}", f"model/residual={residual}", f"optim.freeze=[{','.join(frozen)}]"),
            ]
        )
        check(config)
        fit(config, tmp_path)
        state = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        start = build_model(config, state["model.embedding.weight"].shape[0]).state_dict()
        same = {name for name, weight in start.items() if torch.equal(weight, state[f"model.{name}"])}
        assert same == select_parameters(
            made("model.num_layers=2"), ["token_embedding", {"at": 0, "what": "attention"}], "freeze"
        )

    def test_something_must_be_left_to_train(self) -> None:
        with pytest.raises(UsageError, match="must leave some parameters to train"):
            freeze(made(), {"freeze": ["body"]})


class TestLayerDecay:
    def test_rates_are_those_of_beit(self) -> None:
        """Its `get_num_layer_for_vit` counts embeddings 0, layer i as i + 1, and the rest L + 1; the rate is
        decay^(L + 1 − that)."""
        layers, decay = 3, 0.5
        model = made("model.num_layers=3", "model/position=learned", "model.topology.tie_embeddings=false")
        groups = parameter_groups(model, {**ADAMW, "layer_decay": decay})
        rates = {id(p): group["lr"] for group in groups for p in group["params"]}
        for name, parameter in model.named_parameters():
            place = layers + 1
            if name.startswith(("embedding.", "stack.positions.")):
                place = 0
            elif name.startswith("stack.layers."):
                place = int(name.split(".")[2]) + 1
            assert rates[id(parameter)] == pytest.approx(0.1 * decay ** (layers + 1 - place)), name

    def test_of_two_stacks_each_counts_its_own_layers(self) -> None:
        model = made("model/topology=encoder_decoder", "model.encoder.num_layers=1", asked=SOURCE)
        groups = parameter_groups(model, {**ADAMW, "layer_decay": 0.5})
        rates = {id(p): group["lr"] for group in groups for p in group["params"]}
        found = {name: rates[id(p)] / 0.1 for name, p in model.named_parameters() if name.endswith("query.weight")}
        expected = {
            f"stack.layers.{i}.{a}.query.weight": 0.5 ** (2 - i)
            for i in (0, 1)
            for a in ("attention", "cross_attention")
        }
        assert found == {**expected, "encoder.layers.0.attention.query.weight": 0.5}

    def test_decay_of_weights_goes_by_role_at_every_rate(self) -> None:
        model = made()
        for decay in (1.0, 0.5):
            groups = parameter_groups(model, {**ADAMW, "layer_decay": decay})
            spared = {id(p) for group in groups if not group["weight_decay"] for p in group["params"]}
            assert spared == {id(p) for name, p in model.named_parameters() if p.dim() == 1}
            assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))

    def test_without_it_there_are_two_groups_at_the_optimisers_own_rate(self) -> None:
        assert [sorted(group) for group in parameter_groups(made(), ADAMW)] == [["params", "weight_decay"]] * 2
