"""Which modules import which, read from sources: for the import law, and for the tests that a change can reach."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import swapformer

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(swapformer.__file__).parent
BESIDE = {"hydra_plugins": ROOT / "src" / "hydra_plugins", "benchmarks": ROOT / "benchmarks"}
"""The rooms outside the package."""


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports anywhere in it; relative imports are not used in this house."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and node.level == 0, f"{path}: imports name their module in full"
            if node.module == "swapformer":
                yield from (f"swapformer.{alias.name}" for alias in node.names)
            else:
                yield node.module


def modules() -> dict[str, Path]:
    """Every module of every room by its full name."""
    bases = (PACKAGE.parent, *(folder.parent for folder in BESIDE.values()))
    tops = (PACKAGE, *BESIDE.values())
    return {
        ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): path
        for base, top in zip(bases, tops, strict=True)
        for path in sorted(top.rglob("*.py"))
    }


def imported_modules(path: Path, known: Collection[str]) -> set[str]:
    """Those of the known modules that a file imports anywhere in it, also for types only."""
    found = set(imports(path))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= below
            if below <= set(known):
                found.discard(str(node.module))
    return found & set(known)


def import_graph() -> dict[str, set[str]]:
    """Module → the modules that it imports."""
    known = modules()
    graph = {name: imported_modules(path, known) for name, path in known.items()}
    graph["swapformer"].add("swapformer.api")  # which it loads when a name of it is asked for
    return graph


def room_of(module: str) -> str | None:
    """The room that a module lies in; None for modules of others, and for the package itself."""
    first, *rest = module.split(".")
    return first if first in BESIDE else rest[0] if first == "swapformer" and rest else None


def reachable(graph: Mapping[str, Collection[str]], starts: Collection[str]) -> set[str]:
    """All that is imported by the starts, and by what they import."""
    seen: set[str] = set()
    rest = list(starts)
    while rest:
        name = rest.pop()
        if name not in seen:
            seen.add(name)
            rest += graph[name]
    return seen


class RoomFilter:
    """Whether a change in a room can reach a file of tests, by what the file and its helpers import."""

    def __init__(self, room: str) -> None:
        self.room, self.graph = room, import_graph()
        if room not in {room_of(name) for name in self.graph}:
            rooms = sorted(filter(None, {room_of(name) for name in self.graph}))
            raise ValueError(f"there is no room {room!r}; the rooms are {', '.join(rooms)}")

    def reaches(self, path: Path) -> bool:
        """Whether the tests of this file import something of the room. The house's own rules read every room."""
        if path.name == "test_house.py":
            return True
        known = modules()
        tests = {file.stem: file for file in (ROOT / "tests").rglob("*.py")}
        helpers = {name.rpartition(".")[2] for name in imports(path)} & tests.keys()
        files = [path, *(tests[name] for name in helpers)]
        starts = {name for file in files for name in imported_modules(file, known)}
        return self.room in {room_of(name) for name in reachable(self.graph, starts)}
