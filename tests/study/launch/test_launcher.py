"""The YAML of each launcher holds its settings, all of them and with their defaults, and no others."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import pytest
import yaml

from swapformer.paths import conf_dir
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.missing_trials import RETRIES
from swapformer.study.launch.ray import RayLauncher
from swapformer.study.launch.slurm import SlurmLauncher

NOT_SET = ("store", "provenance", "work", "tick", "tied", "share")
"""What a launcher is given by the program."""
LAUNCHERS = {"local": LocalLauncher, "ray": RayLauncher, "slurm": SlurmLauncher}


@pytest.mark.parametrize("name", sorted(path.stem for path in (conf_dir() / "hydra" / "launcher").glob("*.yaml")))
def test_a_launchers_yaml_holds_its_settings_with_their_defaults(name: str) -> None:
    node: dict[str, Any] = yaml.safe_load((conf_dir() / "hydra" / "launcher" / f"{name}.yaml").read_text())
    assert node.pop("_target_") == f"hydra_plugins.swapformer.launcher.Hydra{LAUNCHERS[name].__name__}"
    assert node.pop("_convert_") == "all", "settings are plain values"
    assert node.pop("retries") == RETRIES
    settings = {
        field.name: field.default if field.default is not MISSING else field.default_factory()  # type: ignore[misc]
        for field in fields(LAUNCHERS[name])
        if field.init and field.name not in NOT_SET
    }
    assert {key: tuple(v) if isinstance(v, list) else v for key, v in node.items()} == settings
