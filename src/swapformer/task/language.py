"""The symbols of a trial's task without its data: what a trained model needs in order to write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Never

from swapformer.interface import Interface, Readout
from swapformer.results.vocabulary import read_vocabulary
from swapformer.task.base import EvaluationSet
from swapformer.task.text_task import TokenisedTask
from swapformer.task.tokeniser import Trained


class Language(TokenisedTask):
    """What a task with a tokeniser leaves in its trial's folder, read again: it reads and writes, and has no data.

    `facts`: what the trial kept of its task beside the tokeniser.
    """

    directions: Mapping[str, Any] = {}
    train_length = max_length = longest_trained = 0

    def __init__(self, tokeniser: Trained, facts: Mapping[str, Any]) -> None:
        self.set_tokens(tokeniser, tokeniser.learn((), (), 1))
        self.name = str(facts["task"])
        self.predicts_next = bool(facts["predicts_next"])
        self.start_token, self.end_token = facts["start_token"], facts["end_token"]
        readouts = {name: Readout(**each) for name, each in facts["interface"]["readouts"].items()}
        self._interface = Interface(**{**facts["interface"], "readouts": readouts})

    @property
    def interface(self) -> Interface:
        return self._interface

    def train_batch(self, seed: int, step: int) -> Never:
        self._refuse()

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        self._refuse()

    def metrics(self, answer: str = "") -> Never:
        self._refuse()

    def fingerprint(self) -> Never:
        self._refuse()

    def _refuse(self) -> Never:
        raise AssertionError("the vocabulary of a trial is asked for no data")


def kept_language(folder: Path) -> Language | None:
    """The language that the trial in `folder` kept; None where it kept none, or it cannot be read."""
    text = read_vocabulary(folder)
    try:
        facts = json.loads(text)["language"] if text else None
        return None if facts is None else Language(Trained(path=str(folder)), facts)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
