"""Folded trials in the store: one process, and a record of its own for each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from study import fakes
from study.parents import statuses
from swapformer.errors import UsageError
from swapformer.results.store import Store
from swapformer.study.config.compose import compose
from swapformer.study.config.cost import bytes_of_a_step
from swapformer.study.launch import folded_trials
from swapformer.study.launch.folded_trials import execute_together, fitting, grouped, require_single
from swapformer.study.launch.local import LocalLauncher
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.trial import Trial
from swapformer.study.plan import make_trial


def trial(journal: Path, seed: int, behaviour: str = "finish", fold: int = 3, **more: Any) -> Trial:
    return fakes.trial(journal, seed, behaviour, trainer={"accelerator": "cpu", "threads": 1, "fold": fold}, **more)


def processes(journal: Path) -> list[str]:
    return [line.split()[1] for line in journal.read_text().splitlines()]


def test_trials_that_differ_in_seed_or_optimiser_are_grouped_and_others_are_not(journal: Path) -> None:
    same = [trial(journal, seed, optim={"lr": seed}) for seed in range(4)]
    wide = trial(journal, 0, model={"d_model": 8})
    single = fakes.trial(journal, 7)
    found = grouped([same[0], wide, same[1], single, same[2], same[3]])
    assert found == [(same[0], same[1], same[2]), (wide,), (single,), (same[3],)]


def test_a_killed_process_takes_up_all_of_its_trials_again(store: Store, journal: Path) -> None:
    """Each trial kills the process of all in its turn, and goes on in that of the next."""
    trials = [trial(journal, seed, "killed once") for seed in range(3)]
    launch_missing(trials, store, LocalLauncher(store, fakes.PROVENANCE, 2, fakes.WORK), retries=3)
    assert statuses(trials, store) == ["finished"] * 3
    assert fakes.runs(journal) == [trials[number].id for number in (0, 0, 1, 1, 2, 2)]
    one, two, same, three, again, four = processes(journal)
    assert two == same and three == again and len({one, two, three, four}) == 4
    for each in trials:
        record = store.read(each.id)
        assert record is not None and any("SIGKILL" in note for note in record.notes)


def test_what_becomes_of_one_is_recorded_for_it_alone(store: Store, journal: Path) -> None:
    behaviours = ["finish", "fail", "diverge", "misuse", "finish"]
    trials = [trial(journal, seed, behaviour) for seed, behaviour in enumerate(behaviours)]
    execute_together(trials, store, fakes.PROVENANCE, fakes.WORK)
    assert statuses(trials, store) == ["finished", "failed", "diverged", "failed", "finished"]
    assert not any(store.locked(each.id) for each in trials)
    execute_together(trials, store, fakes.PROVENANCE, fakes.WORK)
    assert Counter(fakes.runs(journal))[trials[0].id] == 1, "a finished trial is reused"


def test_folded_trials_have_the_records_of_single_ones(tmp_path: Path) -> None:
    tiny = [
        *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "task.batch_size=4", "model.d_model=16"),
        *("model.num_heads=2", "model.num_layers=1", "budget.steps=6", "eval.every=3", "eval.batches=1"),
        *("eval.final_batches=2", "trainer.precision=64-true", "probes=head_similarity"),
    ]
    records = []
    for name, fold in (("folded", 2), ("single", None)):
        store = Store(tmp_path / name)
        store.prepare()
        trials = [make_trial(compose([*tiny, f"seed={seed}", f"trainer.fold={fold or 'null'}"])) for seed in range(2)]
        execute_together(trials, store, fakes.PROVENANCE)
        records.append([store.find(each.id) for each in trials])
        assert all((store.directory(each.id) / "checkpoints" / "last.ckpt").is_file() for each in trials)
        assert all(list((store.directory(each.id) / "artifacts").glob("head_similarity*")) for each in trials)
    for folded, single in zip(*records, strict=True):
        assert folded.metrics == pytest.approx(single.metrics, rel=1e-9)
        assert folded.environment == {**single.environment, "folded": 2} and folded.id != single.id
        assert "folded 2" in folded.environment_class and "folded" not in single.environment_class
        assert (folded.status, folded.steps, folded.tokens, folded.evaluation) == (
            *(single.status, single.steps, single.tokens, single.evaluation),
        )


def test_as_many_are_computed_at_once_as_fit_into_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = compose(["task=copy"])
    needed = bytes_of_a_step(config)
    monkeypatch.setattr(folded_trials, "free_bytes", lambda accelerator: 5 * needed // 2)
    assert fitting(config, 2) == 2 and not caplog.messages
    assert fitting(config, 8) == 2
    assert "2 are computed at once" in caplog.messages[0]


def test_a_launcher_that_starts_each_trial_by_itself_says_so(journal: Path) -> None:
    require_single([fakes.trial(journal)], "slurm")
    with pytest.raises(UsageError, match="hydra/launcher=slurm starts each by itself; use hydra/launcher=local"):
        require_single([trial(journal, 0)], "slurm")
