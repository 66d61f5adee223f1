"""A configuration from anywhere runs no code of packages that the user has not allowed."""

from __future__ import annotations

import importlib
import math
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import yaml

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.mirror.process import make_destination
from swapformer.paths import conf_dir
from swapformer.ranges import Declared, hints_of
from swapformer.study.config.compose import check, compose
from swapformer.study.config.hydra_errors import explained
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.ray import RayLauncher
from swapformer.study.launch.slurm import SlurmLauncher
from swapformer.targets import (
    VARIABLE,
    find,
    require_known,
    source_files,
    targets,
    unlisted_imports,
    unseen_code,
)
from swapformer.training.assemble import build_plan
from swapformer.training.fit import fit
from swapformer.training.weights import restore

HARM = "import pathlib\npathlib.Path(__file__).with_name('harmed').touch()\nclass Mine:\n    pass\n"


@pytest.fixture
def harmful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that leaves a file where it is imported."""
    (tmp_path / "harmful.py").write_text(HARM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "harmed"


@pytest.mark.parametrize(
    "override",
    ["model.position._target_", "task._target_", "optim._target_", "schedule._target_", "+probes.x._target_"],
)
def test_a_study_file_cannot_have_a_strange_package_imported(
    override: str, harmful: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "question: x\nbaseline: a\n"
        f"arms: {{a: [task=copy], b: [task=copy, '{override}=harmful.Mine']}}\nseeds: 1\nmetrics: [val/loss]\n"
    )
    assert main(["study", str(study), f"runs_dir={tmp_path / 'runs'}"]) == 2
    said = capsys.readouterr().err
    assert "harmful.Mine; if you trust it: SWAPFORMER_PACKAGES=harmful before the command" in said
    assert not harmful.exists()


def test_neither_can_a_trial_of_somebody_elses_nor_a_logger(harmful: Path, tmp_path: Path) -> None:
    config: dict[str, Any] = compose(["task=copy"])
    config["model"]["ffn"]["_target_"] = "harmful.Mine"
    for use in (lambda: fit(config, tmp_path), lambda: restore(config, tmp_path)):
        with pytest.raises(UsageError, match=r"harmful\.Mine"):
            use()
    with pytest.raises(UsageError, match=r"harmful\.Mine"):
        make_destination({"_target_": "harmful.Mine"})
    assert not harmful.exists()


def test_what_the_user_names_is_allowed_and_nothing_that_only_begins_like_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "sub.py").write_text("class Part:\n    class Nested:\n        pass\n\ndef rule():\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    node = {"a": [{"_target_": "mine.sub.Part"}], "b": {"_target_": "torch.optim.SGD"}}
    assert list(targets(node)) == ["mine.sub.Part", "torch.optim.SGD"]
    monkeypatch.setenv(VARIABLE, "other, mine")
    require_known(node)
    assert find("mine.sub.Part.Nested").__qualname__ == "Part.Nested"
    assert find("mine.sub.rule").__name__ == "rule"
    for strange in ("miner.Part", "swapformerish.X", "os.system"):
        with pytest.raises(UsageError, match="if you trust it"):
            require_known({"_target_": strange})
    with pytest.raises(UsageError, match=r"the configuration has torch\.hub\.load$"):
        require_known({"_target_": "torch.hub.load"})
    with pytest.raises(UsageError, match="something else"):
        find("mine")


@pytest.mark.parametrize(
    "name",
    [
        # through what an allowed module has imported
        "torch.nn.modules.module.torch.hub.load",
        "torch.nn.functional.torch.load",
        "torch.nn.modules.module.functools.partial",
        "torch.optim.optimizer.torch.jit.load",
        "torch.nn.torch.utils.cpp_extension.load",
        "swapformer.mirror.process.subprocess.check_call",
        "swapformer.mirror.process.os.system",
        "swapformer.mirror.wandb_runs.import_module",
        "swapformer.mirror.wandb_runs.Path",
        "swapformer.model.layers.nn.Linear",
        "swapformer.task.tokeniser.trained.find",
        "swapformer.targets.import_module",
        "lion_pytorch.lion_pytorch.torch.hub.load",
        # what swapformer and torch define, but not for configurations
        "swapformer.study.launch.remote_job.library",
        "swapformer.study.launch.remote_job.Job",
        "swapformer.training.torchrun.main",
        "swapformer.probes.replay",
        "swapformer.mirror.process.make_destination",
        "swapformer.model.pattern.function.states",
        "torch.nn.functional.relu",
        "torch.nn.init.normal_",
        "torch.nn.parallel.data_parallel",
        "torch.nn.Parameter",
        # what is reached through a class, or runs by being imported
        "swapformer.mirror.WandB.open",
        "swapformer.mirror.WandB.__init__",
        "swapformer.mirror.WandB.open.__globals__",
        "torch.nn.Module.__subclasses__",
        "torch.nn.Module.load_state_dict",
        "swapformer.mirror.__main__.main",
        "swapformer.mirror.process",
        "swapformer.mirror",
        "swapformer",
        "",
        ".",
        "swapformer.model..position",
        "swapformer.model.position.None",
    ],
)
def test_a_name_leads_to_no_code_but_classes_of_the_allowed_packages(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(UsageError, match="`_target_"):
        find(name)
    assert not any(module.startswith("swapformer.") and module.endswith("__main__") for module in sys.modules)


def test_what_a_package_of_the_users_has_imported_needs_the_users_word_too(
    harmful: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kind.py").write_text("from subprocess import Popen\nimport subprocess\n")
    monkeypatch.setenv(VARIABLE, "kind")
    with pytest.raises(UsageError, match=r"has kind\.Popen, which is subprocess\.Popen; if you trust it"):
        find("kind.Popen")
    with pytest.raises(UsageError, match="something else"):
        find("kind.subprocess.Popen")


def test_every_option_of_conf_names_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    files = [path for path in conf_dir().rglob("*.yaml") if path.relative_to(conf_dir()).parts[0] != "hydra"]
    names = {name for path in files for name in targets(yaml.safe_load(path.read_text(encoding="utf-8")))}
    names.remove("???")  # of model=own, which names the user's
    assert len(names) > 150
    for name in names:
        assert find(name).__name__ == name.rpartition(".")[2]


def test_a_setting_outside_its_declared_range_is_refused_in_python_too() -> None:
    """Each class of conf that is a part, a task, a source, a probe …: just outside an end of each interval."""
    paths = [path for room in ("model", "task", "probes", "measure") for path in (conf_dir() / room).rglob("*.yaml")]
    made = {find(name) for path in paths for name in targets(yaml.safe_load(path.read_text("utf-8"))) if name != "???"}
    refused, others = 0, {"HuggingFaceModel", "same_remainder"}  # of another library, and a function
    for part in sorted((one for one in made if one.__name__ not in others), key=lambda one: one.__qualname__):
        assert issubclass(part, Declared), part
        for name, hint in hints_of(part).items():
            for given in ["a word"] if hint is bool else _outside(hint):
                with pytest.raises(UsageError, match=f"`{name}` must be"):
                    part(**{name: given})
                refused += 1
    assert refused > 200


def _outside(hint: Any) -> Iterator[float]:
    """The numbers just outside the interval of a setting that is a number, whole where it is."""
    for each in (hint, *get_args(hint)):
        if get_origin(each) is Annotated and get_args(each)[0] in (int, float):
            kind, interval = get_args(each)[0], get_args(each)[1].interval
            low, high = map(float, interval[1:-1].split(","))
            yield kind(low - (interval[0] == "["))
            if math.isfinite(high):
                yield kind(high + (interval[-1] == "]"))


def test_marks_of_the_users_own_on_a_type_are_no_obstacle() -> None:
    class Mine(Declared):
        def __init__(self, *, size: Annotated[int, ["what it is for"]]) -> None:
            self.size = size

    assert Mine(size=3).size == 3
    with pytest.raises(UsageError, match="`size` must be a whole number"):
        Mine(size="three")  # type: ignore[arg-type]


def test_every_type_of_ours_can_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """A dataclass inherits fields whose types are known where its base is, and others are for type checkers only."""
    hints_of.cache_clear()
    paths = [path for path in conf_dir().rglob("*.yaml") if path.relative_to(conf_dir()).parts[0] != "hydra"]
    made = {find(name) for path in paths for name in targets(yaml.safe_load(path.read_text("utf-8"))) if name != "???"}
    for each in (*made, LocalLauncher, RayLauncher, SlurmLauncher):
        hints_of(each)
    assert not caplog.records


def test_a_range_that_is_misspelt_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "misspelt.py").write_text(
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        "from swapformer.ranges import Count, Declared\nif TYPE_CHECKING:\n    from torch import Tensor\n\n\n"
        "class Mine(Declared):\n"
        "    def __init__(self, *, size: Cuont, heads: Count, start: Tensor | None = None) -> None:\n        pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = importlib.import_module("misspelt").Mine
    mine(size=-1, heads=2, start=3)
    mine(size=-1, heads=2)
    with pytest.raises(UsageError, match="`heads` must be"):
        mine(size=1, heads=0)
    assert [each.getMessage() for each in caplog.records] == [
        "the type of `size` of Mine cannot be read (name 'Cuont' is not defined), so its values are not checked"
    ]


def test_a_class_stands_only_where_its_kind_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a Destination here, but torch\.nn\.Linear is not one"):
        make_destination({"_target_": "torch.nn.Linear", "in_features": 1, "out_features": 1})
    config = compose(["task=copy"])
    config["task"] = config["schedule"]
    with pytest.raises(UsageError, match="a Task here"):
        fit(config, tmp_path)


@pytest.mark.parametrize("hidden", ["${oc.create:'{_target_: harmful.Mine}'}", "${oc.env:HOME}"])
def test_nothing_is_left_for_hydra_to_resolve_when_a_thing_is_made(hidden: str, harmful: Path, tmp_path: Path) -> None:
    config = compose(["task=copy"])
    config["task"]["place"] = hidden
    with pytest.raises(UsageError, match="`place` must be resolved"):
        fit(config, tmp_path)
    assert not harmful.exists()


def test_parts_of_single_layers_are_looked_at_too(harmful: Path) -> None:
    """They are read from options of their own, after the task has been made."""
    config = compose(["task=copy", "model.layers=[{at: 0, ffn: glu}]"])
    config["model"]["layers"][0]["ffn"]["_target_"] = "harmful.Mine"
    for use in (check, lambda config: build_plan(config, 11)):
        with pytest.raises(UsageError, match=r"harmful\.Mine; if you trust it"):
            use(config)
    assert not harmful.exists()


@pytest.mark.parametrize(
    "path", ["[pkg://harmful]", "['pkg://harmful']", "[pkg\\://harmful]", "[/tmp,pkg://harmful/conf]"]
)
def test_a_package_to_look_for_options_in_needs_the_users_word(path: str, harmful: Path) -> None:
    with pytest.raises(UsageError, match="SWAPFORMER_PACKAGES=harmful before the command"):
        compose([f"hydra.searchpath={path}", "task=copy"])
    assert not harmful.exists()


QUITS = """
import sys
from swapformer.model.block import Sequential

class Quits(Sequential):
    def __init__(self, dims, **settings):
        sys.exit(0)
"""


@pytest.mark.parametrize(
    ("content", "said"), [("import sys\nsys.exit(0)\n", "SystemExit: 0"), (QUITS, r"called sys.exit\(0\)")]
)
def test_a_part_that_quits_is_refused_instead_of_ending_the_command_as_if_all_were_well(
    content: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"quits_{len(content)}"
    (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(VARIABLE, name)
    with pytest.raises(UsageError, match=said):
        check(compose(["task=copy", f"model.block._target_={name}.Quits"]))


def test_hydra_has_a_list_of_what_it_never_calls_beneath_ours() -> None:
    """Version 1.3.8 is the first with that list."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (asked,) = [line for line in project["dependencies"] if line.startswith("hydra-core")]
    assert asked == "hydra-core>=1.3.8,<1.4"


def test_a_class_that_leaves_methods_open_is_told_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also a part, which is built as a factory."""
    (tmp_path / "unfinished.py").write_text(
        "from swapformer.model.norm import Norm\nfrom swapformer.task import Task\n"
        "class Mine(Task):\n    def fingerprint(self):\n        return 'x'\n"
        "class Scale(Norm):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(VARIABLE, "unfinished")
    assert main(["train", "task=copy", "task._target_=unfinished.Mine", f"runs_dir={tmp_path / 'runs'}"]) == 2
    said = capsys.readouterr().err
    assert "unfinished.Mine must define what Task leaves open: " in said and "fingerprint" not in said
    assert "evaluation, " in said and "`def evaluation(self, split: " in said and "abstract class" not in said
    assert main(["train", "task=copy", "model.norm._target_=unfinished.Scale", f"runs_dir={tmp_path / 'runs'}"]) == 2
    assert "unfinished.Scale must define what Norm leaves open" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("self", "Mine.__init__ must take 'expansion'"),
        ("self, *, expansion", "Mine.__init__ must take what its slot passes|must take 'activation'"),
    ],
)
def test_a_part_that_takes_other_arguments_is_told_which(
    source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "argless.py").write_text(
        f"from swapformer.model.ffn.base import FFN\nclass Mine(FFN):\n"
        f"    def __init__({source}): super().__init__()\n"
        "    def forward(self, x, padding=None): return x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(VARIABLE, "argless")
    sys.modules.pop("argless", None)
    config: dict[str, Any] = compose(["task=copy"])
    config["model"]["ffn"] = {"_target_": "argless.Mine", "_partial_": True, "expansion": 2}
    with pytest.raises(UsageError, match=message):
        check(config)


def test_what_names_no_class_or_no_key_is_told_so() -> None:
    with pytest.raises(UsageError, match=r"`logger` must name a class by `_target_`, but it has none"):
        make_destination({"api_key": "0"})
    with pytest.raises(UsageError, match=r"seed must refer to a key .* Hydra's own settings are no part"), explained():
        compose(["task=copy", "seed=${hydra.runtime.cwd}"])


def test_modules_that_are_imported_by_name_are_part_of_an_id_and_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named_here").mkdir()
    (tmp_path / "named_here" / "__init__.py").touch()
    (tmp_path / "named_here" / "by_name.py").write_text("x = 1\n")
    (tmp_path / "beside.py").write_text("y = 1\n")
    (tmp_path / "named_here" / "part.py").write_text(
        "import json, importlib\nfrom beside import y\nimport numpy\n"
        "other = importlib.import_module('named_here.by_name')\nclass Part:\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(VARIABLE, "named_here")
    assert set(source_files("named_here.part")) == {"named_here.part", "named_here.by_name"}
    assert unseen_code({"a": {"_target_": "named_here.part.Part"}}) == ["beside.py"]
    (tmp_path / "named_here" / "made.py").write_text(
        "import importlib\nclass Part:\n    at = importlib.import_module('named_' + 'here')\n"
    )
    assert unseen_code({"_target_": "named_here.made.Part"}) == [
        "what made.py imports by a name that it makes while it runs"
    ]
    assert unseen_code({"_target_": "torch.optim.SGD"}) == []


def test_files_that_a_script_imports_and_nobody_listed_are_named(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import deeper\n")
    (tmp_path / "deeper.py").write_text("import json\n")
    script = tmp_path / "train.py"
    script.write_text("import helper\nimport numpy\n")
    assert unlisted_imports(script, [script]) == ["helper.py", "deeper.py"]
    assert unlisted_imports(script, [script, tmp_path / "helper.py", tmp_path / "deeper.py"]) == []
