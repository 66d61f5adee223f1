"""Looks up the classes that configurations name in `_target_`, and makes objects of them.

A configuration may come from anywhere. Naming a class runs its package, and making one runs its code. So a name is
looked up here and nowhere else: the module where it is found and the one that defines it both lie in packages that
swapformer or the user allows.
"""

from __future__ import annotations

import ast
import inspect
import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from swapformer.errors import UsageError, cut, suggest
from swapformer.paths import environment
from swapformer.ranges import complaint, fits, hints_of

OURS = (
    *("swapformer.model", "swapformer.task", "swapformer.probes", "swapformer.measure", "swapformer.mirror"),
    *("swapformer.training.schedule", "swapformer.training.averaging", "swapformer.training.muon"),
    "swapformer.interop.huggingface",
)
"""Where swapformer's own classes lie that a configuration may name, and rules that state facts."""
LOGGERS = "lightning.pytorch.loggers"
LIBRARIES = ("torch.nn", "torch.optim", "lion_pytorch", LOGGERS)
"""Packages of others whose modules, optimisers, schedules and loggers every configuration may name."""
_HOMES = frozenset(name.split(".")[0] for name in (*OURS, *LIBRARIES))
VARIABLE = "SWAPFORMER_PACKAGES"
"""The environment variable that names further ones, with commas between. No file can: it must be the user's word."""

Node = Mapping[str, Any]


def allowed() -> str:
    """The additional packages that the user allows, for processes that do not have this one's environment."""
    return os.environ.get(VARIABLE, "")


def trusting(package: str) -> AbstractContextManager[None]:
    """The user's word for one package more, given on the command line."""
    return environment({VARIABLE: ",".join((*_users(allowed()), package))})


def targets(node: object) -> Iterator[str]:
    """Every `_target_` in a configuration, as text."""
    for key, value in _entries(node):
        if key == "_target_":
            yield str(value)


def require_known(node: object) -> None:
    """Refuse a configuration that names what neither swapformer nor the user has allowed.

    Nothing is imported but from allowed packages. All of it is resolved: Hydra would resolve what is left to it, to a
    class that nobody has looked at.

    Raises:
        UsageError: for the first such name, or an interpolation.
    """
    for key, value in _entries(node):
        if key == "_target_":
            find(str(value))
        elif isinstance(value, str) and "${" in value:
            raise UsageError(f"`{key}` must be resolved before anything is made of it, but it is {value!r}")


def require_known_folder(path: str) -> None:
    """Refuse an entry of Hydra's search path that is a package which nobody has allowed: to look there imports it."""
    scheme, _, package = path.partition("://")
    name = package.replace("/", ".").strip(".")
    if scheme == "pkg" and not _within(name, (*OURS, *_users(allowed()))):
        raise UsageError(
            f"hydra.searchpath must name folders or packages that you allow, but it has {path}; use file://FOLDER, or "
            f"if you trust the package: {VARIABLE}={name.split('.')[0]} before the command"
        )


def complaints(node: object, declared: Mapping[str, Any] | None = None, path: str = "") -> Iterator[str]:
    """Complaints about settings: of the types that the classes of a configuration declare for them.

    Args:
        declared: types of settings by their whole keys, which win over what a class says.
        path: the key under which `node` stands.
    """
    declared = declared or {}
    names = isinstance(node, Mapping) and isinstance(node.get("_target_"), str)
    hints = hints_of(find(node["_target_"])) if names else {}  # type: ignore[index]
    pairs = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list | tuple) else ()
    for key, value in pairs:
        where = f"{path}.{key}" if path else str(key)
        hint = declared.get(where, hints.get(str(key), Any))
        if fits(hint, value):
            yield from complaints(value, declared, where)
        else:
            yield complaint(hint, value, where)


def make(node: Node, kind: type, path: str = "") -> Any:
    """The object that Hydra's `instantiate` makes of a node that names a `kind`, or of a function of the user's.

    Args:
        path: the key under which the node stands, for messages.

    Raises:
        UsageError: for a name that is not allowed, or of another kind, or a setting that is not of its type.
    """
    from hydra.utils import instantiate

    if not isinstance(node.get("_target_"), str):
        raise UsageError(
            f"`{path or 'a node'}` must name a class by `_target_`, but it has none; choose an option for it"
        )
    require_known(node)
    made = find(node["_target_"])
    if inspect.isclass(made) and not issubclass(made, kind):
        raise UsageError(f"`_target_` must name a {kind.__name__} here, but {node['_target_']} is not one")
    for name in targets(node):
        require_whole(find(name))
    if found := list(complaints(node, path=path)):
        raise UsageError(" ".join(found))
    return instantiate(node)


def require_whole(made: object) -> None:
    """Refuse a class that leaves methods of its base undefined, naming them, and the first as it would be written."""
    missing = sorted(getattr(made, "__abstractmethods__", ()))
    if inspect.isclass(made) and missing:
        base = next(each for each in made.__mro__ if missing[0] in vars(each))
        raise UsageError(
            f"{made.__module__}.{made.__name__} must define what {base.__name__} leaves open: {', '.join(missing)}; "
            f"`python -m pydoc {base.__module__}.{base.__name__}` says what each gives. The first would begin "
            f"`{_head(made, missing[0])}`"
        )


def _head(made: type, name: str) -> str:
    """The first line of a method or property as a class would define it."""
    member = inspect.getattr_static(made, name)
    function: Any = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    signature = str(inspect.signature(function)).replace("'", "").replace('"', "")
    return f"{'@property ' if isinstance(member, property) else ''}def {name}{signature}:"


def find(name: str) -> Any:
    """The class that a configuration names, or the function: a rule of swapformer's, or any of the user's.

    It is one attribute of a module, or a class within such a class. What a module has imported from elsewhere is none
    of its own, and cannot be reached through it.

    Raises:
        UsageError: for anything else.
    """
    users = _users(allowed())
    packages = (*OURS, *LIBRARIES, *users)
    if not _within(name, packages):
        raise _not_allowed(name, name)
    module, within = _module(name)
    found: Any = module
    for depth, word in enumerate(within):
        if depth and not inspect.isclass(found):
            raise _no_class(name)
        if not hasattr(found, word):
            near = [known for known in vars(found) if not known.startswith("_")]
            raise UsageError(f"`_target_: {name}` must name a class, but there is no {word!r}{suggest(word, near)}")
        found = getattr(found, word)
    if not inspect.isclass(found) and not (inspect.isfunction(found) and len(within) == 1):
        raise _no_class(name)
    home = f"{found.__module__}.{found.__qualname__}"
    if not _within(home, packages):
        raise _not_allowed(name, home)
    if not _within(home, users) and not _is_ours_to_make(found, home):
        raise _no_class(name)
    return found


def _is_ours_to_make(found: Any, home: str) -> bool:
    """Whether it is a class or rule of swapformer, a Lightning logger, or a class of torch that only computes."""
    if not inspect.isclass(found):
        return _within(home, OURS) and hasattr(found, "causal")
    if _within(home, (*OURS, LOGGERS)):
        return True
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    return issubclass(found, Module | Optimizer | LRScheduler)


def _module(name: str) -> tuple[ModuleType, list[str]]:
    """The innermost module of a dotted name, imported, and the names that follow."""
    words = name.split(".")
    count = 1
    try:
        module = import_module(words[0])
        while count < len(words) and hasattr(module, "__path__"):
            # A class of a package is no module of it: to look for one on the disk would be slow.
            last_is_class = count == len(words) - 1 and inspect.isclass(vars(module).get(words[count]))
            if last_is_class or not find_spec(".".join(words[: count + 1])):
                break
            count += 1
            module = import_module(".".join(words[:count]))
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"`_target_: {name}` must name a class that can be imported, but: {type(error).__name__}: {error}"
        ) from error
    return module, words[count:]


def source_files(module: str) -> dict[str, Path]:
    """The source of a module, and of all that it imports from packages that the user allows: name → file.

    Imports are read from the source, those within functions too; the modules need not be loaded.
    """
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _source(name)
        if path is not None and name not in found:
            found[name] = path
            waiting += [each for each in _imports(name, path) if _within(each, _users(allowed()))]
    return dict(sorted(found.items()))


NOT_IN_ID = "not part of the id: "
"""How the note on code begins whose content no id holds."""


def unseen_code(config: object) -> list[str]:
    """The code that the classes of the user's own in a configuration depend on and that no id holds, in words.

    Those are files outside the packages that the user allows and outside installed ones, such as a helper beside the
    module, and modules whose names are made while it runs.
    """
    own = [name for name in targets(config) if _within(name, _users(allowed()))]
    known = {name: path for each in own for name, path in source_files(find(each).__module__).items()}
    found: dict[str, None] = {}
    for name, path in known.items():
        for each in _imports(name, path):
            top = None if _within(each, _users(allowed())) else _source(each.partition(".")[0])
            if top is not None and top not in known.values() and not _is_installed(top):
                found[top.name if top.name != "__init__.py" else f"{top.parent.name}/"] = None
        if _imports_by_made_names(path):
            found[f"what {path.name} imports by a name that it makes while it runs"] = None
    return list(found)


def unlisted_imports(script: Path, listed: Iterable[Path]) -> list[str]:
    """The names of files beside a script that it imports, they too, and that are not among those `listed`."""
    known = {each.resolve() for each in listed}
    found: dict[str, None] = {}
    waiting, seen = [script.resolve()], set[Path]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            names = list(_imports(path.stem, path))
        except (OSError, SyntaxError, ValueError):
            continue  # what runs it will say so
        for word in dict.fromkeys(name.partition(".")[0] for name in names if name):
            for near in (path.parent / f"{word}.py", path.parent / word / "__init__.py"):
                if near.is_file():
                    waiting.append(near.resolve())
                    if near.resolve() not in known and near.resolve() != script.resolve():
                        found[os.path.relpath(near, script.resolve().parent)] = None
    return list(found)


def _is_installed(path: Path) -> bool:
    """Whether a file is Python's own or of an installed package, whose version says what it is."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    places = [Path(sysconfig.get_paths()[name]) for name in names] + [Path(__file__).parent]
    return any(path.is_relative_to(place) for place in places) or "site-packages" in path.parts


def _imports_by_made_names(path: Path) -> bool:
    """Whether a file imports modules by names that its text does not hold."""
    return any(
        _is_import_call(node) and not (node.args and isinstance(node.args[0], ast.Constant))
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call)
    )


def _is_import_call(node: ast.Call) -> bool:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in ("import_module", "__import__")


def _source(module: str) -> Path | None:
    """The file of a module's source; None where it has none."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    origin = spec.origin if spec is not None else None
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _imports(module: str, path: Path) -> Iterator[str]:
    """The full names that a module imports, and of each name from a package that it could be a module too."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) + 1 - node.level]) if node.level else ""
            whole = ".".join(filter(None, (base, node.module)))
            yield whole
            yield from (f"{whole}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _is_import_call(node) and node.args:
            given = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            if isinstance(given, str):  # importlib.import_module("helper")
                yield given


def _within(name: str, packages: Sequence[str]) -> bool:
    """Whether a dotted name is one of `packages` or is inside one, and runs nothing by a double underscore."""
    plain = all(word.isidentifier() and not word.startswith("__") for word in name.split("."))
    return plain and any(name == package or name.startswith(f"{package}.") for package in packages)


def _users(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _entries(node: object) -> Iterator[tuple[str, object]]:
    """Every key of a configuration with its value, and every entry of a list under the list's key."""
    pairs: Iterator[tuple[str, object]]
    if isinstance(node, Mapping):
        pairs = ((str(key), value) for key, value in node.items())
    elif isinstance(node, Sequence) and not isinstance(node, str):
        pairs = (("entry", value) for value in node)
    else:
        return
    for key, value in pairs:
        yield key, value
        yield from _entries(value)


def _not_allowed(name: str, home: str) -> UsageError:
    where = "" if home == name else f", which is {cut(home, 40)}"
    package = cut(home.split(".")[0], 40)
    advice = "" if package in _HOMES else f"; if you trust it: {VARIABLE}={package} before the command"
    return UsageError(
        f"`_target_` must name a class of swapformer's, of {', '.join(LIBRARIES)} or of a package that you allow, but "
        f"the configuration has {cut(name, 60)}{where}{advice}"
    )


def _no_class(name: str) -> UsageError:
    return UsageError(
        f"`_target_` must name a class of the module that defines it, and in torch a Module, an Optimizer or an "
        f"LRScheduler, but {name} is something else; to allow a function of your own package: {VARIABLE}=PACKAGE"
    )
