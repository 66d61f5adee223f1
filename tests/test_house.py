"""The house's own rules, read from its sources: who may know whom, what a part looks like, what is written down."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
import yaml
from packaging.specifiers import SpecifierSet

import swapformer
from configs import every_part
from import_graph import BESIDE, PACKAGE, ROOT, import_graph, imports, modules, room_of, tree
from swapformer.model.taps import Tapped
from swapformer.paths import conf_dir
from swapformer.ranges import Declared, hints_of
from swapformer.training.assemble import SLOTS

STANDARD = frozenset(sys.stdlib_module_names)

ROOMS = {
    "errors": set[str](),
    "paths": set[str](),
    "exercises": {"errors", "paths"},
    "random": set[str](),
    "interface": set[str](),
    "numerals": set[str](),
    "console": {"errors"},
    "ranges": {"errors"},
    "yaml_reader": {"errors"},
    "targets": {"errors", "paths", "ranges"},
    "catalogue": {"errors", "exercises", "paths", "yaml_reader"},
    "results": {"errors", "numerals", "paths", "yaml_reader"},
    "model": {"random", "interface", "ranges"},
    "task": {"random", "errors", "interface", "ranges", "targets", "results", "yaml_reader"},
    "training": {"model", "task", "random", "errors", "interface", "paths", "ranges", "targets", "results"},
    "probes": {"model", "task", "training", "measure", "interface", "random", "ranges", "targets", "results"},
    "measure": {
        *("model", "task", "training", "random", "errors", "interface", "numerals", "ranges", "targets", "results"),
    },
    "conformance": {"model", "training", "task", "random", "interface", "catalogue", "ranges", "targets"},
    "report": {"errors", "numerals", "ranges", "results", "__version__"},
    "mirror": {"study", "report", "errors", "paths", "ranges", "targets", "results"},
    "study": {
        *("model", "task", "training", "probes", "measure", "report", "results"),
        *("interface", "errors", "paths", "console", "catalogue", "exercises", "ranges", "targets", "yaml_reader"),
    },
    "interop": {
        *("model", "task", "training", "study", "results"),
        *("errors", "interface", "paths", "targets", "yaml_reader"),
    },
    "tools": {
        *(
            "train",
            "exercises",
            "model",
            "task",
            "training",
            "study",
            "report",
            "results",
            "conformance",
            "interop",
            "mirror",
            "random",
        ),
        *("catalogue", "console", "errors", "interface", "numerals", "paths", "targets", "yaml_reader", "__version__"),
    },
    "train": {"study", "results", "mirror", "catalogue", "console", "errors", "paths"},
    "cli": {"train", "tools", "study", "report", "results", "mirror", "catalogue", "console", "errors", "__version__"},
    "api": {"tools", "study", "training", "model", "task", "report", "results", "catalogue", "errors"},
    "__main__": {"cli"},
    "hydra_plugins": {"errors", "tools", "train", "study", "results", "mirror", "ranges"},
    "benchmarks": {
        *("cli", "tools", "study", "report", "mirror", "results", "training", "model", "task"),
        *("catalogue", "console", "errors", "exercises", "interface", "paths", "targets", "yaml_reader"),
    },
}
"""What each room may import of swapformer beside itself: from left to right, and never back.

A room is a folder or a module of swapformer, or one of the packages beside it: Hydra's plugins and the benchmarks.
"""

OUTSIDE = {
    "model": {"torch", "entmax"},
    "task": {"torch", "torchmetrics", "numpy", "tokenizers", "datasets", "huggingface_hub", "pyarrow"},
    "results": {"numpy", "pandas", "yaml"},
    "mirror": {"hydra", "lightning", "numpy", "matplotlib"},
    "report": {"numpy", "pandas", "scipy", "matplotlib", "jinja2", "markupsafe", "rich", "yaml"},
    "interop": {"torch", "safetensors", "tokenizers", "transformers", "yaml"},
}
"""What these rooms may import of other packages, the standard library aside."""

REPORT = (
    *("number_format", "families", "target_times", "derive", "records", "results_csv", "tuning"),
    *("statistics", "figures", "versus", "page", "external_results", "build", "external_looks"),
)
"""The modules and wings of `report`: each may import itself and what stands left of it."""


def sources(room: str) -> list[Path]:
    module = PACKAGE / f"{room}.py"
    found = [module] if module.is_file() else sorted(BESIDE.get(room, PACKAGE / room).rglob("*.py"))
    assert found, f"the room {room} is empty"
    return found


def circles(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules that are left when those which import none of the rest, or are imported by none, are taken away."""
    left = set(graph)
    while left:
        imported = set().union(*(graph[name] - {name} for name in left))
        ends = {name for name in left if name not in imported or not graph[name] & left - {name}}
        if not ends:
            break
        left -= ends
    return sorted(left)


def wings(path: Path) -> set[str]:
    """The modules and wings of the report that a file imports."""
    found = {name.split(".")[2] for name in imports(path) if name.startswith("swapformer.report.")}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "swapformer.report":
            found |= {alias.name for alias in node.names}
    return found


class TestImports:
    @pytest.mark.parametrize("room", ROOMS)
    def test_run_one_way(self, room: str) -> None:
        allowed = {*ROOMS[room], room, None}
        wrong = [f"{path.name} imports {name}" for path in sources(room) for name in imports(path)
                 if room_of(name) not in allowed]  # fmt: skip
        assert not wrong, "\n".join(wrong)

    def test_are_ruled_for_every_file(self) -> None:
        ruled = {path for room in ROOMS for path in sources(room)}
        assert set(modules().values()) - ruled == {PACKAGE / "__init__.py"}

    def test_make_no_circle_of_modules(self) -> None:
        graph = import_graph()
        assert sum(map(len, graph.values())) > 1000, "imports are found"
        assert circles(graph) == []

    def test_a_circle_would_be_found(self) -> None:
        assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": set()}) == ["b", "c"]

    def test_of_the_reports_wings_run_one_way(self) -> None:
        """Statistics know no figure and no page, and figures no page."""
        for path in sources("report"):
            own = path.relative_to(PACKAGE / "report").parts[0].removesuffix(".py")
            if own == "__init__":
                continue
            known = set(REPORT[: REPORT.index(own) + 1])
            assert wings(path) <= known, f"{path.relative_to(PACKAGE)} imports {sorted(wings(path) - known)}"

    @pytest.mark.parametrize("room", OUTSIDE)
    def test_bring_in_only_what_the_room_is_made_of(self, room: str) -> None:
        """Above all: no Hydra, Lightning, omegaconf or W&B in a model, no torch in a report."""
        allowed = OUTSIDE[room] | STANDARD | {"swapformer"}
        wrong = [
            f"{path.relative_to(PACKAGE)} imports {name}"
            for path in sources(room)
            for name in imports(path)
            if name.split(".")[0] not in allowed
        ]
        assert not wrong, "\n".join(wrong)

    def test_the_rooms_have_no_way_back(self) -> None:
        """The table itself: sorted by what they need, every room comes after those it imports."""
        done: set[str] = set()
        while rest := ROOMS.keys() - done:
            ready = {room for room in rest if ROOMS[room] & ROOMS.keys() <= done}
            assert ready, f"{sorted(rest)} import each other"
            done |= ready

    @pytest.mark.parametrize("room", ["report", "results"])
    def test_of_the_report_and_of_stored_files_bring_no_torch(self, room: str) -> None:
        """Measured in a process of its own, since what it imports could import torch in turn."""
        heavy = "{'torch', 'lightning', 'hydra', 'omegaconf', 'wandb', 'matplotlib.pyplot'}"
        if room == "results":  # it is in every trial's process, so that it brings no pandas before a history is read
            heavy = f"{heavy} | {{'pandas'}}"
        names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in sources(room)]
        code = f"import sys, {', '.join(names)}; print(sorted(({heavy}) & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"


STORED = {
    *("record.json", "metrics.csv", "manifest.json", "heartbeat", "lock", "config.yaml", "artifacts"),
    "tokeniser.json",
}
"""The files and folders of trials and studies whose names only the room results/ holds."""

OTHER_MEANINGS = {
    ("study/config/identity.py", "heartbeat"): "the setting trainer.heartbeat of older trials",
    ("measure/command.py", "metrics.csv"): "what a command leaves in its own folder",
}
"""Where a stored file's name is another word: file, word, and what it means there."""


def stored_names(path: Path) -> Iterator[str]:
    """The stored files that a module names: as a part of a path, or with its extension within any text."""
    shown = {id(node.value) for node in ast.walk(tree(path)) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in shown:
            words = re.findall(r"[\w.-]+", node.value)
            plain = not re.search(r"\s", node.value)
            yield from (word for word in words if word in STORED and (plain or "." in word))


CORE = (
    *("study/launch/trial.py", "study/run_study.py", "training/fit.py", "training/module.py", "training/trainer.py"),
    "report/build.py",
)
"""The files through which every trial and every study goes."""
OPTIONAL = ("callbacks", "hydra/launcher", "logger", "measure", "probes", "schedule")
"""The groups of options that train, store, judge, log or launch differently."""


def optional_classes() -> dict[str, str]:
    """Class → module of every option that is found by its YAML."""
    found = {}
    for group in OPTIONAL:
        for path in sorted((conf_dir() / group).glob("*.yaml")):
            for target in within(yaml.safe_load(path.read_text(encoding="utf-8"))):
                if target.startswith(("swapformer.", "hydra_plugins.")):
                    module, _, name = target.rpartition(".")
                    found[name] = module
    return found


def options_named(path: Path) -> set[str]:
    """The options that a file imports, names or asks for by the name of their class."""
    words = {node.id for node in ast.walk(tree(path)) if isinstance(node, ast.Name)}
    words |= {node.attr for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}
    words |= {alias.name for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom) for alias in node.names}
    words |= {
        node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return words & optional_classes().keys()


class TestCore:
    @pytest.mark.parametrize("name", CORE)
    def test_knows_no_option(self, name: str) -> None:
        """What trains, stores, judges or logs differently is one file, found by its YAML; the core has its base."""
        assert options_named(PACKAGE / name) == set()

    def test_options_are_found(self) -> None:
        assert {"ExponentialAverage", "WandB", "Replay", "CosineSchedule"} <= optional_classes().keys()

    @pytest.mark.parametrize(
        "line",
        [
            "from swapformer.training.averaging import ExponentialAverage",
            "if isinstance(callback, LastEvaluations): pass",
            "import swapformer.mirror as m\nm.WandB()",
            'if type(schedule).__name__ == "StableDecaySchedule": pass',
        ],
    )
    def test_the_rule_can_fail(self, line: str, tmp_path: Path) -> None:
        (tmp_path / "module.py").write_text(line)
        assert options_named(tmp_path / "module.py")


READERS = re.compile(r"\b(yaml\.(safe_|full_|unsafe_)?load(_all)?|OmegaConf\.load)\(")
"""Calls that read YAML, and would drop the first of two equal keys without a word."""


class TestYaml:
    def test_is_read_in_one_module_alone(self) -> None:
        paths = [*PACKAGE.rglob("*.py"), *(path for room in BESIDE.values() for path in room.rglob("*.py"))]
        found = {path.name for path in paths if READERS.search(path.read_text(encoding="utf-8"))}
        assert found == {"yaml_reader.py"}

    @pytest.mark.parametrize("line", ["yaml.safe_load(text)", "x = OmegaConf.load(path)", "yaml.load(t, Loader=L)"])
    def test_the_rule_can_fail(self, line: str) -> None:
        assert READERS.search(line)


class TestStoredFiles:
    def test_are_named_in_one_room_alone(self) -> None:
        paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] != "results"]
        found = {(str(path.relative_to(PACKAGE)), name) for path in paths for name in stored_names(path)}
        assert found == OTHER_MEANINGS.keys()

    @pytest.mark.parametrize(
        "line",
        [
            'folder / "record.json"',
            'path = f"{folder}/metrics.csv"',
            'folder.glob("*/heartbeat")',
            'x = "lock"',
            'raise ValueError("trial {} has no config.yaml that can be read")',
            'folder.joinpath("artifacts", name)',
        ],
    )
    def test_the_rule_against_names_of_stored_files_can_fail(self, line: str, tmp_path: Path) -> None:
        (tmp_path / "module.py").write_text(f'"""Reads record.json."""\n{line}\n')
        assert len(list(stored_names(tmp_path / "module.py"))) == 1


HANDED = {"topology": {"plan"}, "block": {"branches", "sublayer"}}
"""What is handed to a slot's parts beside the sizes and the parts that they use."""

NOT_CHOSEN = {
    "swapformer.model.pattern.Intersection": "what `a & b` makes",
    "swapformer.model.pattern.Union": "what `a | b` makes",
}
"""Classes of a slot that are made by other parts and so have no YAML."""


def nodes() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(slot, option, content) of every part's YAML."""
    for slot, option in every_part():
        yield slot, option, yaml.safe_load((conf_dir() / "model" / slot / f"{option}.yaml").read_text())


def within(node: object) -> Iterator[str]:
    """The targets of a node and of all nodes in it."""
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key == "_target_")
        for value in node.values():
            yield from within(value)


def base_of(slot: str) -> type:
    """The slot's base: the class that bears its name, such as `QKNorm` for qk_norm."""
    module = import_module(f"swapformer.model.{slot}")
    found = [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value) and name.lower() == slot.replace("_", "") and in_slot(value, slot)
    ]
    assert found, f"swapformer.model.{slot} must define the slot's base, a class with the slot's name"
    return found[0]


def in_slot(value: type, slot: str) -> bool:
    home = f"swapformer.model.{slot}"
    return value.__module__ == home or value.__module__.startswith(f"{home}.")


def classes(slot: str) -> list[type]:
    """The parts that the slot's module makes public, its base aside."""
    module, base = import_module(f"swapformer.model.{slot}"), base_of(slot)
    return [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, base) and value is not base and in_slot(value, slot)
    ]


def plain_types(hint: Any) -> set[Any]:
    """The types that an annotation is made of, the ranges of numbers aside."""
    if get_origin(hint) is Annotated:
        return plain_types(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return set(map(type, get_args(hint)))
    return set().union(*map(plain_types, get_args(hint))) if get_args(hint) else {hint}


class TestParts:
    def test_are_found_in_every_slot(self) -> None:
        assert {slot for slot, *_ in nodes()} == set(SLOTS)

    @pytest.mark.parametrize(("slot", "option", "node"), list(nodes()))
    def test_a_yaml_names_a_class_of_its_slot_and_holds_exactly_its_settings(
        self, slot: str, option: str, node: dict[str, Any]
    ) -> None:
        """A setting that the YAML leaves out could not be set; one that the class does not take would be refused.

        What an option chooses in other slots by `defaults` (`@_global_.`) is none of its settings.
        """
        module, _, name = node["_target_"].rpartition(".")
        assert module == f"swapformer.model.{slot}"
        assert (node["_partial_"], node["_convert_"]) == (True, "all")
        part = getattr(import_module(module), name)
        first, *rest = inspect.signature(part).parameters.values()
        assert first.name == ("plan" if slot == "topology" else "dims")
        assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in rest)
        given = set(getattr(part, "uses", ())) | HANDED.get(slot, set())
        settings = {parameter.name for parameter in rest} - given
        chosen = {
            key.partition("@")[2]
            for entry in node.get("defaults", ())
            if entry != "_self_"
            for key in entry
            if not key.startswith("override ") and "@_global_." not in key
        }
        assert chosen == set(getattr(part, "combines", ()))
        assert {key for key in node if not key.startswith("_") and key != "defaults"} | chosen == settings
        assert {key for key in node if key.startswith("_")} == {"_target_", "_partial_", "_convert_"}

    def test_a_yaml_of_a_list_of_parts_stands_under_its_own_name(self) -> None:
        """Hydra puts an extension where the first line of its file says; layers and checks go by the file's name."""
        files = sorted((conf_dir() / "model" / "extension").glob("*.yaml"))
        found = {path.stem: path.read_text(encoding="utf-8").splitlines()[0] for path in files}
        assert found == {name: f"# @package model.extension.{name}" for name in found}

    @pytest.mark.parametrize(("slot", "option"), every_part())
    def test_settings_are_plain_typed_values(self, slot: str, option: str) -> None:
        """Parts that a part is made of aside: those are nodes of their own."""
        node = yaml.safe_load((conf_dir() / "model" / slot / f"{option}.yaml").read_text())
        part = getattr(import_module(f"swapformer.model.{slot}"), node["_target_"].rpartition(".")[2])
        for name, parameter in inspect.signature(part).parameters.items():
            if name in node and not list(within(node[name])):
                assert plain_types(hints_of(part)[name]) <= {bool, int, float, str, type(None)}, (part, parameter)

    @pytest.mark.parametrize(
        "slot",
        [*SLOTS],
    )
    def test_are_abstract_or_final(self, slot: str) -> None:
        """A part inherits from its slot's base and from nothing else of the slot."""
        base = base_of(slot)
        above = {parent.__module__.split(".")[0] for parent in base.__bases__ if parent not in (Declared, Tapped)}
        assert above <= {"torch", "abc", "builtins"}
        assert {part.__qualname__: part.__bases__ for part in classes(slot) if part.__bases__ != (base,)} == {}

    @pytest.mark.parametrize("slot", [slot for slot in SLOTS if slot != "topology"])
    def test_have_a_yaml(self, slot: str) -> None:
        """A class that no YAML names cannot be swept, and no law is held against it."""
        named = {target for own, _, node in nodes() if own == slot for target in within(node)}
        found = {f"swapformer.model.{slot}.{part.__qualname__}" for part in classes(slot)}
        assert found - NOT_CHOSEN.keys() <= named


ASKED = {
    ("plan.py", "partial"): "a factory with or without settings, not a part",
    ("layers.py", "Origin"): "an attribute of unknown type, checked before it is believed",
    ("block.py", "Sublayer"): "narrows what nn.ModuleList returns; no decision hangs on it",
    ("stack.py", "Layer"): "narrows what nn.ModuleList returns; no decision hangs on it",
    ("stack.py", "Stack"): "finds the stacks of a model, which is no part",
    ("layers.py", "nn.Parameter"): "an attribute of unknown type, checked before it is believed",
    ("own.py", "nn.Module"): "what a constructor of the user's gave, which is no part",
    ("own.py", "Tensor"): "what a module of the user's gave: logits, or something that has them",
    ("ops.py", "CountedFor"): "finds the mode that says for which device operations are counted, which is no part",
    ("own.py", "Mapping"): "what a module of the user's gave: logits, or something that has them",
}
"""The `isinstance` of model/: file and class, and why it is no question about a part."""


def asked(path: Path) -> Iterator[str]:
    """The classes that a file asks for: by isinstance, issubclass, `case Class():` or a comparison of types."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("isinstance", "issubclass"):
                yield ast.unparse(node.args[1])
        elif isinstance(node, ast.MatchClass):
            yield ast.unparse(node.cls)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            yield from (ast.unparse(side) for side in sides if re.match(r"type\(|.*\.__class__", ast.unparse(side)))


MUTATORS = {"append", "add", "extend", "insert", "setdefault", "update", "pop", "popitem", "clear", "remove", "discard"}
CONTAINERS = {"dict", "list", "set", "defaultdict", "OrderedDict", "Counter", "deque", "WeakKeyDictionary"}


def empty_container(value: ast.expr | None) -> bool:
    """Whether an expression makes a container that waits to be filled."""
    if isinstance(value, ast.Dict | ast.List | ast.Set):
        return not (value.keys if isinstance(value, ast.Dict) else value.elts)
    return isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in CONTAINERS


def state_outside_instances(path: Path) -> Iterator[str]:
    """Where a file keeps, or could keep, something between instances."""
    module = tree(path)
    owners: list[ast.Module | ast.ClassDef] = [
        module,
        *(node for node in ast.walk(module) if isinstance(node, ast.ClassDef)),
    ]
    names = set()
    for owner in owners:
        for node in owner.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
                if empty_container(node.value):
                    yield f"line {node.lineno}: {ast.unparse(node)}"
    for node in ast.walk(module):
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if re.search(r"\b(lru_cache|cache)\b", ast.unparse(decorator)):
                    yield f"line {node.lineno}: @{ast.unparse(decorator)} {node.name}"
        written = None
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            written = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            written = node.func.value
        if isinstance(written, ast.Name) and written.id in names:
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_public_classes_have_names_of_their_own() -> None:
    """Parts of different slots aside: `model/activation=identity` and `model/norm=none` may both be an Identity."""
    homes: dict[str, list[str]] = {}
    for module, path in modules().items():
        slot = module.removeprefix("swapformer.model.").split(".")[0]
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(slot if slot in SLOTS else module)
    assert sum(map(len, homes.values())) > len(SLOTS), "classes are found"
    shared = {name: found for name, found in homes.items() if len(found) > 1}
    assert {
        name: found for name, found in shared.items() if len(set(found)) < len(found) or set(found) - set(SLOTS)
    } == {}


def test_a_report_never_asks_which_kind_a_claim_has() -> None:
    """A kind is one class, found by its `KINDS`; only these classes read `kind`, and the JSON report names it."""
    own = {"claims.py", "comparisons.py", "contrasts.py", "ladder_claims.py", "to_json.py"}
    asks = re.compile(
        r"claim\.kind\b|isinstance\([^)]*\b(?:Diverges|Reaches|Contrast|Slope|Optimum|Trend|SpeedUp)Claim"
    )
    found = [
        path.name for room in ("report", "study", "mirror") for path in sources(room) if asks.search(path.read_text())
    ]
    assert set(found) - own == set()
    assert asks.search('if claim.kind == "slope":'), "the planted fault"


class TestModel:
    def test_never_asks_which_part_it_has(self) -> None:
        """Parts state facts, and one function for each rule reads them; plain values may be asked; ASKED: what else."""
        found = {(path.name, name) for path in sources("model") for name in asked(path)}
        about_values = {
            (file, names)
            for file, names in found
            if all(isinstance(getattr(builtins, word, None), type) for word in re.findall(r"\w+", names))
        }
        assert found - about_values == ASKED.keys()

    def test_keeps_nothing_outside_its_instances(self) -> None:
        wrong = [f"{path.name}, {place}" for path in sources("model") for place in state_outside_instances(path)]
        assert not wrong, "\n".join(wrong)

    @pytest.mark.parametrize(
        "line",
        [
            "CACHE = {}",
            "CACHE: dict[str, int] = dict()",
            "class A:\n    cache: ClassVar[dict] = {}",
            "T = {1: 2}\ndef f(x): T[x] = 3",
            "T = [1]\ndef f(x): T.append(x)",
            "@lru_cache(maxsize=None)\ndef f(x): return x",
            "@functools.cache\ndef f(x): return x",
            "x = 1\ndef f():\n    global x\n    x = 2",
        ],
    )
    def test_the_rule_against_state_can_fail(self, line: str, tmp_path: Path) -> None:
        (tmp_path / "part.py").write_text(line)
        assert list(state_outside_instances(tmp_path / "part.py"))


def undocumented(path: Path) -> Iterator[str]:
    """Public classes and functions of a module, and the module itself, that say nothing."""
    if tree(path).body and ast.get_docstring(tree(path)) is None:
        yield str(path.relative_to(PACKAGE))
    for node in tree(path).body:
        public = isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        if public and ast.get_docstring(node) is None:
            yield f"{path.relative_to(PACKAGE)}: {node.name}"


@pytest.mark.parametrize("room", [*ROOMS])
def test_public_names_have_docstrings(room: str) -> None:
    assert [name for path in sources(room) for name in undocumented(path)] == []


ACROSS_MODULES = {
    "conformance": "every part against every law, and every law against planted faults",
    "evidence": "every two options, and random damage: what is slow and rarely wrong",
    "hostile": "damaged stores, settings, study files and command lines, against every command",
    "oracles": "other people's code computes the same",
    "measure/test_decode_and_step.py": "what is timed of a whole model",
    "docs/test_commands.py": "every command that a page names",
    "measure/test_measured_trials.py": "measurements in the store, in studies and in reports",
    "report/statistics/test_look_rules.py": "looks one rule at a time, of whichever module",
    "model/test_fixup.py": "Fixup's multipliers and biases: an initialisation, a block and a norm",
    "model/test_implied_weights.py": "weights of attentions without scores",
    "model/test_variance_by_depth.py": "how stream and gradients grow with depth, by initialisation and placement",
    "model/test_position_parts.py": "position encodings within a model",
    "report/test_hostile_names.py": "names from a study file, in all that is written and printed",
    "report/statistics/test_simulation.py": "error rates of all the statistics, by simulation",
    "model/kernel/test_shared_heads.py": "keys and values that heads share, in every kernel and in the cache",
    "study/test_looks_and_grids.py": "a study from question to answer",
    "study/test_matched_settings.py": "`match` beside `grid` and `tune`",
    "study/config/test_presets.py": "every preset of conf/",
    "study/launch/test_torchrun.py": "a trial on several devices within a study",
    "report/statistics/test_paths.py": "the error is spent once, on every path",
    "task/test_extrapolation.py": "lengths beyond those trained",
    "task/test_future.py": "nothing from the future, in any task",
    "task/test_labels.py": "every label of every synthetic task",
    "task/test_laws.py": "what every synthetic task has in common",
    "task/test_purity.py": "batches are functions of seed and step",
    "task/test_shared_files.py": "no task trains on what another one judges",
    "task/test_sliding.py": "windows that overlap",
    "task/test_tasks.py": "what each synthetic task promises of its items",
    "training/test_evaluation.py": "what is evaluated, whatever trains it",
    "training/test_durable.py": "checkpoints and power cuts",
    "training/test_execution.py": "checkpointing, compilation and precision",
    "training/test_objective.py": "hidden tokens, pairs and spans, trained and measured",
    "training/test_kinds_of_answers.py": "every kind of task",
}
"""Tests that are about no single module, and what they are about; all others bear a module's name."""


def test_a_file_of_tests_bears_the_name_of_the_module_that_it_tests() -> None:
    """tests/ROOM/…/test_NAME.py is about a module or a package NAME in that room or further down in it."""
    tests = ROOT / "tests"
    strange = []
    for path in sorted(tests.glob("*/**/test_*.py")):
        file, name = path.relative_to(tests), path.stem.removeprefix("test_")
        room = (ROOT if file.parts[0] in ("benchmarks", "docs") else PACKAGE) / file.parent
        if not any(name == found.stem for found in room.rglob("*") if found.is_dir() or found.suffix == ".py"):
            strange.append(file)
    across = {file.parts[0] if file.parts[0] in ACROSS_MODULES else str(file) for file in strange}
    assert across == ACROSS_MODULES.keys()


PLACES = re.compile(r"(conf|src|tests|experiments|docs|\.ci)/|[\w.-]+/$|(Makefile|[A-Z]+\.md|[\w-]+\.(toml|txt))$")
"""What among the words in backticks is a path of this repository."""
ELSEWHERE = re.compile(
    r"runs/|results/|my_|conf/(model/position/clipped|probes/attention_share)\.yaml|(?!constraints)[a-z_]+\.txt$"
)
"""What is made by commands, or where the user works."""


def named_paths(text: str) -> set[str]:
    """Paths that a page names: the targets of its links, and its words in backticks that look like one."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    words = {word for word in re.findall(r"`([^`\s]+)`", prose) if PLACES.match(word) and not ELSEWHERE.match(word)}
    return links(prose) | words


def links(text: str) -> set[str]:
    """The targets of a page's links within the repository."""
    return {link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link}


PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]


def missing_paths(page: Path, text: str) -> list[str]:
    """The paths that a page names and that do not exist.

    `NN_name` and `<…>` stand for any name; a link begins at the page's folder, and a room of the package may be named
    without the way to it.
    """
    patterns = {name: re.sub(r"NN_name|<[^>]*>", "*", name).rstrip("/") for name in named_paths(text)}
    starts = (ROOT, PACKAGE)
    return sorted(
        name
        for name, pattern in patterns.items()
        if not (page.parent / pattern).exists() and not any(next(start.glob(pattern), None) for start in starts)
    )


@pytest.mark.parametrize("page", PAGES)
def test_paths_that_a_page_names_exist(page: str) -> None:
    """Files that a walk writes, each a line of its own above what it holds, need not exist."""
    text = re.sub(r"(?m)^`[^`\n]+`\n\n```", "```", (ROOT / page).read_text(encoding="utf-8"))
    assert missing_paths(ROOT / page, text) == []
    wrong = f"{text}\nsee [it](guides/nowhere.md) and `src/swapformer/nowhere.py`\n"
    assert missing_paths(ROOT / page, wrong) == ["guides/nowhere.md", "src/swapformer/nowhere.py"]


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == swapformer.__version__ and cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "license"} <= set(cited)


def test_the_pinned_versions_install_on_the_oldest_python() -> None:
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "requires-python"
    ].removeprefix(">=")
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M))
    found = {one.name.lower().replace("_", "-"): one for one in metadata.distributions()}
    wants = {
        name: found[name].metadata.get("Requires-Python") or ""
        for name, version in pinned.items()
        if name in found and found[name].version == version
    }
    assert len(wants) > len(pinned) / 2, "too few of the pinned packages are installed to say anything"
    assert {name: want for name, want in wants.items() if f"{oldest}.0" not in SpecifierSet(want)} == {}


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, rest = set(), [ROOT / "README.md"]
    while rest:
        page = rest.pop().resolve()
        if page.suffix == ".md" and page not in seen:
            seen.add(page)
            rest += [page.parent / link for link in links(page.read_text(encoding="utf-8"))]
    assert {str(path.relative_to(ROOT)) for path in seen} >= set(PAGES)


def test_no_file_names_a_place_outside_the_repository() -> None:
    """Paths of the machine that a file was made on help nobody else."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout, so there is no list of what belongs to the repository")
    strange = ("/" + "work/", "shared" + "/corpora", "/home" + "/", str(ROOT))
    wrong = []
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            text = (ROOT / name).read_text(encoding="utf-8", errors="ignore")
            wrong += [f"{name} holds {word}" for word in strange if word in text]
    assert wrong == []
