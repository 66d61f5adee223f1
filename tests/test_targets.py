"""A configuration from anywhere runs no code of packages that the user has not allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.mirror.process import destination
from swapformer.study.config import compose
from swapformer.targets import VARIABLE, require_known, targets
from swapformer.training.fit import fit
from swapformer.training.restore import restore

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
        destination({"_target_": "harmful.Mine"})
    assert not harmful.exists()


def test_what_the_user_names_is_allowed_and_nothing_that_only_begins_like_it(monkeypatch: pytest.MonkeyPatch) -> None:
    node = {"a": [{"_target_": "mine.sub.Part"}], "b": {"_target_": "torch.optim.SGD"}}
    assert list(targets(node)) == ["mine.sub.Part", "torch.optim.SGD"]
    monkeypatch.setenv(VARIABLE, "other, mine")
    require_known(node)
    for strange in ("miner.Part", "mine", "torch.hub.load", "swapformerish.X", "os.system"):
        with pytest.raises(UsageError, match="if you trust it"):
            require_known({"_target_": strange})
