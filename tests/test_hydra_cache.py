"""What the tests compose with their memory of files is what Hydra composes without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import hydra_cache
from swapformer.paths import conf_dir

CHOICES = [
    ["task=copy", "model/position=sum", "model/position@model.position.first=alibi", "seed=3"],
    ["+preset=bert", "model.d_model=32", "+probes.x={a: 1}"],
    ["task/source=files", "task.source.path=a", "optim=muon", "~model.dropout"],
]


def composed(overrides: list[str], folder: Path) -> tuple[str, object]:
    """All that Hydra makes of overrides, its own node too, before and after interpolations are resolved."""
    with initialize_config_dir(str(folder), version_base="1.3"):
        found = hydra_compose("train", overrides=overrides, return_hydra_config=True)
        OmegaConf.set_struct(found, False)
        plain = found.pop("hydra")
        return OmegaConf.to_yaml(plain), OmegaConf.to_container(found, resolve=False)


@pytest.mark.parametrize("overrides", CHOICES)
def test_a_composition_is_hydras_own(overrides: list[str]) -> None:
    """Twice, since the first one fills the memory; the second must not see what became of the first."""
    first, again = composed(overrides, conf_dir()), composed(overrides, conf_dir())
    hydra_cache.remove()
    try:
        own = composed(overrides, conf_dir())
    finally:
        hydra_cache.install()
    assert first == again == own


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("width: 1\n")
    assert composed([], tmp_path)[1] == {"width": 1}
    (tmp_path / "train.yaml").write_text("width: 16\n")
    assert composed([], tmp_path)[1] == {"width": 16}
    assert not GlobalHydra.instance().is_initialized()
