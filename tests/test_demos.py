"""Each exercise has a demo: at most two minutes on two cores, which says what it expects before anything trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from swapformer import exercises
from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.paths import experiments_dir
from swapformer.study.spec import load, parse

DEMOS = {
    name: path
    for folder in exercises.exercises(experiments_dir()).values()
    for name, path in exercises.studies_of(folder).items()
    if "demo" in (yaml.safe_load(path.read_text(encoding="utf-8")).get("scales") or {})
}


def test_each_exercise_has_one_that_says_what_it_expects() -> None:
    assert [name.partition("/")[0] for name in DEMOS] == list(exercises.exercises(experiments_dir()))
    for path in DEMOS.values():
        spec = load(path, "demo")
        assert spec.expects and spec.claims and not spec.must_beat


def test_each_page_names_its_own() -> None:
    for name, path in DEMOS.items():
        folder = path.parent if "/" not in name else path.parent.parent
        assert f"swapformer study {name} scale=demo" in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["06_sinusoid_linearity/tables", "11_norm_placement/init"])
def test_it_shows_what_it_expects(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", name, "scale=demo", "--json", f"runs_dir={tmp_path}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {verdict["outcome"] for verdict in found["verdicts"]} == {"supported"}


def test_what_is_expected_is_said_before_anything_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = {
        "baseline": "a", "arms": {"a": [], "b": ["model.bias=false"]}, "expects": "nothing",
        "overrides": ["task=copy", "model.d_model=16", "model.num_heads=2", "budget.steps=0", "eval.final_batches=1"],
        "seeds": 1, "scales": {"cpu": {"arms": ["a"], "expects": "one arm"}},
    }  # fmt: skip
    Path("s.yaml").write_text(yaml.safe_dump(study))
    main(["study", "s.yaml"])
    said = capsys.readouterr().err
    assert "to be expected: one arm" in said and said.index("to be expected") < said.index("trials are in the store")


class TestScales:
    raw: ClassVar[dict[str, Any]] = {
        "baseline": "a",
        "arms": {"a": [], "b": ["x=1"], "c": ["x=2"]},
        "metrics": ["val/loss", "val/accuracy"],
    }

    def test_may_train_some_of_the_arms_and_judge_some_of_the_metrics(self) -> None:
        derive = {"derived/gain": {"ratio": ["val/loss", "val/accuracy"]}}
        scales = {"cpu": None, "demo": {"arms": ["c", "a"], "metrics": ["val/accuracy"]}}
        raw = {**self.raw, "derive": derive, "scales": scales}
        whole, some = parse(raw, "s"), parse(raw, "s", "demo")
        assert list(whole.arms) == ["a", "b", "c"] and list(some.arms) == ["a", "c"]
        assert whole.metrics == ("val/loss", "val/accuracy", "derived/gain") and some.metrics == ("val/accuracy",)

    @pytest.mark.parametrize("arms", [[], ["d"], "a", {"a": []}, None])
    def test_arms_that_the_study_does_not_have_are_refused(self, arms: object) -> None:
        with pytest.raises(UsageError, match="`arms` of scale demo must list some of a, b, c, not"):
            parse({**self.raw, "scales": {"demo": {"arms": arms}}}, "s", "demo")

    def test_without_the_baseline_nothing_is_compared(self) -> None:
        with pytest.raises(UsageError, match="the baseline must be one of the arms, but 'a' is not"):
            parse({**self.raw, "scales": {"demo": {"arms": ["b"]}}}, "s", "demo")

    def test_what_is_expected_is_a_text(self) -> None:
        with pytest.raises(UsageError, match="`expects` must be a text, not 3"):
            parse({**self.raw, "scales": {"demo": {"expects": 3}}}, "s", "demo")
