"""Probes: measurements on a model before, within and after its training, kept as artifacts of the trial."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from swapformer.results.artifacts import has_artifact
from swapformer.results.config import built_from
from swapformer.results.moments import END, INIT, Moment, at_moment, moment_text, moments_of, steps_of, without_moments
from swapformer.results.record import FINISHED, read_record
from swapformer.training.assemble import Config, rebuild_task
from swapformer.training.weights import restore

if TYPE_CHECKING:
    from swapformer.training.fit import Outcome


def fit_watched(config: Config, directory: Path) -> Outcome:
    """Train the trial of a configuration in `directory`, with its probes at their moments within the training."""
    from swapformer.probes.moments import MomentProbes  # late: it brings Lightning
    from swapformer.training.fit import fit

    watched = any(steps_of(node) for node in config["probes"].values())
    return fit(config, directory, callbacks=[MomentProbes(config, directory)] if watched else [])


def replay(config: Config, directory: Path) -> list[str]:
    """Run the probes that `config` asks for where the trial in `directory` has no artifact of them; what cannot be.

    `init` is built from the configuration and its seed, also for a trial that diverged; `end` is read from the last
    checkpoint. A moment within a training that is over cannot be measured any more. What a probe left that was asked
    with other settings stays beside it.

    Returns:
        What could not be measured, in words.
    """
    from swapformer.probes.moments import measure, starting_model, store_finding  # late: it brings Lightning

    lacking: dict[Moment, list[str]] = {}
    for name, node in config["probes"].items():
        for moment in moments_of(node):
            if not has_artifact(directory, at_moment(name, moment), without_moments(node)):
                lacking.setdefault(moment, []).append(name)
    record = read_record(directory)
    finished = record is None or record.status == FINISHED
    found = []
    for moment, names in lacking.items():
        if isinstance(moment, int) or (moment == END and not finished):
            why = "its training is over" if finished else "the trial diverged"
            found += [f"the probe {name} cannot look {moment_text(moment)}: {why}" for name in names]
            continue
        if moment == INIT or config["budget"]["steps"] == 0:
            with built_from(directory):
                task = rebuild_task(config)
                model = starting_model(config, task)
        else:
            task, model = restore(config, directory)
        for name in names:
            node = config["probes"][name]
            store_finding(directory, name, node, moment, measure(node, model, task, config, moment))
    return found
