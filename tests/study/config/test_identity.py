"""Identity of a trial: what is in it, and that options which are added or renamed later leave every id as it was.

`tests/golden/identities.json` holds overrides over all groups with the ids that they were first given:
`python -m pytest tests/study/config/test_identity.py --refresh-golden` writes them anew: every stored trial is renamed.
"""

from __future__ import annotations

import copy
import inspect
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from swapformer.errors import UsageError
from swapformer.study.config import identity as module
from swapformer.study.config.compose import compose
from swapformer.study.config.identity import NEUTRAL, identity, trial_id
from swapformer.targets import find
from swapformer.training.fit import fit

COPY = ["task=copy", "model.num_layers=4", "model.d_model=32", "model.num_heads=4"]
GOLDEN = Path(__file__).parents[2] / "golden" / "identities.json"
CLASSES = ["model.position", "model.attention", "model.ffn", "model.norm", "model.topology", "schedule", "task"]
"""Nodes of parts, whose classes declare what is neutral."""
PLAIN = ["later", "model.later", "model.encoder.later", "eval.later", "optim.later", "trainer.later"]
"""A key that is added to a node without a class of swapformer's; the table declares what is neutral."""


@cache
def composed(*overrides: str) -> dict[str, Any]:
    """A configuration to be copied, not changed."""
    return compose([*COPY, *overrides])


def planted(config: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """A copy of the configuration with a value under a dotted key."""
    changed = node = copy.deepcopy(config)
    *parents, last = key.split(".")
    for name in parents:
        node = node[name]
    node[last] = value
    return changed


def renamed(config: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    """A copy of the configuration with another name for a dotted key."""
    changed = node = copy.deepcopy(config)
    *parents, last = key.split(".")
    for parent in parents:
        node = node[parent]
    node[name] = node.pop(last)
    return changed


class TestCommittedIds:
    def test_are_those_that_the_trials_were_first_given(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Apart from torch's version, which is in an id on purpose."""
        monkeypatch.setattr(module, "version", lambda package: f"{package} of any version")
        committed = json.loads(GOLDEN.read_text(encoding="utf-8"))
        found = [{"id": trial_id(compose(row["overrides"])), "overrides": row["overrides"]} for row in committed]
        if request.config.getoption("--refresh-golden"):
            rows = ",\n".join(f"  {json.dumps(row)}" for row in found)
            GOLDEN.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
        assert len({row["id"] for row in found}) == len(found) == 30
        assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.fixture
def _fresh() -> Iterator[None]:
    """Declared defaults are looked up anew, and forgotten behind the test."""
    module._declared.cache_clear()
    yield
    module._declared.cache_clear()


def declare(monkeypatch: pytest.MonkeyPatch, option: str, default: object) -> None:
    """Let every class of swapformer's take one option more."""

    def with_option(name: str) -> object:
        own = inspect.signature(find(name))
        added = inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default)
        made = type("Later", (), {})
        made.__signature__ = own.replace(parameters=[*own.parameters.values(), added])  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(module, "find", with_option)


@pytest.mark.usefixtures("_fresh")
class TestOptionsAddedLater:
    @pytest.mark.parametrize("node", CLASSES)
    def test_of_a_class_leave_the_id_at_its_default_and_change_it_at_any_other(
        self, node: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = composed()
        known = trial_id(before)
        assert trial_id(planted(before, f"{node}.later", 0.5)) != known, "no class declares it yet"
        module._declared.cache_clear()
        declare(monkeypatch, "later", 0.5)
        assert trial_id(planted(before, f"{node}.later", 0.5)) == known
        assert len({known, *(trial_id(planted(before, f"{node}.later", value)) for value in (0.25, None, 1))}) == 4

    @pytest.mark.parametrize("key", PLAIN)
    def test_of_a_node_without_a_class_leave_the_id_at_the_value_in_the_table(
        self, key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = composed()
        known = trial_id(before)
        monkeypatch.setattr(module, "CHANGES_RESULT", (*module.CHANGES_RESULT, *([key] if "." not in key else [])))
        assert trial_id(planted(before, key, False)) != known
        monkeypatch.setattr(module, "NEUTRAL", {**NEUTRAL, key: False})
        assert trial_id(planted(before, key, False)) == known
        assert len({known, trial_id(planted(before, key, True)), trial_id(planted(before, key, 0))}) == 3

    @pytest.mark.parametrize("key", NEUTRAL)
    def test_need_their_entry_in_the_table(self, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
        config = planted(composed(), key, NEUTRAL[key])
        known = trial_id(config)
        monkeypatch.setattr(module, "NEUTRAL", {name: value for name, value in NEUTRAL.items() if name != key})
        assert trial_id(config) != known

    def test_of_a_layer_are_neutral_as_those_of_the_model_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = composed("model.layers=[{at: 0, ffn: glu}]")
        known = trial_id(before)
        after = copy.deepcopy(before)
        after["model"]["layers"][0]["ffn"]["later"] = 0.5
        module._declared.cache_clear()
        declare(monkeypatch, "later", 0.5)
        assert trial_id(after) == known

    def test_of_a_library_count_whatever_its_default_is(self) -> None:
        """torch may change its defaults with a version."""
        before = composed()
        assert trial_id(planted(before, "optim.amsgrad", False)) != trial_id(before)


@pytest.mark.usefixtures("_fresh")
class TestNewNames:
    @pytest.mark.parametrize("key", ["seed", "model.dropout", "optim.lr", "trainer.precision", "eval.every"])
    def test_of_keys_keep_the_id(self, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
        before = composed()
        known, parent = trial_id(before), key.rpartition(".")[0]
        name = f"{parent}.new" if parent else "new"
        names = tuple("new" if each == key else each for each in module.CHANGES_RESULT)
        monkeypatch.setattr(module, "CHANGES_RESULT", names)
        assert parent == "" or trial_id(renamed(before, key, "new")) != known
        monkeypatch.setattr(module, "RENAMED", {name: key})
        assert trial_id(renamed(before, key, "new")) == known

    def test_of_a_class_and_of_its_setting_keep_the_id(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = composed("model.norm.eps=1e-4")
        moved = planted(renamed(before, "model.norm.eps", "epsilon"), "model.norm._target_", "swapformer.model.New")
        old = before["model"]["norm"]["_target_"]
        monkeypatch.setattr(module, "_declared", lambda target: {})  # there is no such class to be asked
        known = trial_id(before)
        names = {"swapformer.model.New": old, "swapformer.model.New.epsilon": f"{old}.eps"}
        assert trial_id(moved) != known
        monkeypatch.setattr(module, "RENAMED", names)
        assert trial_id(moved) == known
        assert identity(moved)["model"]["norm"] == identity(before)["model"]["norm"]


class TestIdentity:
    def test_what_cannot_change_a_result_is_not_in_it(self) -> None:
        same = composed("runs_dir=elsewhere", "checkpoint_every=7", "probes=head_similarity")
        assert trial_id(same) == trial_id(composed())

    @pytest.mark.parametrize(
        "override",
        ["seed=1", "data_seed=1", "model.dropout=0.1", "optim.lr=2e-3", "budget.steps=7", "trainer.threads=2",
         "task.batch_size=8", "eval.every=7", "eval.final_batches=3", "schedule.final=0.2", "model/kernel=reference"],
    )  # fmt: skip
    def test_what_can_change_a_result_is_in_it(self, override: str) -> None:
        assert trial_id(composed(override)) != trial_id(composed())

    def test_text_is_known_by_its_content_and_not_by_its_path(self, tmp_path: Path) -> None:
        text = "the quick brown fox jumps over the lazy dog. " * 200
        paths = [tmp_path / name for name in ("a.txt", "b.txt", "c.txt")]
        for path, content in zip(paths, (text, text, text + "!"), strict=True):
            path.write_text(content)
        ids = [trial_id(compose(["task=text", "task/source=files", f"task.source.path={path}"])) for path in paths]
        assert ids[0] == ids[1] != ids[2]

    def test_a_part_from_outside_counts_with_its_source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source = tmp_path / "outside_part.py"
        source.write_text("from swapformer.model.position import Position\nclass Mine(Position):\n    pass\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("SWAPFORMER_PACKAGES", "outside_part")
        config = composed("model/position=none", "model.position._target_=outside_part.Mine")
        before = identity(config)["foreign_parts"]
        assert list(before) == ["outside_part.Mine"]
        source.write_text(source.read_text() + "# changed\n")
        assert identity(config)["foreign_parts"] != before
        sys.modules.pop("outside_part")

    @pytest.mark.parametrize(
        "how", ["from own_parts.helper import f", "from . import helper", "import own_parts.helper"]
    )
    def test_a_part_counts_with_what_it_imports_from_its_package(
        self, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """S7 of the review: the helper was edited, and the old result was given for the new code."""
        package = tmp_path / "own_parts"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "other.py").write_text("unused = 1\n")
        (package / "helper.py").write_text("f = 1\n")
        (package / "part.py").write_text(
            f"from swapformer.model.position import Position\n{how}\nclass Mine(Position):\n    pass\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("SWAPFORMER_PACKAGES", "own_parts")
        config = composed("model/position=none", "model.position._target_=own_parts.part.Mine")
        before = trial_id(config)
        (package / "other.py").write_text("unused = 2\n")
        assert trial_id(config) == before
        (package / "helper.py").write_text("f = 2\n")
        assert trial_id(config) != before
        with pytest.raises(UsageError, match=r"named by the source of own_parts.part.Mine, which has changed since"):
            module.require_same_source(config, before)
        for name in [name for name in sys.modules if name.startswith("own_parts")]:
            del sys.modules[name]

    def test_changed_data_make_another_trial_and_are_noticed_in_training(self, tmp_path: Path) -> None:
        path = tmp_path / "text.txt"
        path.write_text("the quick brown fox jumps over the lazy dog. " * 200)
        before = compose(["task=text", "task/source=files", f"task.source.path={path}"])
        path.write_text("the quick brown fox jumps over the lazy cat. " * 200)
        after = compose(["task=text", "task/source=files", f"task.source.path={path}"])
        assert trial_id(before) != trial_id(after)
        with pytest.raises(UsageError, match=r"what it was named by, but '.*text\.txt' has changed"):
            fit(before, tmp_path / "trial")

    def test_probes_are_in_it_with_their_moments_within_the_training_alone(self) -> None:
        """DESIGN section 4: what looks at a training must be there while it lasts; the rest can be asked later."""

        def id_with(at: str) -> str:
            return trial_id(composed("probes=head_similarity", f"probes.head_similarity.at={at}"))

        without = trial_id(composed())
        assert id_with("[end]") == id_with("[init]") == id_with("[init,end]") == without
        assert id_with("[10]") == id_with("[init,10,end]") != without
        assert id_with("[10]") != id_with("[10,20]")

    def test_a_probe_of_the_users_own_does_not_rename_a_trial(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "outside.py").write_text(
            "from swapformer.probes.base import Probe as Base\nclass Probe(Base): ...\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("SWAPFORMER_PACKAGES", "outside")
        assert trial_id(composed("+probes.mine._target_=outside.Probe")) == trial_id(composed())
