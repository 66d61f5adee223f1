"""Lists of overrides as text: merged without composing anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import yaml

from swapformer.errors import UsageError, quote
from swapformer.yaml_reader import DoubledKey, parse_yaml


def key(override: str) -> str:
    """The key of an override: `model/position=alibi` → `model/position`, `+preset=x` → `preset`, `~a.b` → `a.b`."""
    return override.partition("=")[0].lstrip("+~")


def value(overrides: Iterable[str], name: str) -> str | None:
    """The last value that `overrides` give to `name`, as text; None when they do not."""
    found = None
    for override in overrides:
        if key(override) == name and "=" in override:
            found = override.partition("=")[2]
    return found


def values(overrides: Iterable[str]) -> dict[str, str]:
    """Key → value of what `overrides` set."""
    return {key(override): override.partition("=")[2] for override in overrides}


def merge(*layers: Sequence[str]) -> list[str]:
    """All overrides, later layers last; of two that set the same key, only the later one.

    Hydra refuses two choices for one group, and a study's arm has to be able to replace what its scale says.
    """
    merged: dict[str, str] = {}
    for layer in layers:
        for override in layer:
            merged.pop(key(override), None)
            merged[key(override)] = override
    return list(merged.values())


def require_single_keys(overrides: Iterable[str]) -> None:
    """Refuse overrides in whose mappings a key appears twice: Hydra would drop the first without a word."""
    for override in overrides:
        if "{" in override:
            try:
                parse_yaml(override.partition("=")[2])
            except DoubledKey as error:
                raise UsageError(f"{quote(override)}: {str(error).partition(', in line')[0]}; keep one") from None
            except (ValueError, yaml.YAMLError):
                continue  # Hydra says what is wrong with it


_WHOLE_MODEL = {"model.module": "model.topology.module", "model.config": "model.topology.module.config"}
"""What is said of a whole model, and where it stands in the configuration."""


def of_whole_model(overrides: Iterable[str]) -> list[str]:
    """Overrides as Hydra takes them: settings of a model of the user's own stand in no file, so they are added.

    `model.module.width=64` → `++model.topology.module.width=64`.
    """
    found = []
    for override in overrides:
        name = key(override)
        short = next((short for short in _WHOLE_MODEL if name == short or name.startswith(f"{short}.")), None)
        if short is not None and not override.startswith("~"):
            override = f"++{_WHOLE_MODEL[short]}{name.removeprefix(short)}={override.partition('=')[2]}"
        found.append(override)
    return found


def search_path(overrides: Iterable[str]) -> list[str]:
    """Those of `overrides` that tell Hydra where else to look for options: parts of the user's own."""
    return [override for override in overrides if key(override) == "hydra.searchpath"]


def check(overrides: object, where: str) -> tuple[str, ...]:
    """`overrides` if it is a list of `key=value` texts. Raises UsageError that names `where` it stands."""
    if not isinstance(overrides, list):
        raise UsageError(f"{where} must be a list of overrides such as [model/position=alibi], not {quote(overrides)}")
    for override in overrides:
        if not isinstance(override, str) or not ("=" in override or override.startswith("~")) or not key(override):
            raise UsageError(
                f"{where} must be a list of overrides such as model/position=alibi, but holds {quote(override)}"
            )
    return tuple(overrides)
