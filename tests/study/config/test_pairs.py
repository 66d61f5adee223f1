"""Attended pairs are counted pair by pair, and the closed forms of patterns are what their masks hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from configs import small
from swapformer.errors import UsageError
from swapformer.interface import Interface
from swapformer.model.dims import Dims
from swapformer.model.pattern import Causal, Full, Pattern, Window
from swapformer.model.tokens import Tokens
from swapformer.study.config.compose import compose, cost
from swapformer.study.config.pairs import attended_pairs
from swapformer.task.base import Batch, Sequences

DIMS = Dims(d_model=32, num_layers=1, num_heads=4, head_dim=8, max_len=64, vocab_size=5)
BANDS = [Window(DIMS, before=before, after=after) for before in (0, 2, 20) for after in (0, 3, 20)]


@pytest.mark.parametrize("pattern", [Full(DIMS), Causal(DIMS), *BANDS], ids=lambda each: f"{each.reach}")
def test_a_closed_form_is_the_sum_of_the_mask(pattern: Pattern) -> None:
    for length in (1, 2, 5, 12):
        tokens = Tokens.of(length)
        mask = pattern.allowed(tokens, tokens)
        assert pattern.pairs(length) == (length**2 if mask is None else int(mask.sum()))


class Padded:
    """Two sequences, of five and of three tokens, beside sources of four and of two."""

    def __init__(self, interface: Any, tags: Any = None) -> None:
        self.interface, self.tags = interface, tags

    def train_batch(self, seed: int, step: int) -> Batch:
        def padding(width: int, *lengths: int) -> torch.Tensor:
            return torch.arange(width) >= torch.tensor(lengths)[:, None]

        ids = torch.zeros(2, 5, dtype=torch.int64)
        read = Sequences(inputs=ids[:, :4], padding=padding(4, 4, 2)) if self.interface.source else None
        return Batch(inputs=ids, targets=ids, padding=padding(5, 5, 3), source=read)


def counted(*overrides: str, source: bool = False, first_layer: dict[str, Any] | None = None) -> int:
    """The pairs of two layers, of which the first may have another part; a mean over the two sequences."""
    config = {**small([*overrides]), "data_seed": 0}
    config["model"]["layers"] = [first_layer, {}] if first_layer else []
    task: Any = Padded(Interface(5, source=source))
    return attended_pairs(config, task)


def part(slot: str, name: str, **settings: Any) -> dict[str, Any]:
    return {slot: {**small([f"model/{slot}={name}"])["model"][slot], **settings}}


def test_padding_neither_asks_nor_is_asked() -> None:
    """Two causal layers over five and three tokens: 2 · (15 + 6) / 2."""
    assert counted() == 15 + 6
    assert counted("model/pattern=window", "model.pattern.before=1") == (5 + 4) + (3 + 2)


def test_layers_are_added_and_heads_averaged() -> None:
    assert counted(first_layer=part("pattern", "window", before=0)) == round(((5 + 3) + (15 + 6)) / 2)
    near, far = (f"model.pattern.patterns.{key}" for key in ("near.before=1", "far.step=3"))
    assert counted("model/pattern=strided_heads", near, far) == ((9 + 5) + (7 + 3)) / 2


def test_a_source_is_read_by_every_token() -> None:
    """Encoder: 16 and 4 pairs; decoder: 15 and 6; across: 5 · 4 and 3 · 2; each in two layers, two sequences."""
    assert counted("model/topology=encoder_decoder", source=True) == (16 + 4) + (15 + 6) + (20 + 6)


def test_what_forms_no_scores_attends_to_no_pairs() -> None:
    with pytest.raises(UsageError, match="no attended pairs; match another cost"):
        counted("model/attention=linear")
    assert counted(first_layer=part("attention", "linear")) == round((15 + 6) / 2)


def test_tags_are_those_of_the_tasks_own_text() -> None:
    """Tokens of one speaker alone: fewer pairs than all earlier ones, more than each token itself."""
    config = compose(["task=dialogue", "model.num_layers=2"])
    tagged = {**config, "model": {**config["model"], **part("pattern", "dialogue")}}
    assert 2 * config["model"]["max_len"] < cost(tagged, "pairs") < cost(config, "pairs")
