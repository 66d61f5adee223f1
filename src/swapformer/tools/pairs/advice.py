"""What a refusal advises, read from its text, so that it can be tried."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from swapformer.tools.pairs.stages import Option, options_of
from swapformer.training.assemble import SLOTS

_CHOICE = re.compile(r"model/([a-z_]+)=(\w+|\[\])")
_MORE = re.compile(r"(?:, or |, | or )(\w+)")
_SETTING = re.compile(r"\b(trainer|allow|(?:model|task|trainer)(?:\.[a-z_]+)+)=(\[[^\]]*\]|[\w.-]*\w)")


@dataclass(frozen=True)
class Advice:
    """One change that would help: an option in a slot, or another setting."""

    key: str
    value: Any

    @property
    def slot(self) -> str:
        """The slot whose part it changes, or whose setting; empty for neither."""
        words = self.key.replace("/", ".").split(".")
        return words[1] if words[0] == "model" and len(words) > 1 and words[1] in SLOTS else ""

    @property
    def option(self) -> Option | None:
        """The option that it names, if it names one."""
        return Option(self.slot, self.value) if self.key.startswith("model/") else None

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


def advised(text: str) -> list[Advice]:
    """Every `model/slot=option` of a message, with the options that are listed behind it, and every `key=value`.

    What stands only in words (“shorten the task's evaluation lengths”) is not read.
    """
    return list(dict.fromkeys([*_choices(text), *_settings(text)]))


def _choices(text: str) -> Iterator[Advice]:
    for found in _CHOICE.finditer(text):
        slot, name = found.groups()
        yield Advice(f"model/{slot}", name)
        known, end = {option.name for option in options_of([slot])}, found.end()
        while (more := _MORE.match(text, end)) is not None and more[1] in known:
            yield Advice(f"model/{slot}", more[1])
            end = more.end()


def _settings(text: str) -> Iterator[Advice]:
    for key, value in _SETTING.findall(text):
        read = yaml.safe_load(value)
        yield Advice(key, tuple(read) if isinstance(read, list) else read)
