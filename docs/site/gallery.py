"""The gallery: every option of every slot, with its picture, what its docstring says, settings, facts and oracle."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.site.docstrings import escaped, markdown
from swapformer.catalogue import catalogue, option_files
from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.report.figures.svg import settings
from swapformer.targets import find
from swapformer.tools.drawings import DRAWINGS
from swapformer.tools.show import figure_of_part
from swapformer.yaml_reader import parse_yaml

INDEX = "parts/index.md"
ORACLES = Path(__file__).resolve().parents[2] / "tests" / "oracles" / "README.md"
_FACT = re.compile(r"^    (\w[\w, ]*): ", re.M)


def pages(folder: Path, pictures: bool) -> dict[str, str]:
    """Path → text: a page for each group of options, and one with all of them; pictures are drawn into `folder`."""
    groups = {group: options for group, options in catalogue().items() if group in option_files(conf_dir())}
    found = {INDEX: _index(groups)}
    for group in groups:
        found[_page(group)] = _group(group, option_files(conf_dir())[group], folder, pictures)
    return found


def _page(group: str) -> str:
    return f"parts/{group.replace('/', '_')}.md"


def _index(groups: Mapping[str, Mapping[str, str]]) -> str:
    rows = [
        f"| [`{group}`]({Path(_page(group)).name}) | {len(options)} | {', '.join(f'`{name}`' for name in options)} |"
        for group, options in groups.items()
    ]
    count = sum(map(len, groups.values()))
    return (
        f"# All parts\n\nEvery option that a configuration can choose, {count} of them, by group: "
        "`swapformer train GROUP=OPTION`. The page of a group has for each option what its class says of itself, its "
        "settings, the facts that rules read, what it is held to, and a picture where one can be drawn.\n\n"
        "| group | options | |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _group(group: str, files: Mapping[str, Path], folder: Path, pictures: bool) -> str:
    slot = group.removeprefix("model/")
    text = [f"# `{group}`"]
    first = next((cls for path in files.values() if (cls := _class(path)) is not None), None)
    base = _base(first)
    if base is not None and base.__doc__:
        text.append(markdown(base.__doc__))
    for name, path in files.items():
        text += [f"## `{name}`", *_option(group, slot, name, path, base)]
        if pictures and group.startswith("model/") and slot in DRAWINGS and (picture := _picture(slot, name, folder)):
            text.append(picture)
    return "\n\n".join(text) + "\n"


def _class(path: Path) -> type | None:
    """The class that an option's file names."""
    content = parse_yaml(path.read_text(encoding="utf-8"))
    target = content.get("_target_") if isinstance(content, dict) else None
    made = find(target) if isinstance(target, str) and target.startswith("swapformer.") else None
    return made if isinstance(made, type) else None


def _base(cls: type | None) -> type | None:
    """The base of the slot: the last of swapformer's own classes that a part inherits from."""
    own = [each for each in (cls.__mro__[1:] if cls else ()) if each.__module__.startswith("swapformer.")]
    return own[0] if own else None


def _option(group: str, slot: str, name: str, path: Path, base: type | None) -> Iterator[str]:
    cls = _class(path)
    if cls is not None:
        yield f"`{cls.__module__}.{cls.__name__}`"
        yield markdown(cls.__doc__ or "")
    yield f"```yaml\n# {group}={name}\n{path.read_text(encoding='utf-8').strip()}\n```"
    if cls is not None and base is not None and (facts := dict(_facts(cls, base))):
        yield "**Facts that differ from the slot's default**: " + ", ".join(
            f"`{key}={value}`" for key, value in facts.items()
        )
    if rows := list(_oracles(slot, name)):
        yield "| held to | largest difference | casts |\n|---|---|---|\n" + "\n".join(
            f"| {' | '.join(row)} |" for row in rows
        )


def _facts(cls: type, base: type) -> Iterator[tuple[str, Any]]:
    """The facts that a base lists, with a part's own values where they are plain and others than the base's."""
    doc = inspect.cleandoc(base.__doc__ or "")
    listed = doc.partition("Facts:\n")[2].partition("\n\n")[0]
    for names in _FACT.findall(listed):
        for name in names.split(", "):
            value = inspect.getattr_static(cls, name, None)
            if isinstance(value, bool | int | float | str | tuple) and value != inspect.getattr_static(
                base, name, None
            ):
                yield name, value


def _oracles(slot: str, name: str) -> Iterator[list[str]]:
    """The rows of the oracles' table that name an option, or every other one of its slot."""
    named, others = [], []
    for line in ORACLES.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or not line.startswith("|"):
            continue
        if re.search(rf"\b{slot}\b[^:;]*\b{re.escape(name)}\b", cells[0]):
            named.append(cells[1:])
        elif cells[0] == f"every other {slot}":
            others.append(cells[1:])
    yield from named or others


def _picture(slot: str, name: str, folder: Path) -> str:
    """The picture of a part, drawn; nothing where it refuses the sizes that pictures have."""
    try:
        figure = figure_of_part(f"model/{slot}={name}")
    except UsageError as error:
        return f"No picture: {escaped(str(error))}"
    path = folder / "parts" / f"{slot}_{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    with settings():
        figure.savefig(path, metadata={"Date": None})
    return f"![{name}]({path.name})"
