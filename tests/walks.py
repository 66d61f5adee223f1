"""What a page tells a user to do: the files that it has them write, and the commands that it has them run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path


def section(page: Path, heading: str) -> str:
    """The text of a page under a heading of its second level."""
    return page.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]


def files(text: str) -> dict[str, str]:
    """Name → content of the blocks that stand under a file's name."""
    return dict(re.findall(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```$", text, re.M | re.S))


def commands(text: str) -> list[list[str]]:
    """The words of each line of a text's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]


def write(place: Path, content: dict[str, str]) -> None:
    """Write files of a walk into a user's folder."""
    for name, text in content.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
