"""What is composed with the memory of files is what Hydra composes without it."""

from __future__ import annotations

from pathlib import Path

import hydra
import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from swapformer.exercises import shipped
from swapformer.paths import conf_dir
from swapformer.study.config.hydra_memory import RememberingLoader, hydra_config
from swapformer.study.spec import load

CONF = conf_dir()
CHOICES = [
    ["task=copy", "model/position=sum", "model/position@model.position.first=alibi", "seed=3"],
    ["+preset=bert", "model.d_model=32", "+probes.x={a: 1}"],
    ["task/source=files", "task.source.path=a", "optim=muon", "~model.dropout"],
]


def own(overrides: list[str], folder: Path = CONF) -> str:
    """What Hydra composes by itself."""
    with initialize_config_dir(str(folder), version_base="1.3"):
        return OmegaConf.to_yaml(hydra.compose("train", overrides))


def remembered(overrides: list[str], folder: Path = CONF) -> str:
    with initialize_config_dir(str(folder), version_base="1.3"):
        return OmegaConf.to_yaml(hydra_config("train", overrides))


@pytest.mark.parametrize("overrides", CHOICES)
def test_a_composition_is_hydras_own(overrides: list[str]) -> None:
    """Twice, since the first one fills the memory; the second must not see what became of the first."""
    first, again = remembered(overrides), remembered(overrides)
    assert first == again == own(overrides)


def test_a_whole_composition_is_hydras_own_with_its_own_node() -> None:
    """The node that `hydra.main` reads, before and after it is resolved."""
    found = []
    for _ in range(2):
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()
            for each in (RememberingLoader(loader.get_search_path()), loader):
                found.append(OmegaConf.to_container(each.load_configuration("train", CHOICES[0], RunMode.RUN)))
    assert all(each == found[0] for each in found) and found[0]["hydra"]["runtime"]["choices"]["task"] == "copy"


def test_every_choice_of_every_study_is_composed_as_hydra_does() -> None:
    """Arms share a process and its memory: after all of them, each choice of files is Hydra's own."""
    choices = set()
    for path in shipped().values():
        spec = load(str(path), "smoke")
        for condition in spec.conditions.values():
            for arm in spec.arms.values():
                choices.add((*spec.overrides, *condition.overrides, *arm))
    assert len(choices) > 200
    made = {each: remembered(list(each)) for each in sorted(choices)[::8]}
    for each in sorted(choices)[::40]:  # Hydra alone takes half a second for one
        assert made[each] == remembered(list(each)) == own(list(each))


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("width: 1\n")
    assert remembered([], tmp_path) == "width: 1\n"
    (tmp_path / "train.yaml").write_text("width: 16\n")
    assert remembered([], tmp_path) == "width: 16\n"
    assert not GlobalHydra.instance().is_initialized()


def test_a_file_that_shadows_another_is_found(tmp_path: Path) -> None:
    """The option was there in the second folder of the search path; now the first one has it too."""
    for folder in ("one", "two"):
        (tmp_path / folder / "size").mkdir(parents=True)
    (tmp_path / "one/train.yaml").write_text(f"defaults: [size: s, _self_]\nhydra: {{searchpath: [{tmp_path}/two]}}\n")
    (tmp_path / "two/size/s.yaml").write_text("width: 1\n")
    assert "width: 1" in remembered([], tmp_path / "one")
    (tmp_path / "one/size/s.yaml").write_text("width: 2\n")
    assert "width: 2" in remembered([], tmp_path / "one") and "width: 2" in own([], tmp_path / "one")
