"""Every command that a page names is understood: its words and options exist, and what it overrides is composed."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from benchmarks import __main__ as benchmarks
from swapformer import cli, exercises
from swapformer.study.config import overrides as texts
from swapformer.study.config.choices import composition
from swapformer.study.spec import load

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "experiments").rglob("README.md")),
]  # fmt: skip
COMMAND = re.compile(r"(?:\w+=\S+ )*(swapformer|python -m benchmarks) +(\S.*)")
PLACEHOLDER = re.compile(r"\b[A-Z]{1,}[A-Z_]*\b|…|my_|NN_|mine")
"""What stands for something of the reader's own."""


def commands(text: str) -> Iterator[str]:
    """The commands of a page: lines of its blocks without their comments, and what stands between backquotes."""
    for block in re.findall(r"^```(?:sh|bash)?\n(.*?)^```", text, re.S | re.M):
        lines = [line.partition("  #") for line in block.replace("\\\n", " ").splitlines()]
        yield from (command.strip() for command, _, comment in lines if "refused" not in comment)
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


FOUND = {
    command.strip(): str(page.relative_to(ROOT))
    for page in PAGES
    for command in commands(page.read_text("utf-8"))
    if COMMAND.fullmatch(command.strip())
}
"""Command → the last page that names it."""


def test_pages_name_commands() -> None:
    assert len(FOUND) > 100
    assert {command.split()[1] for command in FOUND if command.startswith("swapformer ")} >= {"train", "study"}


@pytest.mark.parametrize(("command", "page"), FOUND.items(), ids=[command[:60] for command in FOUND])
def test_a_command_is_understood(command: str, page: str) -> None:
    fitted = COMMAND.fullmatch(command)
    assert fitted is not None
    program, words = fitted[1], shlex.split(fitted[2])
    verb, rest = words[0], words[1:]
    if program != "swapformer":
        if words != ["--help"]:
            benchmarks.parser().parse_args(words)
    elif "|" in words:
        assert {word for word in words if word != "|"} <= set(cli._verbs(cli._parser()))
    elif "--config-dir" in rest:  # options of the reader's own
        assert verb in ("train", "list")
    elif verb == "train":
        understood_overrides([word for word in rest if "=" in word and not word.startswith("-")])
    elif verb in cli.TOOLS:
        if rest and verb == "trials":
            tool("trials").parsers()
        elif rest:
            tool(verb).parser().parse_intermixed_args(rest)
    elif rest:
        options = cli._parsed(words)
        if verb == "study":
            understood_study(options.name, options.overrides)
    else:
        assert verb in cli._verbs(cli._parser())


def tool(verb: str) -> Any:
    return importlib.import_module(cli.TOOLS[verb][0])


def understood_study(name: str, overrides: list[str]) -> None:
    """A study that is no placeholder is one of ours, and its overrides are a trial's, or are of the study itself."""
    if not PLACEHOLDER.search(name):
        found = [each for each in exercises.shipped() if each == name or each.startswith(f"{name}/")]
        assert found, f"{name} is no study"
        load(found[0], texts.value(overrides, "scale") if len(found) == 1 else None)
    own = ("seeds", "scale")
    understood_overrides([each for each in overrides if texts.key(each) not in own])


def understood_overrides(overrides: list[str]) -> None:
    """They are composed, of a sweep the first and the last values."""
    overrides = [each for each in overrides if not texts.key(each).startswith("hydra")]
    parsed = OverridesParser.create().parse_overrides(overrides)
    ends = [
        (
            *(
                f"{str(each.input_line).partition('=')[0]}={[*each.sweep_string_iterator()][end]}"
                if each.is_sweep_override()
                else str(each.input_line)
                for each in parsed
            ),
        )
        for end in (0, -1)
    ]
    for chosen in dict.fromkeys(ends):
        with composition(chosen):
            pass
