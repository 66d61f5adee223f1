"""Trials that start from other weights: what is loaded, what is refused, and what names such a trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from swapformer.errors import UsageError
from swapformer.interface import MAIN
from swapformer.results.store import Store
from swapformer.study.config.compose import check, compose, task_of
from swapformer.study.config.identity import trial_id
from swapformer.study.launch.provenance import Provenance
from swapformer.study.launch.trial import execute
from swapformer.study.plan import make_trial
from swapformer.training.assemble import build_model
from swapformer.training.callbacks import Checkpoints
from swapformer.training.fit import fit
from swapformer.training.inputs import model_inputs
from swapformer.training.parameter_selection import readout_parameters
from swapformer.training.warm_start import load_initial_weights, match_weights
from swapformer.training.weights import fingerprint, read_weights, summarise_weights, write_weights

TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[]", "task.batch_size=4", "model.d_model=16"),
    *("model.num_heads=2", "model.num_layers=2", "model/position=learned", "budget.steps=4", "eval.final_batches=1"),
    "schedule.warmup_steps=1",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("start")


@pytest.fixture(scope="module")
def trained(place: Path) -> str:
    """The id of a finished trial in the store at `place`."""
    trial = make_trial(compose([*TINY, f"runs_dir={place}"]))
    record = execute(trial, Store(place), Provenance("swapformer train", None, False))
    assert record is not None and record.status == "finished" and record.notes == ()
    return trial.id


@pytest.fixture
def started(place: Path, trained: str) -> Any:
    def made(*overrides: str) -> dict[str, Any]:
        return compose([*TINY, f"runs_dir={place}", f"init_from={trained}", "seed=7", *overrides])

    return made


def test_a_head_for_other_symbols_is_not_taken(started: Any) -> None:
    """Its rows stand for symbols as those of the embeddings do, which are left out already."""
    config = started("task=copy_repeat", "model.topology.tie_embeddings=false", "init_fresh=[token_embedding]")
    model, task = build_model(config, task_of(config).interface), task_of(config)
    held = summarise_weights(Path(config["init_from"]["path"]))
    assert model.head is not None
    with_head = replace(held, shapes={**held.shapes, "head.weight": model.head.weight.shape})
    with pytest.raises(UsageError, match=r"init_fresh=\[token_embedding, readout\]"):
        match_weights(model, with_head, task, config)
    fresh = {**config, "init_fresh": ["token_embedding", "readout"]}
    assert "head.weight" in match_weights(model, with_head, task, fresh).fresh


def test_heads_of_other_width_are_refused_and_parts_without_weights_are_named(started: Any) -> None:
    with pytest.raises(UsageError, match=r"queries and keys are of 2 heads, not of 4; give model.num_heads=2"):
        check(started("model.num_heads=4"))
    with pytest.raises(UsageError, match=r"are of 2 heads, not of 2, 4; give model.num_heads=2"):
        check(started("model.layers=[{at: 1, num_heads: 4}]"))
    check(started("model.num_heads=4", "model.layers=[{at: '0:2', num_heads: 2}]"))  # the same by other settings
    config = started("model/activation=relu")
    model, task = build_model(config, task_of(config).interface), task_of(config)
    held = summarise_weights(Path(config["init_from"]["path"]))
    assert match_weights(model, held, task, config).text.endswith("the source's model had other model.activation")


def test_a_file_knows_how_many_heads_it_was_trained_with(started: Any, place: Path, trained: str) -> None:
    """One that does not say so is taken as it is."""
    weights = read_weights(checkpoint(place, trained))
    for heads in (2, None, 4):
        write_weights(place / f"{heads}.safetensors", weights, [], heads=heads)
    check(started(f"init_from={place / '2.safetensors'}"))
    check(started(f"init_from={place / 'None.safetensors'}"))
    with pytest.raises(UsageError, match=r"are of 4 heads, not of 2; give model.num_heads=4"):
        check(started(f"init_from={place / '4.safetensors'}"))


def test_running_averages_start_fresh_with_their_norm(started: Any) -> None:
    config = started("model/norm=batchnorm", "model/pattern=full", "init_fresh=[norm]", "allow=[future]")
    model, task = build_model(config, task_of(config).interface), task_of(config)
    held = summarise_weights(Path(config["init_from"]["path"]))
    whole = replace(held, shapes={name: weight.shape for name, weight in model.state_dict().items()})
    fresh = match_weights(model, whole, task, config).fresh
    assert any("running_mean" in name for name in fresh)
    assert {name for name in whole.shapes if "running" in name} <= set(fresh)


def checkpoint(place: Path, trial: str) -> Path:
    return place / "trials" / trial / "checkpoints" / "last.ckpt"


def test_a_trial_starts_with_the_weights_of_the_other(started: Any, place: Path, trained: str) -> None:
    config = started()
    check(config)
    model = build_model(config, task_of(config).interface)
    found = load_initial_weights(model, task_of(config), config)
    assert len(found.loaded) == len(model.state_dict()) and not found.fresh and not found.left
    assert fingerprint(model.state_dict()) == fingerprint(read_weights(checkpoint(place, trained)))


def test_it_goes_by_the_content_of_the_weights_and_not_by_their_place(
    started: Any, place: Path, trained: str, tmp_path: Path
) -> None:
    weights = read_weights(checkpoint(place, trained))
    write_weights(tmp_path / "same.safetensors", weights, [])
    write_weights(
        tmp_path / "other.safetensors", {**weights, "embedding.weight": weights["embedding.weight"] + 1e-6}, []
    )
    ids = [trial_id(started(f"init_from={tmp_path / name}.safetensors")) for name in ("same", "other")]
    assert trial_id(started()) == trial_id(started(f"init_from={trained[:8]}")) == ids[0]
    assert len({*ids, trial_id(started("init_from=null")), trial_id(started("init_fresh=[position]"))}) == 4


def test_the_record_says_what_was_loaded_and_what_started_fresh(started: Any, place: Path, trained: str) -> None:
    trial = make_trial(started("model.topology.tie_embeddings=false", "model.max_len=16", "init_fresh=[position]"))
    record = execute(trial, Store(place), Provenance("swapformer train", None, False))
    assert record is not None and record.status == "finished"
    fresh = "head.weight, stack.positions.Learned.table.weight started fresh"
    other = "the source's model had other model.max_len, model.topology.tie_embeddings"
    assert record.notes == (f"init_from={trained}: 35 tensors were loaded, {fresh}, {other}",)


def test_a_killed_trial_goes_on_from_its_checkpoint_and_not_from_the_start(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = started("checkpoint_every=2", "eval.every=1000")
    fit(config, tmp_path / "whole")
    original = Checkpoints.on_train_batch_end

    def dying(self: Checkpoints, trainer: Any, *args: Any) -> None:
        original(self, trainer, *args)
        if trainer.global_step == 3:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_train_batch_end", dying)
        with pytest.raises(RuntimeError, match="killed"):
            fit(config, tmp_path / "killed")
    again = fit({**config, "init_from": {**config["init_from"], "path": "gone.safetensors"}}, tmp_path / "killed")
    ends = [fingerprint(read_weights(tmp_path / name / "checkpoints" / "last.ckpt")) for name in ("whole", "killed")]
    assert ends[0] == ends[1]
    assert again.notes[0].endswith("36 tensors were loaded")


def test_weights_that_have_changed_since_are_not_taken(started: Any, tmp_path: Path) -> None:
    config = started()
    config["init_from"]["weights"] = "0" * 64
    with pytest.raises(UsageError, match="have changed since this trial was named by them"):
        fit(config, tmp_path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model/position=rope"], r"no weights called stack\.positions\.Learned\.table\.weight.*allow=\[leftovers\]"),
        (["model.num_layers=3"], r"it lacks stack\.layers\.2\.attention\.key\.bias.* and 11 more"),
        (["model.num_layers=1"], r"no weights called stack\.layers\.1\.attention\.key\.bias"),
        (["model.max_len=16"], r"stack\.positions\.Learned\.table\.weight is \[11, 16\] there and \[16, 16\] here"),
        (["model.d_model=18"], r"nothing would be loaded"),
        (["task=copy_repeat"], r"embedding\.weight is \[29, 16\] there .*symbols are not those of this task"),
        (["init_fresh=[body]"], r"nothing would be loaded"),
        (["init_fresh=[positions]"], r"`init_fresh` must mean some parameters.*did you mean 'position'"),
        (
            ["init_from=null", "init_fresh=[position]"],
            r"is about the weights of `init_from`, which is null",
        ),
    ],
)
def test_what_does_not_fit_is_refused_when_composed(overrides: list[str], message: str, started: Any) -> None:
    with pytest.raises(UsageError, match=message):
        check(started(*overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        ["model/position=rope", "allow=[leftovers]"],
        ["model.max_len=16", "init_fresh=[position]"],
        ["model.num_layers=3", "init_fresh=[{at: 2}]"],
        ["model.num_layers=1", "allow=[leftovers]"],
        ["task=copy_repeat", "init_fresh=[token_embedding]"],
        ["model.topology.tie_embeddings=false"],
    ],
)
def test_what_is_meant_can_be_said(overrides: list[str], started: Any) -> None:
    config = started(*overrides)
    check(config)
    model = build_model(config, task_of(config).interface)
    assert load_initial_weights(model, task_of(config), config).loaded, "some weights are those of the other"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gone.safetensors", r"must be readable, but .*gone\.safetensors is not"),
        ("ffff0000", r"no trial 'ffff0000'"),
        ("weights.bin", r"`init_from` must be null, a \.safetensors file .* or the id of a finished trial"),
    ],
)
def test_what_is_no_start_is_refused(given: str, message: str, started: Any) -> None:
    with pytest.raises(UsageError, match=message):
        started(f"init_from={given}")


def test_a_file_that_knows_its_symbols_is_held_to_them(started: Any, place: Path, trained: str, tmp_path: Path) -> None:
    weights, tokens = read_weights(checkpoint(place, trained)), list(task_of(started()).tokens)
    for name, known in (("same", tokens), ("other", tokens[::-1])):
        write_weights(tmp_path / f"{name}.safetensors", weights, [], known)
    check(started(f"init_from={tmp_path / 'same.safetensors'}"))
    other = f"init_from={tmp_path / 'other.safetensors'}"
    with pytest.raises(UsageError, match="its symbols are not those of this task"):
        check(started(other))
    check(started(other, "allow=[vocabulary]"))


def test_only_a_finished_trial_is_a_start(started: Any, place: Path, trained: str) -> None:
    store = Store(place)
    before = store.find(trained)
    store.write(before.but(status="interrupted"))
    try:
        with pytest.raises(UsageError, match=rf"{trained} is interrupted; finish it with .*: swapformer train"):
            started()
    finally:
        store.write(before)


def test_a_damaged_file_is_named(started: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.safetensors").write_bytes(b"no weights")
    with pytest.raises(UsageError, match=r"cannot be read: .*bad\.safetensors"):
        started(f"init_from={tmp_path / 'bad.safetensors'}")


def test_a_fingerprint_sees_names_types_and_numbers_and_no_order() -> None:
    a, b = torch.arange(4.0), torch.ones(2, 2)
    assert fingerprint({"a": a, "b": b}) == fingerprint({"b": b, "a": a.clone()})
    others = [{"a": a, "c": b}, {"a": a.half(), "b": b}, {"a": a, "b": b.flatten()}, {"a": a, "b": b * 2}]
    assert len({fingerprint(other) for other in others} | {fingerprint({"a": a, "b": b})}) == 5


@pytest.fixture(scope="module")
def pairs(place: Path) -> list[str]:
    """Settings of a task on texts of its own: forty of them, so that each split has some."""
    (place / "texts").mkdir()
    for number in range(40):
        words = " ".join(f"{number * step % 97}" for step in range(1, 30))
        (place / "texts" / f"{number}.txt").write_text(f"text {number}\n{words}\n{words[::-1]}\n")
    return [
        *("model/topology=encoder", "model/position=learned", "model.d_model=16", "model.num_heads=2"),
        *("model.max_len=24", "task/source=files", f"task.source.path={place}/texts/*.txt"),
        *("task/tokeniser=characters", "task.split=[0.4,0.3,0.3]", "task.block=24", "task.batch_size=4"),
    ]


@pytest.fixture(scope="module")
def on_pairs(place: Path, pairs: list[str]) -> Path:
    """The weights of a model that two segments were embedded for, and whose tables differ from each other."""
    config = compose(["task=masked_nsp", *pairs])
    task = task_of(config)
    model = build_model(config, task.interface)
    path = place / "pairs.safetensors"
    write_weights(path, model.state_dict(), readout_parameters(model), task.tokens)
    return path


def test_weights_that_were_trained_on_pairs_read_single_texts_as_first_segments(
    on_pairs: Path, pairs: list[str]
) -> None:
    config = compose(["task=masked", *pairs, "task.segments=true", f"init_from={on_pairs}"])
    check(config)
    task = task_of(config)
    model = build_model(config, task.interface)
    found = load_initial_weights(model, task, config)
    assert "segments.weight" in found.loaded and not found.fresh
    both = compose(["task=masked_nsp", *pairs])
    other = build_model(both, task_of(both).interface)
    other.load_state_dict(read_weights(on_pairs))
    batch = task.train_batch(0, 0)
    said, wanted = (one.eval().answers(*model_inputs(batch))[MAIN] for one in (model, other))
    assert torch.equal(said, wanted)
    without = replace(batch, tags={"segment": torch.ones_like(batch.inputs)})
    assert not torch.allclose(model.answers(*model_inputs(without))[MAIN], wanted), "the tables of the segments differ"


def test_weights_that_were_trained_on_pairs_say_what_single_texts_lack(on_pairs: Path, pairs: list[str]) -> None:
    with pytest.raises(
        UsageError, match=r"no weights called segments\.weight; .* \(task\.segments=true embeds segments\)"
    ):
        check(compose(["task=masked", *pairs, f"init_from={on_pairs}"]))
