"""`swapformer check pairs`: judges options of different slots two by two, and trains rows that hold them."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from swapformer.console import at_least
from swapformer.errors import UsageError, suggest
from swapformer.study.config.compose import task_of
from swapformer.tools.command_line import add_common
from swapformer.tools.pairs.judge import Judge, PairVerdict
from swapformer.tools.pairs.rows import STEPS, CoveringRow, RowTraining, cover, every_pair, train
from swapformer.tools.pairs.stages import Option, options_of, stages
from swapformer.training.assemble import SLOTS


@dataclass
class PairFindings:
    """The verdicts on pairs, and the rows that were trained for them; `of`: the options that were asked about."""

    verdicts: list[PairVerdict]
    seconds: float = 0.0
    trained: list[tuple[CoveringRow, RowTraining]] = field(default_factory=list)
    need_gpu: list[CoveringRow] = field(default_factory=list)
    of: tuple[Option, ...] = ()

    @property
    def goes_with(self) -> dict[Option, tuple[int, int]]:
        """Each option of `of` → with how many options of other slots it goes together, and of how many."""
        own = {option: [v.compatible for v in self.verdicts if option in v.pair] for option in self.of}
        return {option: (sum(compatible), len(compatible)) for option, compatible in own.items()}

    @property
    def faults(self) -> list[str]:
        """Refusals with a defect, and rows that do not train."""
        found = [f"{_spelled(v)}: {fault}" for v in self.verdicts for fault in v.faults]
        rows = [(row, outcome.fault) for row, outcome in self.trained if outcome.fault]
        return found + [f"{row.setup.stage.name}: {' '.join(row.setup.overrides)}: {fault}" for row, fault in rows]

    def as_dict(self) -> dict[str, Any]:
        """The findings as plain data, for scripts."""
        return {
            "pairs": len(self.verdicts),
            "compatible": sum(verdict.compatible for verdict in self.verdicts),
            "refused": [
                {"pair": [str(option) for option in v.pair], "reasons": v.reasons, "faults": v.faults}
                for v in self.verdicts
                if not v.compatible
            ],
            "rows": [
                {"stage": row.setup.stage.name, "overrides": row.setup.overrides, **vars(outcome)}
                for row, outcome in self.trained
            ],
            "rows_elsewhere": [row.setup.overrides for row in self.need_gpu],
            "goes_with": {str(option): counts for option, counts in self.goes_with.items()},
            "faults": self.faults,
            "seconds": round(self.seconds, 1),
        }


def main(arguments: Sequence[str]) -> int:
    """Judge the pairs, and train them if asked; returns 1 if there is a fault, else 0."""
    options = parser().parse_args(arguments)
    chosen = frozenset(map(_option, options.of))
    found = check_pairs(_slots(options.slots), options.sample, options.seed, training=options.train, of=chosen)
    print(json.dumps(found.as_dict(), indent=1) if options.json else "\n".join(_lines(found)))
    return int(bool(found.faults))


def check_pairs(
    slots: Sequence[str] = SLOTS,
    sample: int | None = None,
    seed: int = 0,
    *,
    training: bool = False,
    of: Collection[Option] = (),
) -> PairFindings:
    """The findings on all pairs of these slots, or those that hold one of the options `of`, or a sample of them."""
    start, judge, pairs = time.monotonic(), Judge(stages()), every_pair(slots)
    pairs = [pair for pair in pairs if not of or not set(of).isdisjoint(pair)]
    if sample is not None and sample < len(pairs):
        pairs = random.Random(seed).sample(pairs, sample)
    found = PairFindings([judge.judge(pair) for pair in pairs], of=tuple(sorted(of)))
    for row in cover(found.verdicts, judge, seed) if training else ():
        config = row.setup.stage.configure(row.setup.options, row.setup.settings)
        if config["trainer"]["accelerator"] == "gpu" and not torch.cuda.is_available():
            found.need_gpu.append(row)
        else:
            found.trained.append((row, train(config, task_of(config))))
    found.seconds = time.monotonic() - start
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="swapformer check pairs",
        description="Judge every two options of two slots: they go together, or are refused with the reason and what "
        "would work, and every way that is named is tried.",
    )
    made.add_argument("--slots", help="only pairs of these slots, such as position,attention")
    made.add_argument(
        "--train",
        action="store_true",
        help=f"train {STEPS} steps on one batch for rows that hold every compatible pair between them",
    )
    made.add_argument(
        "--of",
        action="append",
        default=[],
        metavar="OPTION",
        help="only pairs with this option, such as model/attention=linear, and how many it goes with; may be repeated",
    )
    made.add_argument("--sample", type=at_least(1), metavar="N", help="only N of the pairs")
    made.add_argument("--seed", type=int, default=0, help="of the sample and of the rows' order")
    return add_common(made)


def _option(text: str) -> Option:
    known = {str(option): option for option in options_of(SLOTS)}
    if text not in known:
        hint = suggest(text, known)
        raise UsageError(f"--of names an option, such as model/attention=linear, but {text!r} is none{hint}")
    return known[text]


def _slots(given: str | None) -> Sequence[str]:
    if given is None:
        return SLOTS
    slots = given.split(",")
    for slot in slots:
        if slot not in SLOTS:
            raise UsageError(
                f"--slots names slots, such as position,attention, but {slot!r} is none{suggest(slot, SLOTS)}"
            )
    if len(set(slots)) < 2:
        other = next(slot for slot in SLOTS if slot not in slots)
        raise UsageError(f"a pair needs two slots, but --slots names only {given}; try --slots {slots[0]},{other}.")
    return tuple(dict.fromkeys(slots))


def _spelled(verdict: PairVerdict) -> str:
    return " ".join(map(str, verdict.pair))


def _lines(found: PairFindings) -> Iterator[str]:
    by_reason: dict[str, list[PairVerdict]] = defaultdict(list)
    for verdict in found.verdicts:
        if not verdict.compatible:
            by_reason[" ".join(verdict.reasons)].append(verdict)
    for reason, verdicts in by_reason.items():
        yield from (f"✗ {_spelled(verdict)}" for verdict in verdicts)
        yield f"    {reason}"
    yield ""
    yield from (f"FAULT {fault}" for fault in found.faults)
    for option, (together, judged) in found.goes_with.items():
        yield f"{option} goes with {together} of {judged} options of other slots"
    refused = sum(map(len, by_reason.values()))
    yield (
        f"pairs: {len(found.verdicts)}, of which {len(found.verdicts) - refused} go together and {refused} are "
        f"refused; faults: {len(found.faults)}; {found.seconds:.0f} s"
    )
    if found.trained or found.need_gpu:
        falling = sum(outcome.fault is None for _, outcome in found.trained)
        yield f"rows: {len(found.trained)} trained {STEPS} steps on one batch, and in {falling} the loss fell"
    if found.need_gpu:
        yield f"rows that need a GPU, and were not trained: {len(found.need_gpu)}"
