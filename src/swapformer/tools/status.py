"""`swapformer status`: prints the progress of a study, also while it runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from swapformer.console import CommandLine
from swapformer.errors import UsageError
from swapformer.results.record import CORRUPT, MISSING, STATUSES
from swapformer.results.store import Store
from swapformer.study.launch.progress import human
from swapformer.study.status import StudyStatus, study_status
from swapformer.tools.command_line import add_common, names_and_overrides, store_of, studies, study_folder


def main(arguments: Sequence[str]) -> int:
    """Print the state of one study, or of all that were run here; returns the exit status."""
    options = parser().parse_intermixed_args(arguments)
    names, overrides = names_and_overrides(options.arguments)
    store = store_of(overrides)
    if len(names) > 1:
        raise UsageError(f"one study is shown at a time, but {len(names)} were named; without a name all are listed")
    known = studies(store)
    shown = [name for name in known if name.startswith(f"{names[0]}/")] if names else known
    one = bool(names) and (names[0] in known or len(shown) < 2)  # else an exercise with several parts
    chosen = [study_folder(store, names[0])] if one else [store.studies / name for name in shown]
    found = [study_status(folder, store) for folder in chosen] if one else list(_readable(chosen, store))
    if not chosen:
        print(f"swapformer: no study in {store.studies}", file=sys.stderr)
    if options.json:
        plain = [{**asdict(state), "counts": dict(state.counts)} for state in found]
        print(json.dumps(plain[0] if one else plain, indent=1))
    elif one:
        print("\n".join(_details(found[0])))
    else:
        for state in found:
            print(_summary(state))
    return 0


def _readable(folders: Sequence[Path], store: Store) -> Iterator[StudyStatus]:
    """The state of every study; one whose manifest is damaged is named, and the others are shown."""
    for folder in folders:
        try:
            yield study_status(folder, store)
        except UsageError as error:
            print(f"swapformer: {error}", file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = CommandLine(
        prog="swapformer status",
        description="Where a study stands, also while it runs: trials by arm, how far those that run have got, the "
        "time that is left, and why trials have stopped without a result. Without a name: one line for each study "
        "that was run here; with an exercise's, for each of its parts.",
    )
    made.add_argument("arguments", nargs="*", metavar="STUDY | runs_dir=…", help="the study, or the beginning of it")
    return add_common(made)


def _summary(state: StudyStatus) -> str:
    total = sum(state.counts.values())
    shown = ", ".join(f"{count} {status}" for status in _order(state) if (count := state.counts[status]))
    left = "" if state.left is None else f", about {human(state.left)} left"
    return f"{state.study}: {total} trials: {shown}{left}"


def _details(state: StudyStatus) -> Iterator[str]:
    yield _summary(state)
    yield ""
    order = _order(state)
    rows = {**state.arms, **({"(tuning)": state.tuning} if state.tuning else {})}
    width = max(len("arm"), *(len(arm) for arm in (*rows, *state.impossible)))
    yield "  ".join([f"{'arm':{width}}", *(f"{status:>11}" for status in order)])
    for arm, counts in rows.items():
        yield "  ".join([f"{arm:{width}}", *(f"{counts.get(status, 0) or '·':>11}" for status in order)])
    for arm, reason in state.impossible.items():
        yield f"{arm:{width}}  impossible: {reason}"
    if state.running:
        yield ""
    for trial in state.running:
        of = f" of {trial.steps} ({trial.share:4.0%})" if trial.steps else ""
        left = "" if trial.left is None else f"  about {human(trial.left)} left"
        again = f"  attempt {trial.attempt}" if trial.attempt > 1 else ""
        yield f"{trial.trial}  {trial.arm:{width}}  seed {trial.seed}  step {trial.step}{of}{left}{again}"
    if state.stopped:
        yield ""
    for lost in state.stopped:
        attempts = f" after {lost.attempts} attempts" if lost.attempts > 1 else ""
        yield f"{lost.trial}  {lost.arm:{width}}  seed {lost.seed}  {lost.status}{attempts}: {lost.reason}"


def _order(state: StudyStatus) -> list[str]:
    """The statuses to show: finished, running and missing always, others where they occur."""
    always = ("finished", "running", MISSING)
    order = dict.fromkeys(("finished", *STATUSES, CORRUPT, MISSING))
    return [status for status in order if status in always or state.counts[status]]
