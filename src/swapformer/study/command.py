"""Studies of any command: a study file with `run` instead of a model of ours.

    run: python train.py --lr {lr} --width {width} --seed {seed} --out {out}
    code: [train.py]                # its content is part of each trial's identity
    metrics: {val/loss: lower}      # which way each is better
    baseline: narrow
    arms: {narrow: [width=64], wide: [width=128]}
    overrides: [lr=1e-3]            # settings of every arm

Such a file means the same as one with measure=command and arms that set `measure.settings.NAME`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from swapformer.errors import UsageError, quote
from swapformer.results.config import FILLED

OWN = ("run", "reads", "code", "minutes")
"""Keys of a study file that are the command's."""
_OURS = ("logger", "trainer", "runs_dir")
"""Keys of a configuration that an override of such a study may set beside the command's settings."""
SETTINGS = "measure.settings"
_SHARED = ("task=copy", "measure=command", "budget.steps=0")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def with_command(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A study file's content with its command as a measurement; unchanged where it has none. Raises UsageError."""
    content = dict(raw)
    if "run" not in content:
        if alone := next((key for key in OWN if key in content), None):
            raise UsageError(f"`{alone}` is of a study of a command, but there is no `run`; add it, or leave both out")
        return content
    own = {key: content.pop(key) for key in OWN if key in content}
    if not isinstance(own["run"], str):
        raise UsageError(f"`run` must be a command such as python train.py --seed {{seed}}, not {quote(own['run'])}")
    metrics = content.get("metrics")
    ways = ("lower", "higher")
    if not isinstance(metrics, dict) or not metrics or any(way not in ways for way in metrics.values()):
        raise UsageError(
            "`metrics` of a study of a command must say which way each is better, such as {val/loss: lower}, not "
            f"{quote(metrics)}"
        )
    if plain := [str(name) for name in metrics if "/" not in str(name)]:
        raise UsageError(
            "a metric of a command must be named by what it was measured on and what it is, with a slash between, such "
            f"as val/{plain[0]}, but it is {quote(plain[0])}"
        )
    names = {*_PLACEHOLDER.findall(own["run"])} - {*FILLED}
    content["metrics"] = list(metrics)
    node = [*_SHARED, f"measure.run={_override(own['run'])}", f"++measure.metrics={_override(metrics)}"]
    if names:
        node.append(f"++{SETTINGS}={_override(dict.fromkeys(sorted(names)))}")
    node += [f"++measure.{key}={_override(own[key])}" for key in OWN[1:] if key in own]
    rename = _renamer(names)
    content["overrides"] = [*node, *_each(content.get("overrides", []), rename)]
    if isinstance(arms := content.get("arms"), dict):
        content["arms"] = {name: _each(overrides, rename) for name, overrides in arms.items()}
    if isinstance(axis := content.get("axis"), str | list):
        keys = [rename(key) if key in names else key for key in ([axis] if isinstance(axis, str) else axis)]
        content["axis"] = keys[0] if isinstance(axis, str) else keys
    for section in (content, *_sections(content)):
        if section is not content and "overrides" in section:
            section["overrides"] = _each(section["overrides"], rename)
        for key in ("tune", "grid"):
            if isinstance(found := section.get(key), dict):
                section[key] = {rename(name) if name in names else name: value for name, value in found.items()}
    return content


def _sections(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The scales' sections, copied into the content."""
    scales = content.get("scales")
    if not isinstance(scales, dict) or not all(isinstance(each, dict) for each in scales.values()):
        return []
    content["scales"] = {name: dict(section) for name, section in scales.items()}
    return list(content["scales"].values())


def _renamer(names: set[str]) -> Callable[[str], str]:
    """The override of the configuration that sets what a placeholder is filled with."""

    def rename(override: str) -> str:
        key, equals, value = override.partition("=")
        known = key in names or (key not in _OURS and not re.search(r"[./+~]", key))
        return f"{SETTINGS}.{key}{equals}{value}" if known else override

    return rename


def _each(overrides: Any, rename: Callable[[str], str]) -> Any:
    """Every override renamed; what is no list of texts is left for whoever says so."""
    if not isinstance(overrides, list) or not all(isinstance(each, str) for each in overrides):
        return overrides
    return [rename(each) for each in overrides]


def _override(value: object) -> str:
    """A value as Hydra reads it in an override."""
    if isinstance(value, str):
        return "'" + re.sub(r"(\\*)(?='|$)", r"\1\1", value).replace("'", "\\'") + "'"
    if isinstance(value, Mapping):
        for name in value:
            if not re.fullmatch(r"[\w/@.+-]+", str(name)):
                raise UsageError(f"a metric's name must be of letters, digits and /@.+-_, but it is {quote(name)}")
        return "{" + ",".join(f"{key}: {_override(held)}" for key, held in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_override, value)) + "]"
    return json.dumps(value)
