"""Counts the statements of the code that an attention layer is made of."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import FunctionType

from swapformer.measure.attention import first_attention
from swapformer.measure.base import MeasuredModel, Measurement
from swapformer.results.shapes import Finding, Table
from swapformer.task.base import Direction

ROOMS = tuple(
    f"swapformer.model.{slot}"
    for slot in ("attention", "extension", "kernel", "normaliser", "pattern", "position", "qk_norm", "score")
)
"""Packages whose code counts; what every model has (sizes, weights, tokens, caches) lies elsewhere."""
LENGTH = 8
"""Tokens of the forward that finds the layer."""

Definition = type | FunctionType
Code = Mapping[Definition, ast.AST]


class CodeSize(Measurement):
    """Statements of the code behind the first attention layer: code/attention, code/kernel, code/position, code/all.

    `code/attention` begins with the classes of the attention and of the parts that it holds, without its kernel;
    `code/kernel` with that of the kernel, `code/position` with that of the position encoding. `code/all` is their
    union, in which code that two of them share counts once. See `reachable` for what belongs to them and `statements`
    for what counts. With model/kernel=auto all kernels are there.
    """

    def directions(self) -> Mapping[str, Direction]:
        return {f"code/{name}": "lower" for name in ("attention", "kernel", "position", "all")}

    def measure(self, subject: MeasuredModel) -> Finding:
        attention, position = first_attention(subject.model, LENGTH, subject.device)
        kernel = getattr(attention, "kernel", None)
        of_kernel, of_position = ({type(part) for part in _parts(each)} for each in (kernel, position))
        held = {type(part) for part in _parts(attention)}
        begins = {"attention": held - of_kernel - of_position, "kernel": of_kernel, "position": of_position}
        found = {name: reachable(begin) for name, begin in begins.items()}
        found["all"] = {key: tree for code in found.values() for key, tree in code.items()}
        counts = {name: sum(map(statements, code.values())) for name, code in found.items()}
        table = Table(
            "Code of an attention layer",
            "Statements of the classes and functions that can be reached by name.",
            ["part", "statements", "classes and functions"],
            [[name, counts[name], ", ".join(sorted(key.__qualname__ for key in code))] for name, code in found.items()],
        )
        metrics = {f"code/{name}": float(count) for name, count in counts.items()}
        return Finding(metrics, {"definitions": table}, exact=tuple(metrics))


def reachable(begin: Iterable[Definition], rooms: Collection[str] = ROOMS) -> Code:
    """The classes and functions of `rooms` that the code of `begin` names, that theirs names, and so on.

    A class is reached as a whole, with the bases that it names. Names are looked up in the module of the code that has
    them; those in annotations and docstrings do not count.
    """
    found: dict[Definition, ast.AST] = {}
    waiting = list(begin)
    while waiting:
        each = waiting.pop()
        if each in found or not _lies_in(each, rooms):
            continue
        tree = _Bare().visit(ast.parse(textwrap.dedent(inspect.getsource(each))))
        found[each] = tree
        known = vars(sys.modules[each.__module__])
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & known.keys()
        waiting += [known[name] for name in sorted(names) if isinstance(known[name], Definition)]
    return found


def statements(tree: ast.AST) -> int:
    """The number of statements of Python's grammar in a tree, nested ones too; a bare string is not counted."""
    return sum(isinstance(node, ast.stmt) and not _is_text(node) for node in ast.walk(tree))


class _Bare(ast.NodeTransformer):
    """Takes annotations away."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _lies_in(each: Definition, rooms: Collection[str]) -> bool:
    return any(f"{each.__module__}.".startswith(f"{room}.") for room in rooms)


def _parts(root: object) -> Iterator[object]:
    """The objects whose classes lie in ROOMS among this and what it holds, each once."""
    seen: set[int] = set()
    waiting: list[object] = [root]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            waiting += each.values()
        elif isinstance(each, list | tuple | set | frozenset):
            waiting += each
        elif id(each) not in seen and _lies_in(type(each), ROOMS):
            seen.add(id(each))
            yield each
            waiting += vars(each).values()
