"""A pairwise covering array: few configurations that hold every compatible pair, each trained on one batch."""

from __future__ import annotations

import math
import random
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from evidence.pairs.judge import Judge, Pair, PairVerdict, Setup
from evidence.pairs.stages import Option, options_of
from swapformer.study.config.compose import Config
from swapformer.task.base import Task
from swapformer.training.assemble import SLOTS, build_model
from swapformer.training.data import TrainingStream, drawn_position_range
from swapformer.training.module import TrialModule

STEPS = 20
"""Training steps of a row."""
TRIES = 12
"""How many options of a slot are tried, best first, before the slot keeps its default."""


@dataclass(frozen=True)
class CoveringRow:
    """One configuration of a covering array, and the pairs that it is the first to hold."""

    setup: Setup
    covers: frozenset[Pair]


def pair(first: Option, second: Option) -> Pair:
    """Two options in the order of their names."""
    return (first, second) if first <= second else (second, first)


def every_pair(slots: Sequence[str] = SLOTS) -> list[Pair]:
    """Every two options of two of these slots."""
    found = options_of(slots)
    return [pair(one, other) for one, other in combinations(found, 2) if one.slot != other.slot]


def pairs_in(options: Mapping[str, str]) -> Iterator[Pair]:
    """The pairs that a choice for every slot holds."""
    for one, other in combinations(map(Option._make, options.items()), 2):
        yield pair(one, other)


def cover(verdicts: Iterable[PairVerdict], judge: Judge, seed: int = 0) -> Iterator[CoveringRow]:
    """Yield rows until every compatible pair is in one.

    Each row starts from an accepted setup of a pair that no row has, and takes, slot after slot, the option that adds
    most pairs that no row has and that the study accepts (a greedy algorithm as in AETG, Cohen et al. 1997).
    `judge` says what is accepted; `seed`: of the order in which pairs are begun.
    """
    verdicts = list(verdicts)
    refused = {pair(*verdict.pair) for verdict in verdicts if not verdict.compatible}
    starts = {pair(*verdict.pair): verdict.setup for verdict in verdicts if verdict.compatible}
    order = sorted(starts)
    random.Random(seed).shuffle(order)
    missing = dict.fromkeys(order)
    while missing:
        first = next(iter(missing))
        setup = _filled(starts[first], judge, missing.keys(), refused)
        covers = frozenset(found for found in pairs_in(setup.stage.all_options(setup.options)) if found in missing)
        assert first in covers, f"the row of {first} must hold it"
        for found in covers:
            del missing[found]
        yield CoveringRow(setup, covers)


def _filled(setup: Setup, judge: Judge, missing: Iterable[Pair], refused: set[Pair]) -> Setup:
    """The setup with options in its free slots, each chosen for the missing pairs that it adds."""
    missing = set(missing)
    partners: dict[Option, set[Option]] = {}
    for one, other in missing:
        partners.setdefault(one, set()).add(other)
        partners.setdefault(other, set()).add(one)
    free = set(SLOTS) - {option.slot for option in setup.options} - {"topology"}
    while free:
        chosen = setup.options | {Option("topology", setup.stage.topology)}
        gains = {
            option: gain
            for option, others in partners.items()
            if option.slot in free
            and (gain := len(others & chosen))
            and not any(pair(option, other) in refused for other in chosen)
        }
        if not gains:
            return setup
        slot = max(gains, key=lambda option: (gains[option], option)).slot
        ranked = sorted((option for option in gains if option.slot == slot), key=lambda o: (-gains[o], o))
        for option in ranked[:TRIES]:
            tried = Setup(setup.stage, setup.options | {option}, setup.settings)
            if not judge.problems(tried):
                setup = tried
                break
        free.discard(slot)
    return setup


@dataclass(frozen=True)
class RowTraining:
    """The loss on a batch before the first training step and after the last; `fault` says why it failed."""

    start: float = math.nan
    end: float = math.nan
    fault: str | None = None


def train(config: Config, task: Task, steps: int = STEPS) -> RowTraining:
    """Train on one batch by the trial's own step, optimiser and schedule, and compare the loss before and after.

    There is no dropout, and all other random draws (stochastic depth, random positions) are those of a trial's first
    step at every step: so the two losses differ by the weights alone.
    """
    assert config["model"]["dropout"] == 0, "a batch's loss is compared without dropout"
    try:
        return _trained(config, task, steps)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{Path(frame.filename).name}, line {frame.lineno}"
        return RowTraining(fault=f"{type(error).__name__} where nothing should be raised ({line}): {error}")


def _trained(config: Config, task: Task, steps: int) -> RowTraining:
    device = torch.device("cuda" if config["trainer"]["accelerator"] == "gpu" else "cpu")
    model = build_model(config, task.interface).to(device)
    trial = TrialModule(model, task, config).train()
    share = next(iter(TrainingStream(task, config["data_seed"], 0, 1, 1, drawn_position_range(model))))
    share = share._replace(batch=share.batch.to(device))
    made: Any = trial.configure_optimizers()
    optimiser, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    start = math.nan
    for step in range(steps):
        optimiser.zero_grad()
        trial.training_step(share, 0).backward()  # type: ignore[no-untyped-call]
        start = float(trial.loss_share) if step == 0 else start
        gradients = ((name, each.grad) for name, each in model.named_parameters() if each.grad is not None)
        broken = next((name for name, gradient in gradients if not gradient.isfinite().all()), None)
        if broken is not None:
            return RowTraining(start, fault=f"at step {step}, the gradient of {broken} is not finite")
        trial.configure_gradient_clipping(optimiser, config["trainer"]["gradient_clip_val"])
        optimiser.step()
        schedule.step()
    trial.training_step(share, 0)
    end = float(trial.loss_share)
    if not end < start:  # nor if one is no number
        return RowTraining(start, end, f"the loss must fall in {steps} steps on one batch, but it goes {start} → {end}")
    return RowTraining(start, end)
