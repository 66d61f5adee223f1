"""Batches, evaluation sets and fingerprints are pure functions: of (seed, step), of the index, of the settings."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hydra.utils import get_object
from omegaconf import OmegaConf
from torch.utils.data._utils import pin_memory

from settings_of_tasks import NEEDED, NOTHING_TO_CHANGE, SMALL, change_of
from swapformer.paths import conf_dir
from swapformer.study.config.choices import hydra_config
from swapformer.task import Addition, Batch, Copy, Masked, Task
from swapformer.task.base import Sequences, Split, cut
from swapformer.task.synthetic import Synthetic
from swapformer.task.text_task import TextTask
from swapformer.training.assemble import build_task
from swapformer.training.data import BatchShare
from texts import text

YAMLS = sorted((conf_dir() / "task").glob("*.yaml"))


def node(path: Path) -> dict[str, Any]:
    """The resolved settings of a task, composed only where there is something to compose: that takes a tenth second."""
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return dict(_composed(path.stem)) if "defaults" in content or path.stem in SMALL else content


@cache
def _composed(task: str) -> dict[str, Any]:
    config = OmegaConf.to_container(hydra_config(f"task/{task}", SMALL.get(task, [])).task, resolve=True)
    assert isinstance(config, dict)
    return config


def build(path: Path, /, **settings: Any) -> Task:
    return build_task({"task": node(path) | settings})


def digest(batch: Batch) -> str:
    parts = [*tensors(batch), *(tensors(batch.source) if batch.source else []), *batch.answers.values()]
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()


def tensors(places: Sequences) -> list[torch.Tensor]:
    held = [places.inputs, places.padding, places.document, places.position, *places.tags.values()]
    return [tensor for tensor in held if tensor is not None]


def everything(task: Task, backwards: bool) -> dict[str, str]:
    """Digests of some batches, asked for forwards or backwards."""
    wanted = [(seed, step) for seed in (0, 1) for step in (0, 1, 7)]
    found = {f"{seed} {step}": digest(task.train_batch(seed, step)) for seed, step in wanted[:: -1 if backwards else 1]}
    for split in ("val", "test"):
        for one in list(task.evaluation(split))[:: -1 if backwards else 1]:
            last = 2 if one.batches is None else min(2, one.batches - 1)
            for index in (last, 0) if backwards else (0, last):
                found[f"{split}{one.name} {index}"] = digest(one.batch(index))
    return found | {"fingerprint": task.fingerprint()}


@pytest.mark.evidence
def test_another_process_in_another_order_gets_the_same_batches_and_fingerprints() -> None:
    here = {path.stem: everything(build(path, batch_size=8), backwards=False) for path in YAMLS}
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import test_purity as t;"
        "print(json.dumps({p.stem: t.everything(t.build(p, batch_size=8), backwards=True) for p in reversed(t.YAMLS)}))"
    )
    environment = os.environ | {
        "PYTHONHASHSEED": "7",
        "TOKENIZERS_PARALLELISM": "false",
        "SWAPFORMER_CACHE": os.devnull,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    result = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(result.stdout) == here
    assert len({found["fingerprint"] for found in here.values()}) == len(YAMLS)


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: path.stem)
def test_seeds_and_steps_give_batches_of_their_own_and_seed_0_is_a_seed(path: Path) -> None:
    task = build(path)
    torch.manual_seed(1)
    first = digest(task.train_batch(0, 0))
    torch.manual_seed(2)
    assert digest(task.train_batch(0, 0)) == first, "the global random state does not matter"
    state = torch.get_rng_state()
    digests = {digest(task.train_batch(seed, step)) for seed in range(5) for step in range(5)}
    assert len(digests) == 25
    assert torch.equal(torch.get_rng_state(), state), "nor is it touched"
    assert digest(task.train_batch(np.int64(0), np.int64(0))) == first  # type: ignore[arg-type]


def rows_apart(task: Task, step: int = 3) -> list[int]:
    """The sequences of a batch that are others where they are asked for without the rest of it."""
    whole = task.train_batch(1, step)
    rows = range(len(whole.inputs))
    return [
        at for at in rows if digest(task.train_rows(1, step, at, at + 1)) != digest(cut(whole, len(rows), at, at + 1))
    ]


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: path.stem)
def test_a_device_makes_the_sequences_that_the_whole_batch_has(path: Path) -> None:
    assert not rows_apart(build(path, batch_size=4))


@pytest.mark.parametrize(
    "settings", [{"order": "shuffled"}, {"packing": "documents"}, {"packing": "documents", "reset_positions": True}]
)
def test_a_device_makes_its_own_blocks_of_text_only(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    path = conf_dir() / "task" / "text.yaml"
    task = build(path, batch_size=4, **settings)
    assert not rows_apart(task)
    read, take = list[int](), TextTask.take

    def counting(text: TextTask, split: Split, positions: torch.Tensor) -> torch.Tensor:
        read.append(len(positions))
        return take(text, split, positions)

    monkeypatch.setattr(TextTask, "take", counting)
    task.train_rows(0, 0, 1, 3)
    assert read == [2]


def test_a_task_that_draws_for_its_whole_batch_cannot_make_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a task whose sequences depend on each other says that they do not."""
    monkeypatch.setattr(Masked, "independent", True)
    assert rows_apart(build(conf_dir() / "task" / "masked.yaml", batch_size=4))


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: path.stem)
def test_yaml_and_constructor_agree_and_no_setting_is_dead(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Synthetic, "rows_at_once", 1)

    def look(**settings: Any) -> list[str]:
        task = build(path, **settings)
        batches = [task.train_batch(0, 0), *(one.batch(0) for one in task.evaluation("val"))]
        # A synthetic task's fingerprint changes with its settings, whether anything reads them or not.
        return [*map(digest, batches), *([] if isinstance(task, Synthetic) else [task.fingerprint()])]

    defaults = node(path)
    assert set(inspect.signature(get_object(defaults.pop("_target_"))).parameters) == set(defaults)
    before = look()
    for name in defaults:
        if (path.stem, name) in NOTHING_TO_CHANGE:
            continue
        needed = NEEDED.get(name, {})
        changed = {name: change_of(path.stem, name, defaults, tmp_path)}
        assert look(**needed, **changed) != (look(**needed) if needed else before), name


def test_what_a_task_says_of_itself_holds() -> None:
    for path in YAMLS:
        task = build(path)
        assert task.train_batch(3, 4).inputs.shape[1] == task.train_length <= task.max_length
        assert len(task.tokens) == task.vocab_size
        assert not set(task.summaries) & set(task.directions)
        answers = {f"{name}_" if name else "": task.metrics(name) for name in task.interface.readouts}
        keys = {f"{prefix}{key}" for prefix, metrics in answers.items() for key in metrics}
        assert {key for key in keys if not key.endswith("_se")} == set(task.directions)
        assert {key.removesuffix("_se") for key in keys if key.endswith("_se")} <= set(task.directions)
        for split in ("val", "test"):
            sets = task.evaluation(split)
            assert sets[0].name == ""
            with pytest.raises(IndexError):
                sets[0].batch(-1)


def test_arms_that_differ_in_evaluation_only_train_on_the_same_batches() -> None:
    pairs = [
        (Copy(), Copy(eval_lengths=[40])),
        (Addition(), Addition(eval_digits=[8])),
        (text(__file__), text(__file__, eval_lengths=[100])),
    ]
    for one, other in pairs:
        assert digest(one.train_batch(5, 6)) == digest(other.train_batch(5, 6))
        assert digest(one.evaluation("val")[0].batch(0)) != digest(one.evaluation("test")[0].batch(0))


def test_plain_and_reversed_addition_are_paired_sum_by_sum() -> None:
    plain, turned = Addition(), Addition(reversed=True)
    one, other = plain.train_batch(0, 0), turned.train_batch(0, 0)
    for a, b in zip(one.inputs, other.inputs, strict=True):
        assert plain.decode(a).split("=")[0] == turned.decode(b).split("=")[0]


def test_a_batch_moves_with_all_its_parts() -> None:
    ids = torch.arange(6).view(2, 3)
    batch = Batch(inputs=ids, targets=ids, padding=ids > 3, document=ids, position=ids, tags={"speaker": ids}).to(
        "meta"
    )
    tensors = [batch.inputs, batch.targets, batch.padding, batch.document, batch.position, batch.tags["speaker"]]
    assert all(tensor is not None and tensor.device.type == "meta" for tensor in tensors)
    assert Batch(inputs=ids, targets=ids).to("cpu").padding is None


def test_torchs_loader_pins_every_part_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a DataLoader does for a GPU; here a pinned tensor is marked by one more."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)
    ids = torch.arange(6).view(2, 3)
    source = Sequences(inputs=ids, position=ids)
    batch = Batch(inputs=ids, targets=ids, padding=None, tags={"speaker": ids}, labels={"other": ids}, source=source)
    share = pin_memory.pin_memory(BatchShare(batch, {"": 6}, 12))
    assert isinstance(share, BatchShare) and share[1:] == ({"": 6}, 12)
    pinned, read = share.batch, share.batch.source
    assert read is not None and read.position is not None and read.extent == 6
    parts = [pinned.inputs, pinned.targets, pinned.tags["speaker"], pinned.labels["other"], read.inputs, read.position]
    assert all(torch.equal(part, ids + 1) for part in parts)
