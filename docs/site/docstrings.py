"""Docstrings and signatures as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_SECTION = re.compile(r"(Args|Attributes|Facts|Raises|Returns|Yields|Shapes):$")
_ENTRY = re.compile(r"([\w, `*.@/]+?): (.*)$")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def markdown(doc: str) -> str:
    """A docstring's paragraphs, with its sections (Args, Facts, Raises …) as lists."""
    out: list[str] = []
    for block in inspect.cleandoc(doc).split("\n\n"):
        head, *rest = block.split("\n")
        if _SECTION.match(head.strip()) and rest:
            out += [f"**{head.strip().rstrip(':')}**", _entries(rest)]
        elif all(line.startswith("    ") for line in block.split("\n")):
            out.append("```text\n" + inspect.cleandoc(block) + "\n```")
        else:
            out.append(escaped(block))
    return "\n\n".join(out)


def _entries(lines: list[str]) -> str:
    """`name: what it is`, with lines that go on, as a list."""
    depth = len(lines[0]) - len(lines[0].lstrip())
    joined: list[str] = []
    for line in lines:
        if joined and len(line) - len(line.lstrip()) > depth:
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line.strip())
    found = []
    for entry in joined:
        named = _ENTRY.match(entry)
        found.append(f"- `{named[1].strip('`')}`: {escaped(named[2])}" if named else f"- {escaped(entry)}")
    return "\n".join(found)


def escaped(text: str) -> str:
    """Text in which only code in backticks is Markdown."""
    parts = text.split("`")
    return "`".join(
        re.sub(r"([*_<>\[\]|#])", r"\\\1", part) if number % 2 == 0 else part for number, part in enumerate(parts)
    )


def signature(name: str, made: Callable[..., Any]) -> str:
    """The call of a function or class."""
    try:
        found = _ADDRESS.sub("", str(inspect.signature(made)))
    except (TypeError, ValueError):
        found = "(…)"
    return f"```python\n{name}{found}\n```"
