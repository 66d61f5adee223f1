"""A whole model of the user's own: its weights, its inputs and outputs, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import own_models
from swapformer.errors import UsageError
from swapformer.interface import MAIN
from swapformer.interop.huggingface import HuggingFaceModel
from swapformer.model import taps
from swapformer.model.tokens import Tokens
from swapformer.random import stream_seed
from swapformer.study.config.compose import check, compose, trial_id
from swapformer.training.assemble import build_model
from swapformer.training.optimiser import parameter_groups

VOCABULARY = 13


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "own_models")


def own(name: str = "GPT", *overrides: str) -> list[str]:
    return ["task=copy", "model=own", f"model.module._target_=own_models.{name}", *overrides]


def built(name: str = "GPT", *overrides: str) -> Any:
    return build_model(compose(own(name, *overrides)), VOCABULARY).eval()


def test_weights_are_those_that_the_constructor_draws_under_the_seed() -> None:
    model = built("GPT", "seed=3")
    torch.manual_seed(stream_seed("own model", 3))
    expected = own_models.GPT(VOCABULARY, model.dims.max_len).state_dict()
    assert all(torch.equal(held, expected[name]) for name, held in model.module.state_dict().items())
    other = built("GPT", "seed=4").module.state_dict()
    assert not torch.equal(other["head.weight"], expected["head.weight"])


def test_making_it_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    built()
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("name", ["GPT", "WithLogits"])
def test_answers_are_the_modules(name: str) -> None:
    model, ids = built(name), torch.randint(VOCABULARY, (2, 9))
    expected = model.module(ids)
    expected = expected if name == "GPT" else expected.logits
    assert torch.equal(model(ids), expected) and torch.equal(model.answers(ids)[MAIN], expected)


@pytest.mark.parametrize("behind", [0, 2])
def test_a_padded_row_has_the_logits_that_it_has_without_padding(behind: int) -> None:
    """Prompts of different lengths are padded on the left; the module counts its positions from 0."""
    model, ids = built().double(), torch.randint(VOCABULARY, (3, 9))
    padding = torch.zeros(3, 9, dtype=torch.bool)
    padding[1, :4] = padding[2, :1] = True
    if behind:
        padding[:, -behind:] = True
    found = model(ids, Tokens.of(9, padding=padding))
    for row in range(3):
        there = ~padding[row]
        torch.testing.assert_close(found[row, there], model(ids[row : row + 1, there])[0], rtol=1e-12, atol=1e-12)


def test_a_mask_is_given_to_a_forward_that_takes_one() -> None:
    model = built()
    seen: list[Any] = []

    def forward(ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        seen.append(attention_mask)
        return torch.zeros(*ids.shape, VOCABULARY)

    model.module.forward, model._masked = forward, True
    padding = torch.tensor([[True, True, False, False, True]])
    model(torch.ones(1, 5, dtype=torch.int64), Tokens.of(5, padding=padding))
    assert seen[0].tolist() == [[1, 1, 0, 0, 0]], "padding before the row stands behind it"


def test_each_module_can_be_watched_and_replaced_by_its_path() -> None:
    model, ids = built(), torch.randint(VOCABULARY, (2, 7))
    plain = model(ids)
    with taps.record(model, "module.layers.0", "hook_logits") as seen:
        assert torch.equal(model(ids), plain)
    assert seen["module.layers.0"].shape == (2, 7, 32) and torch.equal(seen["hook_logits"], plain)
    with taps.replace(model, {"module.layers.0": torch.zeros_like}):
        assert not torch.equal(model(ids), plain)
    twin = copy.deepcopy(model)
    with taps.record(twin, "module.layers.1") as seen:
        model(ids)
        assert not seen, "a copy is watched by itself"
        twin(ids)
        assert seen.keys() == {"module.layers.1"}


def test_matrices_decay_and_vectors_do_not() -> None:
    config = compose(own())
    model = build_model(config, VOCABULARY)
    decays = {
        id(held): group["weight_decay"]
        for group in parameter_groups(model, config["optim"])
        for held in group["params"]
    }
    assert all((decays[id(held)] > 0) == (held.ndim > 1) for held in model.parameters())


def test_it_may_make_its_groups_itself() -> None:
    config = compose(own("Grouped"))
    model = build_model(config, VOCABULARY)
    rest, head = parameter_groups(model, config["optim"])
    assert head["lr"] == config["optim"]["lr"] / 10 and len(head["params"]) == 2
    assert len(rest["params"]) + 2 == len(list(model.parameters()))
    forgetful = build_model(compose(own("Forgetful")), VOCABULARY)
    with pytest.raises(UsageError, match=r"each trained parameter once, but module\.head\.weight is in none"):
        parameter_groups(forgetful, config["optim"])


def test_a_trial_is_known_by_settings_and_source(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = trial_id(compose(own()))
    assert trial_id(compose(own("GPT", "model.module.width=64"))) != plain == trial_id(compose(own()))
    source = tmp_path / "edited_model.py"
    source.write_text("from own_models import GPT as Base\n\n\nclass GPT(Base):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SWAPFORMER_PACKAGES", "edited_model")
    edited = ["task=copy", "model=own", "model.module._target_=edited_model.GPT"]
    before = trial_id(compose(edited))
    source.write_text(source.read_text() + "\n\n# another line\n")
    assert trial_id(compose(edited)) != before


def test_a_model_of_hugging_face_is_known_by_what_its_file_says(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    said = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, architectures=["GPT2LMHeadModel"], dtype="bfloat16")
    for name in ("one", "two"):
        said.save_pretrained(tmp_path / name)

    def overrides(name: str) -> list[str]:
        return ["task=copy", "task.eval_lengths=[40]", "model=huggingface", f"model.config={tmp_path / name}"]

    config = compose(overrides("one"))
    check(config)
    assert trial_id(config) == trial_id(compose(overrides("two")))
    model, ids = build_model(config, VOCABULARY).eval(), torch.randint(VOCABULARY, (2, 9))
    theirs: Any = model.module
    assert {held.dtype for held in model.parameters()} == {torch.float32}, "the precision is the trainer's"
    assert any("trains with resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1, its own" in note for note in model.notes)
    assert torch.equal(model(ids), theirs.model(input_ids=ids).logits)
    with pytest.raises(UsageError, match="this model has no 'n_layers'; write n_layer, or leave it out"):
        HuggingFaceModel(config={"model_type": "gpt2", "n_layers": 2, "n_ctx": 1024}, vocab_size=9, max_len=9)
    said.n_layer = 2
    said.save_pretrained(tmp_path / "two")
    assert trial_id(config) != trial_id(compose(overrides("two")))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("OnePlace", r"must give logits \[B, T, V\] = \[32, 32, 29\].* but OnePlace gave \[32, 1, 29\]"),
        ("Ahead", "in Ahead later tokens change earlier logits"),
        ("Restless", "Restless changes its own"),
        ("Asking", "token ids .* and nothing else, but Asking raised TypeError"),
        ("Empty", "must have parameters to train, but Empty has none"),
        ("Unmade", "Unmade raised ArithmeticError: no width for this"),
        ("no_model", "must make a torch.nn.Module, but no_model gave NoneType"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        check(compose(own(name)))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.module.widht=8", "no setting 'widht': GPT takes vocab_size, max_len, width"),
        ("model/position=alibi", "model.position is set, which a whole model"),
        ("model.dropout=0.1", r"model\.dropout is set"),
        (
            "task=roles task.source.packages=[json,wsgiref] task.split=[0.6,0.15,0.25]",
            "the task Roles asks for something else",
        ),
        ("optim=muon", "optim=muon goes by roles"),
        ("optim.layer_decay=0.5", "optim.layer_decay goes by roles"),
        ("trainer.gradient_checkpointing=true", "gradient_checkpointing goes by roles"),
        ("probes=attention_statistics", "none fits .*hook_pattern.*near it are module"),
        ("probes=pattern_mask", "pattern_mask shows the patterns"),
    ],
)
def test_what_it_does_not_read_is_refused(override: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check(compose([*own()[override.startswith("task=") :], *override.split()]))


@pytest.mark.parametrize("name", ["AheadByAZeroBranch", "AheadOfAZeroHead", "AheadInPatches"])
def test_a_leak_that_does_not_show_at_the_start_or_at_every_place_is_found(name: str) -> None:
    with pytest.raises(UsageError, match="later tokens change earlier logits"):
        check(compose(own(name)))


def test_the_search_for_a_leak_leaves_the_weights_as_they_are() -> None:
    model = built()
    before = copy.deepcopy(model.module.state_dict())
    assert model.complaint(16, looks_ahead=False) is None
    assert all(torch.equal(held, before[key]) for key, held in model.module.state_dict().items())


def test_a_leak_may_be_studied() -> None:
    check(compose(own("Ahead", "allow=[future]")))
    check(compose([*own("Ahead")[1:], "task=masked"]))
