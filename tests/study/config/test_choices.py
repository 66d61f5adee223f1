"""What Hydra composes is the same with and without the memory of choices, in value, order, flags and complaints."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from swapformer.exercises import shipped
from swapformer.paths import conf_dir
from swapformer.study.config import choices
from swapformer.study.config import overrides as texts
from swapformer.study.spec import load


def write(folder: Path, files: dict[str, str]) -> None:
    """YAML files by name and content."""
    for file, content in files.items():
        path = folder / f"{file}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)


def text(config: DictConfig) -> str:
    return OmegaConf.to_yaml(config)


def test_arms_of_studies_are_what_hydra_composes() -> None:
    """Some arms of every tenth study, at the smoke scale, after others that chose alike."""
    compared = 0
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        for path in [*shipped().values()][::10]:
            spec = load(str(path), "smoke")
            arms = [
                [*texts.merge(spec.overrides, where.overrides, own), "seed=3"]
                for where in spec.conditions.values()
                for own in spec.arms.values()
            ]
            for each in arms[::7][:3]:
                plain = hydra_compose("train", overrides=each)
                for _ in range(2):
                    found = choices.composed(each)
                    assert text(found) == text(plain)
                    assert OmegaConf.is_struct(found) == OmegaConf.is_struct(plain)
                    found.seed = 4  # what is given may be changed
                compared += 1
    assert compared > 6


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.num_head=4"],
        ["model/position=rop"],
        ["optim.lr=[1"],
        ["+model.own=1", "~model.bias"],
        ["~model.bias", "model.d_model='${seed}'"],
        ["optim.lr=1e-3,1e-4"],
        ["hydra.verbose=true", "seed=1"],
        ["task=copy", "model/position=alibi", "model/extension=[gate]", "++model.x.y=2"],
        ["~logger", "model={d_model: 3}"],
        ["+preset=deepnorm"],
    ],
)
def test_what_is_odd_ends_as_with_hydra(overrides: list[str]) -> None:
    ends = []
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        choices.composed([])
        for way in (lambda: hydra_compose("train", overrides=list(overrides)), lambda: choices.composed(overrides)):
            try:
                ends.append(text(way()))
            except Exception as error:
                ends.append(f"{type(error).__name__}: {error}")
    assert ends[0] == ends[1]


def test_a_file_that_is_read_once_is_as_it_was_after_what_was_made_of_it_is_changed() -> None:
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        for option in ("layernorm", "rmsnorm", "none"):
            asked = ["+preset=deepnorm", f"model/norm={option}"]
            assert text(choices.composed(asked)) == text(hydra_compose("train", overrides=asked))
            changed = choices.composed([*asked, "model.d_model=999", "seed=9"])
            changed.model.residual = None


def test_a_choice_that_names_another_is_what_hydra_composes(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "train": "defaults: [_self_, task: one, model: ${task}_model]\n",
            "task/one": "size: 1\n",
            "task/two": "defaults: [/extra/${model}@more, _self_]\nsize: 2\n",
            "model/one_model": "width: 1\n",
            "model/two_model": "width: 2\n",
            "extra/two_model": "more: 3\n",
        },
    )
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        for asked in ([], ["task=two", "model=two_model"], ["task=two"]):
            ends = []
            for way in (hydra_compose, choices.composed):
                try:
                    ends.append(text(way("train", overrides=asked) if way is hydra_compose else way(asked)))
                except Exception as error:
                    ends.append(f"{type(error).__name__}: {error}")
            assert ends[0] == ends[1]


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "train.yaml").write_text("defaults: [_self_, task: one]\nseed: 1\n")
    (tmp_path / "task" / "one.yaml").write_text("size: 1\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert choices.composed(["seed=2"]) == {"seed": 2, "task": {"size": 1}}
        (tmp_path / "task" / "one.yaml").write_text("size: 20\n")
        assert choices.composed(["seed=2"]) == {"seed": 2, "task": {"size": 20}}
        (tmp_path / "task" / "two.yaml").write_text("size: 3\n")
        assert choices.composed(["task=two"]) == {"seed": 1, "task": {"size": 3}}
        (tmp_path / "task" / "two.yaml").unlink()
        with pytest.raises(Exception, match="two"):
            choices.composed(["task=two"])


def test_an_option_by_itself_is_composed_again_where_its_file_changed(tmp_path: Path) -> None:
    """And what was made of it may be changed without changing it."""
    write(tmp_path, {"train": "seed: 1\n", "one": "size: 1\n"})
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        found = choices.hydra_config("one")
        found.size = 7
        assert choices.hydra_config("one").size == 1
        write(tmp_path, {"one": "size: 20\n"})
        assert choices.hydra_config("one").size == 20


def test_a_choice_beside_which_another_file_speaks_of_its_node_is_what_hydra_composes(tmp_path: Path) -> None:
    """Of four groups only `plain` is put in place: the others' nodes are made by more than one file."""
    write(
        tmp_path,
        {
            "train": "defaults: [_self_, plain: a, shared: a, base: a, inner: a]\nshared: {own: 1}\n",
            **{f"{group}/{name}": f"{group}_{name}: 1\n" for group in ("plain", "shared", "inner") for name in "ab"},
            "base/a": "# @package _global_\ninner: {also: 1}\n",
            "base/b": "# @package _global_\nplain: {also: 1}\n",
        },
    )
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        choices.composed([])
        assert choices._MEMORY.made[()].own == {"plain": "plain"}
        for asked in (["plain=b"], ["shared=b"], ["inner=b"], ["base=b"], ["plain=b", "base=b", "shared=b", "inner=b"]):
            assert text(choices.composed(asked)) == text(hydra_compose("train", overrides=asked)), asked
