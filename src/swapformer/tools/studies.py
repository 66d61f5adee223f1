"""`swapformer study` and `swapformer report`: runs or reports a study, or every part of an exercise."""

from __future__ import annotations

import io
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swapformer.console import FAILED, guarded, terminal
from swapformer.errors import UsageError, quote
from swapformer.exercises import find
from swapformer.study.config import overrides as texts

if TYPE_CHECKING:
    from swapformer.report.build import Report
    from swapformer.results.store import Store
    from swapformer.study.plan import Plan
    from swapformer.study.run_study import StudyResult
    from swapformer.study.spec import Spec

FOR_EVERY_PART = ("scale", "runs_dir", "logger", "hydra.launcher")
"""What may be set for all parts of an exercise at once: nothing in it tells one trial from another."""
_PLUGINS = ("hydra.launcher", "hydra.sweeper")


@dataclass(frozen=True)
class Output:
    """The destinations of a command's results: also beside the study file, as JSON, with tracebacks of errors.

    `dry`: a study is not run, only what it would take is printed. `paper`: what is written for a paper. `report`:
    whether a study's page and figures are written; None: where something was trained.
    """

    publish: bool = False
    json: bool = False
    debug: bool = False
    dry: bool = False
    paper: tuple[str, ...] = ()
    report: bool | None = None


def study(name: str, overrides: Sequence[str], output: Output) -> int | None:
    """Run what a study lacks, or every part of an exercise; returns the exit status."""
    from swapformer.study.spec import load

    texts.check(overrides, "what follows the study's name")
    if output.dry and output.publish:
        raise UsageError("--dry-run runs nothing, so that there is nothing to --publish; remove one of them")
    if output.report is False and (output.dry or output.publish):
        what = "--dry-run builds no report" if output.dry else "--publish writes the report's table and figures"
        raise UsageError(f"{what}, so that --no-report says nothing or forbids it; remove one of them")
    found = find(name)
    if found.one:
        _run(name, overrides, output)
        return None
    for override in overrides:
        if not _within(override, FOR_EVERY_PART):
            raise UsageError(
                f"{quote(name)} has parts, and only scale, runs_dir, logger and the launcher are set for all of them, "
                f"but {quote(override)} was given; name one of {', '.join(found.studies)}"
            )
    for path in found.studies.values():  # what is wrong in any of the files is said before anything trains
        load(str(path), texts.value(overrides, "scale"))
    return _each(found.studies, lambda path: _run(str(path), overrides, output), output)


def _within(override: str, nodes: Sequence[str]) -> bool:
    """Whether an override is of one of some nodes of the configuration, or of a key in it."""
    key = texts.key(override).replace("/", ".")
    return any(key == node or key.startswith(f"{node}.") for node in nodes)


def _run(name: str, overrides: Sequence[str], output: Output) -> None:
    own = {key: texts.value(overrides, key) for key in ("scale", "seeds")}
    extra = [override for override in overrides if texts.key(override) not in own]
    if output.dry:
        _foretell(name, own, extra, output)
        return
    if any(_within(override, _PLUGINS) for override in extra):
        _through_hydra(name, own, extra, output)
        return
    from swapformer.study.spec import load, with_seeds

    spec = with_seeds(load(name, own["scale"]), own["seeds"])
    found = run_locally(spec, extra, output.publish, output.json, output.report)
    show_result(found, output.json)
    found.require_complete()


def _foretell(name: str, own: Mapping[str, str | None], extra: Sequence[str], output: Output) -> None:
    """Print what a study would take and could show, of a launcher only how many trials run at a time."""
    from swapformer.study.override_check import check_overrides
    from swapformer.study.spec import load, with_seeds

    settings = {texts.key(each): texts.value(extra, texts.key(each)) for each in extra if _within(each, _PLUGINS)}
    spec = with_seeds(load(name, own["scale"]), own["seeds"])
    extra = [each for each in extra if not _within(each, _PLUGINS)]
    check_overrides(spec, extra)  # what needs no torch to be known is said without
    from swapformer.study.expand import expand

    plan = expand(spec, extra)
    from swapformer.results.store import Store
    from swapformer.study.arm_differences import find_differences
    from swapformer.study.equal_arms import check_equal_arms
    from swapformer.study.launch.local import LocalLauncher
    from swapformer.study.launch.provenance import current_provenance
    from swapformer.study.manifest import find_axis
    from swapformer.study.messages import impossible_lines
    from swapformer.study.preview import preview
    from swapformer.yaml_reader import parse_yaml

    find_axis(plan)  # what a run would refuse is refused here
    store = Store(plan.shared_config["runs_dir"])
    equal = check_equal_arms(plan, store)
    chosen = {key: parse_yaml(settings.get(f"hydra.launcher.{key}") or "null") for key in ("slots", "slots_per_gpu")}
    elsewhere = settings.get("hydra/launcher", "local") != "local"
    launcher = None if elsewhere else LocalLauncher(store, current_provenance(), **chosen)
    slots = None if launcher is None else launcher.slots_here(plan.possible_trials)
    found = preview(plan, store, find_differences(plan), slots, memory=True, start=time.process_time())
    if output.json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        print(*found.lines(), *impossible_lines(plan), *equal, sep="\n")


def run_locally(
    spec: Spec,
    overrides: Sequence[str],
    publish: bool,
    quiet: bool,
    report: bool | None = None,
    minutes: float | None = None,
) -> StudyResult:
    """Run what a study lacks on this machine, with some overrides of all arms; trials are mirrored where that is asked.

    `report`: as in `Output`. `minutes`: one that would take longer, as far as that can be told, is refused.

    Raises what `expand` and `run_study` do.
    """
    from swapformer.study.override_check import check_overrides

    check_overrides(spec, overrides)  # what needs no torch to be known is said without
    from swapformer.study.expand import expand

    plan = expand(spec, overrides)  # what is wrong with a study is said before what runs and judges it is imported
    from swapformer.mirror.process import mirror_trials, study_targets
    from swapformer.results.store import Store
    from swapformer.study.equal_arms import check_equal_arms
    from swapformer.study.launch.local import LocalLauncher
    from swapformer.study.launch.provenance import current_provenance
    from swapformer.study.run_study import run_study

    store, provenance = Store(plan.shared_config["runs_dir"]), current_provenance()
    check_equal_arms(plan, store)  # before a mirror leaves anything in the store
    if minutes is not None:
        _require_short(plan, store, LocalLauncher(store, provenance).slots_here(plan.possible_trials), minutes)
    with mirror_trials(study_targets(plan), store):
        return run_study(
            plan,
            store,
            provenance,
            lambda progress: LocalLauncher(store, provenance, tick=progress.tick),
            publish,
            quiet=quiet,
            report=report,
        )


def _require_short(plan: Plan, store: Store, slots: int | None, minutes: float) -> None:
    from swapformer.study.arm_differences import find_differences
    from swapformer.study.launch.progress import human
    from swapformer.study.preview import preview

    seconds = preview(plan, store, find_differences(plan), slots).seconds
    if seconds > 60 * minutes:
        raise UsageError(
            f"{plan.spec.name} would take about {human(seconds)}, more than {minutes:g} minutes; allow them with "
            "--minutes, or give fewer seeds or steps"
        )


def _through_hydra(name: str, own: Mapping[str, str | None], extra: Sequence[str], output: Output) -> None:
    """Something about the launcher was asked for: the study as the Hydra sweep that it is."""
    from swapformer.study.launch.provenance import remember_command
    from swapformer.train import sweep

    remember_command()
    chosen = [f"hydra.sweeper.{key}={value}" for key, value in own.items() if value is not None]
    flags = {"publish": output.publish, "as_json": output.json}
    chosen += [f"hydra.sweeper.{key}=true" for key, given in flags.items() if given]
    chosen += [] if output.report is None else [f"hydra.sweeper.report={str(output.report).lower()}"]
    sweep([f"hydra.sweeper.study={json.dumps(name, ensure_ascii=False)}", *chosen, *extra])


def report(arguments: Sequence[str], output: Output) -> int | None:
    """Report a study from its store or its folder, every part of an exercise, or two studies side by side."""
    from swapformer.study.spec import published_folder
    from swapformer.tools.command_line import names_and_overrides, store_of, study_folder

    names, overrides = names_and_overrides(arguments)
    if len(names) == 2 and not output.publish and not output.paper:
        from swapformer.tools.compare_studies import run

        run(names, overrides, output.json)
        return None
    if len(names) != 1:
        what = (
            "only one study at a time can be written out"
            if output.publish or output.paper
            else "one study is reported, two compared"
        )
        raise UsageError(f"{what}, but {len(names)} were named")
    if Path(names[0]).is_dir():
        return _judge_again(names[0], overrides, output)
    store = store_of(overrides)
    folder = study_folder(store, names[0])
    publish_to = published_folder(store.study_name(folder)) if output.publish else None
    from swapformer.report.build import build  # late: what it needs takes as long to import as torch

    built = build(folder, store.runs_dir, publish_to, output.paper)
    show(built, built.as_dict(), output.json)
    return None


def _judge_again(folder: str, overrides: Sequence[str], output: Output) -> int | None:
    """A study, or every part of an exercise, from its folder only."""
    from swapformer.report.build import rebuild
    from swapformer.study.published_results import published_results

    if strange := [override for override in overrides if texts.key(override) != "scale"]:
        raise UsageError(f"a study is judged from its folder with scale=… only, but {quote(strange[0])} was given")

    def judge(path: Path) -> None:
        records, place = published_results(path, texts.value(overrides, "scale"))
        judged = rebuild(records, place, output.publish, output.paper)
        show(judged, judged.as_dict(), output.json)

    found = find(folder)
    if found.one:
        judge(next(iter(found.studies.values())))
        return None
    return _each(found.studies, judge, output)


def _each(studies: Mapping[str, Path], run: Callable[[Path], None], output: Output) -> int:
    """Run a command on one study after the other; one that fails loses no other, but Ctrl-C ends them all.

    Returns the worst exit status. The JSON of all is printed as one list.
    """
    worst, printed, interrupted = 0, [], False

    def attempt(path: Path) -> None:
        nonlocal interrupted
        try:
            run(path)
        except KeyboardInterrupt:
            interrupted = True
            raise

    for name, path in studies.items():
        print(f"swapformer: {name}", file=sys.stderr, flush=True)
        text = io.StringIO()
        with redirect_stdout(text) if output.json else nullcontext():
            try:
                status = guarded(partial(attempt, path), output.debug)
            except Exception:
                traceback.print_exc()
                status = FAILED
        worst = max(worst, status)
        printed += [json.loads(text.getvalue())] if text.getvalue() else []
        if interrupted:
            break
    if output.json:
        print(json.dumps(printed, indent=1))
    return worst


def show_result(found: StudyResult, as_json: bool) -> None:
    """Print the results of a study: its report, or without one how its trials ended."""
    if found.built is None:
        _show_statuses(found.to_json(), as_json)
    else:
        show(found.built, found.to_json(), as_json)


def _show_statuses(plain: Mapping[str, Any], as_json: bool) -> None:
    """Print how many trials of a study have which status."""
    counts = ", ".join(f"{count} {status}" for status, count in plain["trials"].items())
    print(json.dumps(plain, indent=1) if as_json else f"{plain['study']}: {counts}")


def show(report: Report, plain: Mapping[str, Any], as_json: bool) -> None:
    """Print a report, for people or for scripts."""
    if as_json:
        print(json.dumps(plain, indent=1))
    else:
        report.render(terminal())
