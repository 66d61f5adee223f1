"""`swapformer noise`: a task's or a study's baseline is trained, its noise is told, and what is stored is reused.

Each number is held to its definition, intervals to simulated truth.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from report.store import Store
from swapformer.cli import main
from swapformer.errors import UsageError
from swapformer.paths import conf_dir
from swapformer.report.records import read
from swapformer.study.spec import parse
from swapformer.tools.noise import MetricNoise, baseline_of, deviation_interval, metric_noise, noise_text

SMALL = [
    *("budget.steps=12", "schedule.warmup_steps=2", "eval.every=2", "eval.batches=1", "eval.final_batches=2"),
    *("model.d_model=16", "model.num_layers=1", "model.num_heads=2", "task.batch_size=4"),
]


@pytest.mark.evidence
def test_a_task_is_measured_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["noise", "copy", "seeds=3", f"runs_dir={tmp_path}", *SMALL]) == 0
    text = capsys.readouterr().out
    assert "baseline of copy, 3 seeds" in text and "5 seeds see" in text and "val/loss" in text
    before = {path.name for path in (tmp_path / "trials").iterdir()}
    assert main(["noise", "copy", "seeds=3", f"runs_dir={tmp_path}", "--json", *SMALL]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    loss = found["conditions"][0]["metrics"][0]
    assert loss["metric"] == "val/loss" and loss["n"] == 3 and loss["seen"]["3"] > loss["seen"]["20"] > 0
    assert {path.name for path in (tmp_path / "trials").iterdir()} == before


@pytest.mark.evidence
def test_a_studys_own_trials_are_its_baselines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The baseline's trials are those that the study itself would run, so that nothing is trained twice."""
    study = tmp_path / "small.yaml"
    study.write_text(
        "baseline: one\narms: {one: [model.num_heads=1], two: [model.num_heads=2]}\nseeds: 3\n"
        "metrics: [val/loss]\nderive: {derived/t: {time_to: val/loss, value: {arm: two}}}\n"
        f"overrides: [task=copy, {', '.join(SMALL)}]\n"
        "claims: [{text: a, worse: {arm: one, than: two, metric: val/loss, margin: 0.01}}]\n"
    )
    assert main(["study", str(study), f"runs_dir={tmp_path}"]) == 0
    before = {path.name for path in (tmp_path / "trials").iterdir()}
    assert main(["noise", str(study), f"runs_dir={tmp_path}"]) == 0
    assert "one of small, 3 seeds" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "trials").iterdir()} == before and len(before) == 6


def test_a_task_of_ones_own_is_found_where_the_searchpath_says(tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "mine.yaml").write_text((conf_dir() / "task" / "copy.yaml").read_text())
    found = baseline_of("mine", [f"hydra.searchpath=[file://{tmp_path}]", "seeds=2"])
    assert found.overrides == ("task=mine",) and found.seeds == (0, 1) and found.metrics[0] == "val/loss"
    with pytest.raises(UsageError, match="'mine' must be a task or a study"):
        baseline_of("mine", [])


def test_what_would_take_long_is_refused_unless_it_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["noise", "copy", "seeds=3", f"runs_dir={tmp_path / 'runs'}", "budget.steps=1000000", "model.d_model=16"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "noise-copy would take about " in said and "more than 10 minutes; allow them with --minutes" in said
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").glob("trials/*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nosuch"], "'nosuch' must be a task or a study"),
        (["coppy"], "did you mean 'copy'"),
        ([], "needs a task or a study"),
        (["copy", "scale=cpu"], "scale=… is of a study, but copy is a task"),
        (["copy", "seeds=x"], "`seeds` must be a number"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["noise", *words, f"runs_dir={tmp_path}"]) == 2
    told = capsys.readouterr().err
    assert message in told and len(told.strip().splitlines()) == 1


def test_the_noise_of_a_store_is_that_of_its_numbers(tmp_path: Path) -> None:
    store = Store(tmp_path, {"base": []}, "base", ["val/loss"], seeds=range(4))
    ends = [2.0, 2.1, 2.3, 2.2]
    for seed, end in enumerate(ends):
        store.write_trial("base", seed, {"val/loss": end})
    store.write_manifest()
    found = metric_noise(read(store.study, store.runs), "val/loss")
    assert found is not None and found.n == 4 and found.mean == pytest.approx(2.15)
    assert found.deviation == pytest.approx(np.std(ends, ddof=1)) and found.over_items == pytest.approx(0.004)
    spec = parse({"baseline": "base", "arms": {"base": []}, "seeds": 6, "metrics": ["val/loss"]}, "noise")
    assert "2 of 6 seeds have no number of some metric (diverged, or have none)" in noise_text(spec, "", [found])
    assert "diverged" not in noise_text(replace(spec, seeds=spec.seeds[:4]), "", [found])


@pytest.mark.parametrize("seeds", [3, 5, 8, 20])
def test_so_many_seeds_find_the_difference_in_80_per_cent_of_studies(seeds: int) -> None:
    """Oracle: one-sided Student's t of simulated pairs of arms, at 5 %."""
    noise = MetricNoise("val/loss", 5, 2.0, 0.3, 0.2, 0.6, 0.0)
    generator = np.random.default_rng(seeds)
    x = generator.normal(noise.seen[seeds], 0.3, (4000, seeds))
    y = generator.normal(0.0, 0.3, (4000, seeds))
    p = stats.ttest_ind(x, y, axis=1, alternative="greater").pvalue
    assert (p <= 0.05).mean() == pytest.approx(0.8, abs=0.02)


def test_intervals_of_spread_cover_the_truth_in_95_per_cent() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        _, low, high = deviation_interval(generator.normal(0, 2.0, 5))
        covered += low <= 2.0 <= high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_what_does_not_vary_sees_nothing() -> None:
    still = MetricNoise("val/loss", 5, 2.0, 0.0, math.nan, math.nan, math.nan)
    assert all(map(math.isnan, still.seen.values()))
    assert deviation_interval(np.array([1.0, 1.0]))[0] == 0 and math.isnan(deviation_interval(np.array([1.0]))[0])
