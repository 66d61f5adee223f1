"""Settings of tasks: what a YAML holds, what a class takes, and constructors that pass settings on."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

from swapformer import task as tasks
from swapformer.paths import conf_dir
from swapformer.task import Masked, MaskedNSP, SourceCode, Spans, Text
from swapformer.task.settings import PassesSettings
from swapformer.task.source import Files
from swapformer.task.tokeniser import Characters

YAMLS = sorted((conf_dir() / "task").glob("*.yaml"))
CORPUS = {"source", "tokeniser", "split", "block", "eval_lengths", "batch_size", "eval_batch_size"}


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: path.stem)
def test_a_yaml_of_a_task_names_it_by_its_short_path_and_holds_exactly_its_settings(path: Path) -> None:
    """A setting that the YAML leaves out could not be set; one that the class does not take would be refused."""
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    module, _, name = node["_target_"].rpartition(".")
    assert module == "swapformer.task" and name in tasks.__all__
    chosen = {key for entry in node.get("defaults", ()) if entry != "_self_" for key in entry}
    keys = {key for key in node if not key.startswith("_") and key != "defaults"} | chosen
    assert keys == set(inspect.signature(getattr(tasks, name)).parameters)


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (Text, {"stride", "order", "packing", "reset_positions"}),
        (SourceCode, {"order", "packing", "reset_positions"}),
        (Masked, {"order", "segments", "rate", "masked", "random", "packing", "reset_positions"}),
        (MaskedNSP, {"rate", "masked", "random"}),
        (Spans, {"order", "rate", "mean_length", "sentinels"}),
    ],
)
def test_a_signature_lists_the_settings_that_a_constructor_passes_on(kind: type, own: set[str]) -> None:
    parameters = inspect.signature(kind).parameters
    assert parameters.keys() == CORPUS | own
    assert {one.kind for one in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert parameters["block"].default == 64 and parameters["source"].default is inspect.Parameter.empty


@pytest.mark.parametrize(("kind", "unknown"), [(SourceCode, "stride"), (MaskedNSP, "packing"), (Text, "blocks")])
def test_a_setting_that_no_class_takes_is_refused(kind: Any, unknown: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text")
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{unknown}'"):
        kind(source=Files(path=str(tmp_path / "a.txt")), tokeniser=Characters(), **{unknown: 1})


def test_what_a_class_states_again_is_its_own() -> None:
    class Base(PassesSettings):
        def __init__(self, *, block: int = 1, rate: float = 0.5) -> None:
            self.block, self.rate = block, rate

    class Own(Base):
        def __init__(self, *, rate: float = 0.1, **settings: Any) -> None:
            super().__init__(rate=rate, **settings)

    assert str(inspect.signature(Own)) == "(*, rate: 'float' = 0.1, block: 'int' = 1)"
    assert (Own(block=3).block, Own(block=3).rate) == (3, 0.1)
