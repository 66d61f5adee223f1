"""Every numeric setting of every YAML in conf, with values that nobody means: refused, or named here as meaningful."""

from __future__ import annotations

import copy
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.errors import InstantiationException
from omegaconf import OmegaConf

from hydra_plugins.swapformer.sweeper import StudySweeper
from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.ranges import Count, Natural, Positive, check, check_settings, fits, hints_of
from swapformer.study.config.choices import hydra_config
from swapformer.study.config.rules.settings import types_of
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.ray import RayLauncher
from swapformer.study.launch.slurm import SlurmLauncher
from swapformer.targets import complaints, make
from swapformer.task.base import Task

ODD = {
    "nan": math.nan, "inf": math.inf, "-1": -1, "0": 0, "1e23": 1e23, "10^23": 10**23, "true": True, "text": "4",
    "null": None,
}  # fmt: skip
LAUNCHERS = {"local": LocalLauncher, "ray": RayLauncher, "slurm": SlurmLauncher}
GIVEN = {"preset/nanogpt_cpu": (f"task.source.path={__file__}",)}
"""What has no default."""
LONGEST = 300
"""Characters of a message."""

MEANINGFUL = [
    # null is worked out, left out or without bound: a comment of the YAML or the docstring of the class says which
    ("model/attention/*", "num_kv_heads", "null"),
    ("model/attention/mla*", "query_rank value_dim norm_eps", "null"),
    ("model/attention/nystrom", "convolution", "null"),
    ("model/ffn/*", "expansion width clip", "null"),
    ("model/residual/hyper_connections", "dynamic", "null"),
    ("model/pattern/dilated", "before", "null"),
    ("model/pattern/*_*", "patterns.far.before", "null"),
    ("train", "model.head_dim model.max_len model.encoder.num_layers budget.* optim.base checkpoint_every", "null"),
    ("optim/adafactor", "eps.0", "null"),
    ("model/depth/early_exit", "threshold", "null 0"),
    ("measure/decode", "prefills", "null"),
    ("measure/command", "minutes", "null"),
    ("probes/harness", "harness.include_path harness.num_fewshot harness.limit", "null"),
    ("task/*", "distinct queries train_samples stride min_count season eval_batch_size", "null"),
    ("task/source/shards", "end", "null 0"),
    ("hydra/sweeper/*", "max_batch_size", "null"),
    ("hydra/launcher/*", "slots slots_per_gpu time_limit num_cpus num_gpus cpus_per_task gpus_per_node mem_gb", "null"),
    # 0 is none of it
    ("measure/*", "warm_up ridges.?", "0"),
    ("probes/harness", "harness.num_fewshot", "0"),
    ("train", "budget.steps", "0"),
    ("preset/*", "budget.steps", "0"),
    ("model/pattern/*", "before after random_before random_after first last", "0"),
    ("model/extension/*", "previous_loss.? local_loss.? global_loss.? weight share", "0"),
    ("model/ffn/*", "balance", "0"),
    ("model/position/rope_yarn", "temperature", "0"),
    ("model/residual/weighted", "alpha", "0"),
    ("optim/*", "weight_decay momentum betas.?", "0"),
    ("schedule/*", "warmup_steps final", "0"),
    ("trainer/*", "gradient_clip_val", "0"),
    ("task/*", "distractors split.2 masked random", "0"),
    ("model/pattern/*", "ahead patterns.*.ahead", "0"),
    ("probes/activation_sparsity", "activation_sparsity.threshold", "0"),
    # a tag may have any number, the first sequence and the first series are number 0, and every area is at least 0
    ("model/pattern/*", "patterns.*.value", "-1 0"),
    ("probes/pattern_mask", "pattern_mask.sequence", "0"),
    ("probes/unit_classes", "unit_classes.area", "0"),
    ("task/seasons", "delay series", "0"),
    ("hydra/launcher/*", "retries timeouts signal_delay num_gpus gpus_per_node", "0"),
    ("train", "model.dropout", "0"),
    ("preset/*", "budget.steps task.eval_batch_size", "null"),
    ("preset/*", "model.dropout optim.weight_decay optim.betas.? schedule.final task.split.?", "0"),
    ("preset/nanogpt_cpu", "schedule.warmup_steps trainer.gradient_clip_val", "0"),
    ("preset/grokking", "schedule.warmup_steps", "0"),
    # names among names, which begin at 0
    ("*", "seed data_seed", "0"),
    ("model/*", "heads.? exits.? places.? *.places.?", "0"),
    ("task/fact_recall", "table", "0"),
    ("probes/early_exit", "*.thresholds.?", "0"),
    ("model/pattern/code", "patterns.reach.patterns.definitions.value", "-1 0"),
    # exponents, and factors of either sign
    ("model/score/*", "exponent", "-1 0"),
    ("model/position/cope", "gate_exponent", "-1 0"),
    ("model/normaliser/*", "start", "-1 0"),
    ("model/normaliser/sigmoid", "power", "0"),
    ("model/residual/*", "start stream stream_power branch branch_power", "-1 0"),
    ("preset/fixup", "model.residual.start", "-1 0"),
    ("optim/adafactor", "beta2_decay", "-1 0"),
    # what these tasks refuse themselves, once they have their text
    ("task/*", "split.? rate", "0"),
    # operations and tokens of a long training
    ("train", "budget.tokens budget.flops", "1e23 10^23"),
]
"""Files, settings, and which of the odd values are meaningful there."""


def numbers(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every number of a configuration, and to every null."""
    if isinstance(node, Mapping | list):
        for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from numbers(value, (*path, key))
    elif node is None or (isinstance(node, int | float) and not isinstance(node, bool)):
        yield path


@cache
def read(name: str) -> dict[str, Any]:
    """What a file of conf sets itself."""
    held = OmegaConf.to_container(OmegaConf.load(conf_dir() / f"{name}.yaml")) or {}
    assert isinstance(held, dict)
    return {str(key): value for key, value in held.items() if key not in ("defaults", "hydra")}


@cache
def composed(*overrides: str) -> dict[str, Any]:
    config = OmegaConf.to_container(hydra_config("train", overrides), resolve=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


FILES = sorted(
    name
    for name in (path.relative_to(conf_dir()).with_suffix("").as_posix() for path in conf_dir().rglob("*.yaml"))
    if any(numbers(read(name)))
)


def whole(name: str) -> tuple[dict[str, Any], str]:
    """The configuration in which the settings of a file stand, and the key under which that stands."""
    folder, _, option = name.rpartition("/")
    if folder in ("", "preset"):
        return composed(*([f"+preset={option}"] if folder else []), *GIVEN.get(name, ())), ""
    return read(name), "model" if folder == "model/size" else folder.replace("/", ".")


def refusals(name: str, config: Mapping[str, Any], where: str, setting: str) -> list[str]:
    """What is said of a setting before anything is built; of a task also what it says itself, if it needs no text."""
    try:
        if name.startswith("hydra/"):
            kind = LAUNCHERS.get(name.rpartition("/")[2])
            check_settings(kind or StudySweeper, config, where)
            check(Natural, config.get("retries", 0), "hydra.launcher.retries")
            return []
        optim = config if where == "optim" else config.get("optim", {})
        found = list(complaints(config, types_of(optim), where))
        task = config if where == "task" else config.get("task") if setting.startswith("task.") else None
        if task is not None and not found:
            make(task, Task, "task")
    except UsageError as error:
        return [str(error)]
    except InstantiationException as error:
        if isinstance(error.__cause__, UsageError):
            return [str(error.__cause__)]
        assert re.search(r"missing .* '(source|tokeniser)'", str(error)), error
    return [message for message in found if f"{setting.partition('.')[0]}" in message]


def changed(config: Mapping[str, Any], path: tuple[Any, ...], value: object) -> dict[str, Any]:
    found = copy.deepcopy(dict(config))
    holder: Any = found
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return found


def meaningful(name: str, setting: str) -> set[str]:
    return {
        odd
        for files, settings, values in MEANINGFUL
        if fnmatch(name, files)
        for pattern in settings.split()
        if fnmatch(setting, pattern) or setting.rpartition(".")[2] == pattern
        for odd in values.split()
    }


@pytest.mark.parametrize("name", FILES)
def test_a_number_that_nobody_means_is_refused_in_one_line_or_stands_in_the_table(name: str) -> None:
    config, where = whole(name)
    wrong = defaultdict(list)
    for path in numbers(read(name)):
        setting = ".".join(map(str, path))

        def said(value: object, path: tuple[Any, ...] = path, setting: str = setting) -> list[str]:
            return refusals(name, changed(config, path, value), where, setting)

        if reduce(getitem, path, read(name)) is None and (not said("a word") or (said(3) and said(0.5))):
            continue  # no number
        for odd, value in ODD.items():
            messages = said(value)
            if not messages and odd not in meaningful(name, setting):
                wrong[setting].append(odd)
            assert all("\n" not in message and len(message) <= LONGEST for message in messages), messages
    assert not dict(wrong), "accepted, though the table does not say that it is meaningful"


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"arms": {"a": [], "b": ["optim.lr=nan"]}}, "arm 'b': `optim.lr` must be a number above 0, and finite"),
        ({"tune": {"optim.lr": [math.inf, 1e-3]}}, "`optim.lr` must be a number above 0, and finite"),
        ({"grid": {"divergence": ["4", "nan"]}}, "`divergence` must be a number of at least 1, and finite"),
        ({"overrides": ["model.layers=[{at: 0, norm.eps: -1}]"]}, "`model.layers.0.norm.eps` must be a number above 0"),
    ],
)
def test_a_study_with_such_a_number_is_refused_as_a_whole_and_leaves_nothing(
    part: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An arm that cannot be built is left out of a study; a number that means nothing is a slip of the pen."""
    study: dict[str, Any] = {"baseline": "a", "arms": {"a": [], "b": ["model.bias=false"]}, "seeds": 1, **part}
    study["overrides"] = ["task=copy", f"runs_dir={tmp_path / 'runs'}", *study.get("overrides", [])]
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    assert main(["study", str(tmp_path / "study.yaml")]) == 2
    message = capsys.readouterr().err
    assert said in message and message.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_what_a_number_is_and_what_a_class_says_of_it_are_told_apart() -> None:
    """The planted faults: a check by `float` alone lets true and nan pass, one by comparison alone lets nan pass."""
    assert fits(Positive, 1) and fits(Positive, 0.5) and fits(Count | None, None) and fits(tuple[float, float], [1, 2])
    for hint, value in [(Positive, math.nan), (Positive, True), (Positive, 0), (Count, 1.0), (Count, None)]:
        assert not fits(hint, value)
    for hint, wrong in [(tuple[float, float], [1]), (tuple[float, float], 0.9), (Sequence[Count], "12"), (bool, 1)]:
        assert not fits(hint, wrong)
    assert fits(Any, math.nan) and fits(str | None, "4") and not fits(int, 2**53 + 1)


@pytest.mark.parametrize("launcher", [LocalLauncher, RayLauncher, SlurmLauncher])
def test_a_field_that_a_launcher_inherits_has_the_type_that_its_base_declares(launcher: type) -> None:
    """Its name need not be known in the module of the launcher itself."""
    hints = hints_of(launcher)
    assert (hints["slots"], hints["time_limit"]) == (Count | None, Positive | None)
    with pytest.raises(UsageError, match=r"`hydra.launcher.time_limit` must be a number above 0 or null, but it is 0"):
        check_settings(launcher, {"time_limit": 0}, "hydra.launcher")
