"""Trains one configuration as one trial in this process, through the store; with `-m` Hydra sweeps over many."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from swapformer.console import Failed, few_collections, guarded
from swapformer.errors import UsageError, quote, suggest
from swapformer.mirror.follower import Target
from swapformer.mirror.process import mirror_trials
from swapformer.paths import conf_dir, environment
from swapformer.results import record as records
from swapformer.results.artifacts import probe_keys
from swapformer.results.store import Store
from swapformer.study.config.hydra_errors import explained
from swapformer.study.config.overrides import of_whole_model
from swapformer.study.launch.missing_trials import launch_missing
from swapformer.study.launch.provenance import current_provenance, remember_command
from swapformer.study.launch.trial import Trial, execute

FLAGS = (
    *("-m", "--multirun", "-r", "--run", "-c", "--cfg", "--resolve", "-p", "--package", "-cd", "--config-dir"),
    *("-cn", "--config-name", "-cp", "--config-path", "-i", "--info", "-sc", "--shell-completion", "--hydra-help"),
    *("--version", "--experimental-rerun", "-h", "--help", "--debug"),
)
"""The options of the command: Hydra's own, and `-h`, `--help` and `--debug`, which are ours."""
_WITH_VALUE = ("-c", "--cfg", "-p", "--package", "-cd", "--config-dir", "-cn", "--config-name", "-cp", "--config-path",
               "-i", "--info")  # fmt: skip
"""The options that take a value."""
_INFO_OPTIONS = ("-i", "--info")
_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
"""The values of `--info`, which may also have none."""


_MEASURED = 8
"""Metrics of a measurement that are printed."""


class TrialFailed(Failed):
    """A trial has no result; the message says why."""


_raised: list[Exception] = []


@hydra.main(config_path=str(conf_dir()), config_name="train", version_base="1.3")
def train(composed: DictConfig) -> float:
    """Run, resume or reuse the trial of a composed config; returns `val/loss`, which sweepers may minimise."""
    try:
        return _train(composed)
    except Exception as error:
        if HydraConfig.get().mode is RunMode.MULTIRUN:
            raise
        _raised.append(error)  # past Hydra, which would print a line of its own about it
        return float("nan")


def _train(composed: DictConfig) -> float:
    with few_collections():  # torch comes with these
        from swapformer.study.config import budget, compose
    from swapformer.study.plan import make_trial

    with explained():
        resolved = compose.finalise(composed)
    compose.check(resolved)
    for line in budget.lines(resolved):
        print(f"swapformer: {line}", file=sys.stderr)
    trial = make_trial(resolved)
    store = Store(resolved["runs_dir"])
    reused = (found := store.read(trial.id)) is not None and found.final

    def launch(trials: Sequence[Trial]) -> None:
        for missing in trials:
            execute(missing, store, current_provenance())

    hydra_config = HydraConfig.get()  # our sweeper mirrors all jobs that it starts itself
    by_study = hydra_config.mode is RunMode.MULTIRUN and "swapformer" in str(hydra_config.sweeper._target_)
    with mirror_trials([] if by_study else [(Target(trial.id, probes=probe_keys(resolved)), resolved)], store):
        launch_missing([trial], store, launch)
    value = objective(trial, store)
    _print_result(trial, store, reused)
    return value


def objective(trial: Trial, store: Store) -> float:
    """The trial's `val/loss`: infinite when it diverged, nan when it measures none.

    Raises TrialFailed when it has no result.
    """
    record = store.read(trial.id)
    if record is None:
        raise TrialFailed(f"trial {trial.id} left no record; see {store.directory(trial.id)}")
    if record.status == records.INTERRUPTED:
        raise KeyboardInterrupt
    if not record.final:
        raise TrialFailed(f"trial {trial.id} {record.status}: {record.reason}")
    return record.metrics.get("val/loss", float("inf" if record.status == records.DIVERGED else "nan"))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of a training; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    if {"-h", "--help"} & set(given):
        from swapformer.catalogue import train_help

        print(train_help())
        return 0

    remember_command()
    return guarded(lambda: _hydra(given), debug)


def sweep(overrides: Sequence[str]) -> None:
    """Sweep as `-m OVERRIDES` does, but let errors pass through."""
    _hydra(["-m", *overrides])


def _hydra(arguments: Sequence[str]) -> None:
    _check_options(arguments)
    _check_sweep(arguments)
    arguments = of_whole_model(arguments)
    sys.argv[1:] = _options_first(arguments)
    if set(_INFO_OPTIONS) & {argument.partition("=")[0] for argument in arguments}:
        for ours in [each for each in logging.getLogger().handlers if type(each) is logging.StreamHandler]:
            logging.getLogger().removeHandler(ours)  # Hydra logs what it tells by its own: else all would stand twice
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    with (
        environment({"HYDRA_FULL_ERROR": "1"}),
        explained(overrides),
    ):  # else Hydra prints errors and exits with 1
        train()
        if _raised:
            raise _raised.pop()


def _check_options(arguments: Sequence[str]) -> None:
    """Raise UsageError for an option that Hydra does not know, that appears twice, or has no value that it may have."""
    given: set[str] = set()
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        option, has_value, value = argument.partition("=")
        if not argument.startswith("-"):
            continue
        if option not in FLAGS:
            raise UsageError(f"unknown option {argument}{suggest(argument, FLAGS)}")
        if option in given:
            raise UsageError(f"the option {option} was given twice; remove one")
        given.add(option)
        if option in _INFO_OPTIONS:
            value = value if has_value or _is_override(following) else following
            if value and value not in _INFO:
                raise UsageError(f"{option} has no value {quote(value)}{suggest(value, _INFO)}")


def _check_sweep(arguments: Sequence[str]) -> None:
    """Raise UsageError for a sweep of which one configuration should be shown, and for its settings without one."""
    options = {argument.partition("=")[0] for argument in arguments if argument.startswith("-")}
    shown = options & {"-c", "--cfg", "-i", "--info"}
    if options & {"-m", "--multirun"} or "hydra.mode=MULTIRUN" in arguments:
        if shown and options & {"-m", "--multirun"}:
            raise UsageError(
                f"{min(shown)} shows one configuration, not a sweep: leave out -m, and give each key one value; "
                "hydra.sweeper and hydra.launcher stand in `--cfg hydra` without -m too"
            )
    elif not shown:
        for argument in arguments:
            if argument.startswith("hydra.sweeper.") and "=" in argument:
                raise UsageError(f"{argument.partition('=')[0]} is a setting of a sweep; add -m, or leave it out")


def _is_override(argument: str) -> bool:
    """Whether a word behind `--info` is not its value."""
    return argument.startswith(("-", "+", "~")) or "=" in argument


def _options_first(arguments: Sequence[str]) -> list[str]:
    """Hydra's parser wants options, and the values of those that take one, before the overrides."""
    options, overrides = [], []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-"):
            overrides.append(argument)
        elif argument in _INFO_OPTIONS and (not rest or _is_override(rest[0])):
            options.append(f"{argument}=all")  # its value may be left out, and an override is none
        else:
            options += [argument, *([rest.pop(0)] if argument in _WITH_VALUE and rest else [])]
    return [*options, *overrides]


def _print_result(trial: Trial, store: Store, reused: bool) -> None:
    record = store.read(trial.id)
    assert record is not None, "objective has read it"
    shown = {name: value for name, value in record.metrics.items() if name.startswith("val/") and "@" not in name}
    numbers = "  ".join(f"{name} {value:.4g}" for name, value in sorted(shown.items()))
    if not shown and record.metrics:  # of a measurement
        measured = [f"{name} {value:.4g}" for name, value in record.metrics.items()]
        more = f"  and {len(measured) - _MEASURED} more" if len(measured) > _MEASURED else ""
        numbers = "  ".join(measured[:_MEASURED]) + more
    print(f"trial {trial.id} {record.status}{' (from the store)' if reused else ''}: {numbers or record.reason}")
    print(f"in {store.directory(trial.id)}")
    for note in record.notes:
        print(f"note: {note}")


if __name__ == "__main__":
    sys.exit(main())
