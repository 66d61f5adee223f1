"""Trials that begin with the state of a shorter one: held, bit by bit, to the same trials trained by themselves."""

from __future__ import annotations

import csv
import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch

from study import fakes
from swapformer.results.branch_points import BranchPoint, announce, stable_path
from swapformer.results.history import SECONDS
from swapformer.results.record import Record, TakenOver
from swapformer.results.store import Store
from swapformer.study.config.compose import compose, trial_id
from swapformer.study.config.identity import identity, trajectory_id
from swapformer.study.expand import expand
from swapformer.study.launch import branches
from swapformer.study.launch.branches import Branch, shorter_first, taken_over_line
from swapformer.study.launch.trial import Trial, execute
from swapformer.study.plan import make_trial
from swapformer.study.run_study import plain_sweep, run_study
from swapformer.training.callbacks import Checkpoints
from swapformer.training.schedule import StableDecaySchedule

TINY = [
    *("task=copy", "task.lengths=[2,5]", "task.eval_lengths=[8]", "task.batch_size=8", "model.d_model=16"),
    *("model.num_heads=2", "model.num_layers=1", "model.dropout=0.1", "schedule=wsd", "schedule.warmup_steps=5"),
    *("eval.every=6", "eval.batches=2", "eval.final_batches=3", "checkpoint_every=10", "log_every=5"),
]
SHORT, LONG = 20, 40
STABLE = {SHORT: 17, 30: 25, LONG: 33}
"""Steps before the decay, of a fifth of the steps after the warm-up."""


def make(steps: int, *overrides: str) -> Trial:
    return make_trial(compose([*TINY, f"budget.steps={steps}", *overrides]))


def run(store: Store, trial: Trial) -> Record:
    record = execute(trial, store, fakes.PROVENANCE, computes=True)
    assert record is not None
    return record


def taken(record: Record) -> TakenOver:
    """What a trial did not compute itself."""
    assert record.taken_over is not None
    return record.taken_over


@dataclass(frozen=True)
class Run:
    """What a trial left but for seconds: its record, its last checkpoint, its history."""

    record: Record
    state: dict[str, Any]
    history: list[list[str]]


def left(store: Store, trial: Trial) -> Run:
    folder = store.directory(trial.id)
    record = store.read(trial.id)
    assert record is not None
    state = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    for held in state["callbacks"].values():
        held.pop("seconds", None)
    with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return Run(record, state, [row for row in csv.reader(file) if row[1] != SECONDS])


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal bit by bit, whatever they are nested in."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


RESULTS = ("status", "metrics", "standard_errors", "evaluation", "baselines", "steps", "tokens", "parameters", "notes")


def equal(one: Run, other: Run) -> bool:
    results = all(getattr(one.record, name) == getattr(other.record, name) for name in RESULTS)
    return results and same(one.state, other.state) and one.history == other.history


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """A trial of 40 steps in a store of its own, by its overrides."""
    known: dict[tuple[str, ...], Run] = {}

    def trained(*overrides: str) -> Run:
        if overrides not in known:
            store, trial = Store(tmp_path_factory.mktemp("alone")), make(LONG, *overrides)
            assert run(store, trial).taken_over is None
            known[overrides] = left(store, trial)
        return known[overrides]

    return trained


@pytest.fixture
def branched(store: Store) -> Callable[..., Run]:
    """The same trial, behind one of 20 steps in the same store."""

    def trained(*overrides: str, before: Sequence[str] | None = None) -> Run:
        run(store, make(SHORT, *(overrides if before is None else before)))
        trial = make(LONG, *overrides)
        run(store, trial)
        return left(store, trial)

    return trained


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("eval/average=ema", "task.batch_size=6", "trainer.accumulate_grad_batches=2"),
        ("eval/average=last", "eval.every=17"),  # an evaluation at the very step
        pytest.param(("optim=adafactor", "schedule.shape=linear"), marks=pytest.mark.evidence),
        pytest.param(("model/norm=batchnorm", "checkpoint_every=17"), marks=pytest.mark.evidence),
        pytest.param(("trainer.precision=64-true", "model/residual=stochastic_depth"), marks=pytest.mark.evidence),
    ],
)
def test_a_longer_trial_ends_bit_equal_to_one_that_began_by_itself(
    overrides: tuple[str, ...], alone: Callable[..., Run], branched: Callable[..., Run]
) -> None:
    found = branched(*overrides)
    assert taken(found.record).steps == STABLE[SHORT]
    assert taken(found.record).trial == make(SHORT, *overrides).id
    assert equal(found, alone(*overrides))


def test_a_trial_that_starts_from_others_weights_does_so_too(store: Store, tmp_path: Path) -> None:
    source = make(7, "schedule=constant", f"runs_dir={store.runs_dir}", "seed=3")
    run(store, source)
    start = (f"init_from={source.id}", f"runs_dir={store.runs_dir}")
    first, trial = make(SHORT, *start), make(LONG, *start)
    run(store, first)
    assert taken(run(store, trial)).trial == first.id
    other = Store(tmp_path / "other")
    run(other, trial)
    assert equal(left(store, trial), left(other, trial))
    assert any(note.startswith("init_from=") for note in left(store, trial).record.notes)


def test_a_chain_begins_each_time_with_the_latest_state_that_is_not_too_late(store: Store) -> None:
    ids = {steps: run(store, make(steps)).id for steps in (SHORT, LONG)}
    between, longest = run(store, make(30)), run(store, make(60))
    assert taken(between).trial == ids[SHORT] and taken(between).steps == STABLE[SHORT]
    assert taken(longest).trial == ids[LONG] and taken(longest).steps == STABLE[LONG]
    saved, whole = 17 + 17 + 33, 20 + 40 + 30 + 60
    line = taken_over_line([make(steps) for steps in (SHORT, LONG, 30, 60)], store)
    assert line == f"{saved} of {whole} steps were taken over from shorter trials"
    assert taken_over_line([make(SHORT)], store) is None


def test_another_decay_begins_with_the_same_state(alone: Callable[..., Run], branched: Callable[..., Run]) -> None:
    other = ("schedule.shape=linear", "schedule.final=0.1", "schedule.decay=0.5", "eval.final_batches=4")
    found = branched(*other, before=())
    assert taken(found.record).steps == STABLE[SHORT]
    assert equal(found, alone(*other))


class TestAFaultWouldShow:
    def test_a_state_from_one_step_within_the_decay(
        self, alone: Callable[..., Run], branched: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        right = StableDecaySchedule.stable_steps
        monkeypatch.setattr(StableDecaySchedule, "stable_steps", lambda self, steps: right(self, steps) + 1)
        found = branched()
        assert taken(found.record).steps == STABLE[SHORT] + 1
        assert not same(found.state["state_dict"], alone().state["state_dict"])
        assert not equal(found, alone())

    @pytest.mark.parametrize(
        ("forgotten", "before"), [("seed", ("seed=1", "data_seed=0")), ("optim", ("optim.lr=0.01",))]
    )
    def test_a_trajectory_that_lacks_a_setting(
        self,
        forgotten: str,
        before: tuple[str, ...],
        alone: Callable[..., Run],
        branched: Callable[..., Run],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def careless(trial: Trial) -> str:
            left_out = ("budget", "schedule", "eval", forgotten)
            text = repr({key: value for key, value in identity(trial.config).items() if key not in left_out})
            return hashlib.sha256(text.encode()).hexdigest()[:16]

        assert trajectory_id(make(SHORT, *before).config) != trajectory_id(make(LONG).config)
        monkeypatch.setattr(branches, "_trajectory", careless)
        found = branched(before=before)
        assert found.record.taken_over, "the fault is at work"
        assert not equal(found, alone())


class TestATrajectory:
    @pytest.mark.parametrize(
        "override",
        [
            *("seed=1", "data_seed=7", "optim.lr=0.01", "optim.weight_decay=0.3", "schedule.warmup_steps=6"),
            *("model.d_model=32", "model.dropout=0", "task.batch_size=9", "eval.every=7", "eval.batches=3"),
            *("log_every=4", "divergence=5", "trainer.precision=64-true", "trainer.threads=2", "eval/average=ema"),
            *("trainer.accumulate_grad_batches=2", "trainer.gradient_clip_val=0.5", "optim.freeze=[token_embedding]"),
        ],
    )
    def test_is_another_with_another(self, override: str) -> None:
        assert trajectory_id(make(SHORT, override).config) != trajectory_id(make(SHORT).config)

    @pytest.mark.parametrize(
        "overrides",
        [
            *(("budget.steps=99",), ("budget.steps=null", "budget.tokens=9999"), ("schedule.decay=0.4",)),
            *(("schedule.final=0.2",), ("schedule.shape=linear",), ("eval.final_batches=7",), ("checkpoint_every=3",)),
        ],
    )
    def test_is_the_same_whatever_comes_after_it(self, overrides: tuple[str, ...]) -> None:
        one = make(SHORT, *overrides)
        assert trajectory_id(one.config) == trajectory_id(make(SHORT).config)

    def test_and_whether_states_are_kept_leave_the_id_of_a_trial_as_it_was(self) -> None:
        """Of a configuration from before there was such a key, too."""
        config = make(SHORT).config
        assert trial_id(make(SHORT, "budget.branch=false").config) == trial_id(config)
        assert trial_id({**config, "budget": {"steps": SHORT}}) == trial_id(config)


def test_nothing_is_kept_nor_taken_over_where_it_is_not_asked_for(store: Store) -> None:
    run(store, make(SHORT, "budget.branch=false"))
    assert not (store.runs_dir / "branches").exists()
    assert run(store, make(LONG)).taken_over is None
    assert run(store, make(60, "budget.branch=false")).taken_over is None


def flipped(content: bytes) -> bytes:
    """The content with one bit of a weight turned."""
    weights = torch.load(BytesIO(content), weights_only=True)["state_dict"]
    place = content.index(next(iter(weights.values())).numpy().tobytes())
    found = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    torch.load(BytesIO(found), weights_only=True)  # without complaint
    return found


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[: len(content) // 2], lambda content: b"", flipped],
    ids=["cut", "empty", "flipped"],
)
def test_a_damaged_state_is_told_and_the_trial_trained_by_itself(
    damage: Callable[[bytes], bytes], store: Store, alone: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    short = run(store, make(SHORT))
    path = stable_path(store.directory(short.id))
    path.write_bytes(damage(path.read_bytes()))
    assert run(store, make(LONG)).taken_over is None
    assert f"cannot begin with the state of trial {short.id} after step 17" in caplog.text
    assert equal(left(store, make(LONG)), alone())


def test_the_state_of_another_step_is_not_taken(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    short, trial = run(store, make(SHORT)), make(LONG)
    store.runs_dir.joinpath("branches", trajectory_id(trial.config), f"17-{short.id}").unlink()
    announce(store, trajectory_id(trial.config), BranchPoint(16, short.id))
    assert run(store, trial).taken_over is None
    assert "does not hold the state after step 16" in caplog.text


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may run after it."""


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("before", marks=pytest.mark.evidence),
        "between",
        pytest.param("after", marks=pytest.mark.evidence),
        "trained on",
    ],
)
def test_a_trial_that_was_killed_goes_on_and_counts_the_seconds_once(
    moment: str, store: Store, alone: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the files lie in its folder, with the history alone, with both, and ten steps later."""
    short, trial = run(store, make(SHORT)), make(LONG)
    place, ended = Branch.place, Checkpoints.on_train_batch_end

    def dying(self: Branch, folder: Path) -> None:
        if moment == "between":
            (folder / "metrics.csv").write_text(self.history)
        if moment == "after":
            place(self, folder)
        raise Killed

    def stopping(self: Checkpoints, trainer: Any, *args: Any) -> None:
        ended(self, trainer, *args)
        if trainer.global_step == 31:  # the checkpoint of step 30 is there
            raise Killed

    with monkeypatch.context() as patch:
        if moment == "trained on":
            patch.setattr(Checkpoints, "on_train_batch_end", stopping)
        else:
            patch.setattr(Branch, "place", dying)
        with pytest.raises(Killed):
            run(store, trial)
    killed = store.read(trial.id)
    assert killed is not None and killed.status == "killed"
    found = run(store, trial)
    begun = taken(found)
    assert begun.trial == short.id and begun.steps == 17 and found.attempts == 2
    assert 0 < begun.seconds <= short.seconds
    assert begun.seconds < found.seconds < begun.seconds + 600
    assert killed.seconds == pytest.approx(begun.seconds), "its own time is lost with the process"
    ours, theirs = left(store, trial), alone()
    assert same(ours.state, theirs.state) and ours.history == theirs.history
    assert ours.record.metrics == theirs.record.metrics and ours.record.tokens == theirs.record.tokens


def test_a_disk_without_room_for_the_state_fails_the_trial_and_says_so(
    store: Store, alone: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store, make(SHORT))

    def full(self: Branch, folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    with monkeypatch.context() as patch:
        patch.setattr(Branch, "place", full)
        failed = run(store, make(LONG))
    assert failed.status == "failed" and "No space left" in (failed.reason or "")
    assert taken(run(store, make(LONG))).steps == STABLE[SHORT]
    assert equal(left(store, make(LONG)), alone())


def test_seconds_are_those_of_the_whole_training(store: Store) -> None:
    run(store, make(SHORT))
    trial = make(LONG)
    found = run(store, trial)
    state = torch.load(stable_path(store.directory(trial.id)), weights_only=True)
    own = found.seconds - taken(found).seconds
    assert taken(found).seconds > 0 and own > 0
    assert state["branch"]["seconds"] > taken(found).seconds, "a third trial takes over the seconds of both"


def test_a_checkpoint_that_was_damaged_later_starts_the_trial_by_itself(
    store: Store, alone: Callable[..., Run]
) -> None:
    """Then nothing was taken over any more, and the seconds of others do not count."""
    run(store, make(SHORT))
    trial = make(LONG)
    assert run(store, trial).taken_over
    folder = store.directory(trial.id)
    record = store.read(trial.id)
    assert record is not None
    store.write(record.but(status="interrupted"))
    (folder / "checkpoints" / "last.ckpt").write_bytes(b"cut")
    found = run(store, trial)
    assert found.taken_over is None and any("corrupt checkpoint set aside" in note for note in found.notes)
    assert found.seconds > record.seconds - taken(record).seconds
    assert left(store, trial).history == alone().history and same(left(store, trial).state, alone().state)


def test_shorter_trials_come_first_and_all_else_stays_in_its_order() -> None:
    plain = [make(9, "schedule=cosine"), make(8, "schedule=cosine")]
    trials = [plain[0], make(60), make(SHORT), make(LONG), plain[1], make(LONG, "seed=1"), make(SHORT, "seed=1")]
    order = [(each.config["budget"]["steps"], each.config["seed"]) for each in shorter_first(trials)]
    assert order == [(9, 0), (20, 0), (8, 0), (20, 1), (40, 0), (40, 1), (60, 0)]
    assert shorter_first(plain) == plain
    assert [each.id for each in shorter_first([make(LONG)])] == [make(LONG).id]


def test_a_study_of_budgets_starts_the_shortest_first_and_says_what_that_saved(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """The longer budget is its first arm; with two seeds 2 · 17 of 2 · 60 steps are not computed again."""
    shared = [*TINY, f"runs_dir={store.runs_dir}"]
    jobs = [[*shared, f"budget.steps={steps}", f"seed={seed}"] for steps in (LONG, SHORT) for seed in (0, 1)]
    plan = expand(plain_sweep(jobs))

    def launch(trials: Sequence[Trial]) -> None:
        for trial in trials:
            run(store, trial)

    run_study(plan, store, fakes.PROVENANCE, lambda progress: launch, report=False)
    assert "swapformer: 34 of 120 steps were taken over from shorter trials" in capsys.readouterr().err
    records = [store.read(trial.id) for trial in plan.trials]
    assert sorted((found.steps, found.taken_over is not None) for found in records if found is not None) == [
        *[(SHORT, False)] * 2,
        *[(LONG, True)] * 2,
    ]
