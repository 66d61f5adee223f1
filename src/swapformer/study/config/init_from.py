"""What `init_from` names: a file, or a trial of the store, known by the content of its weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError
from swapformer.results.record import FINISHED
from swapformer.results.store import Store
from swapformer.training.weights import summarise_weights

_TRIAL = re.compile(r"[0-9a-f]{4,16}")


def resolve(given: object, runs_dir: str) -> dict[str, Any] | None:
    """`init_from` as a trial keeps it: what was said, where the weights lie, and their hash. None where it is null.

    Raises:
        UsageError: if it is neither a file of weights nor a finished trial.
    """
    if given is None:
        return None
    text = str(given)
    path = Path(text).absolute() if text.endswith(".safetensors") else _of_trial(text, runs_dir)
    return {"source": text, "path": str(path), "weights": summarise_weights(path).weights}


def _of_trial(text: str, runs_dir: str) -> Path:
    if not _TRIAL.fullmatch(text):
        raise UsageError(
            f"`init_from` must be null, a .safetensors file that `swapformer import` has made, or the id of a finished "
            f"trial, but it is {text!r}"
        )
    store = Store(runs_dir)
    record = store.find(text)
    if record.status != FINISHED:
        raise UsageError(
            f"a trial can start from one that has finished, but {record.id} is {record.status}; finish it with the "
            f"command that began it: {record.command}"
        )
    return store.directory(record.id) / "checkpoints" / "last.ckpt"
