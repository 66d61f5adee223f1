"""A study that is judged from its own folder: `study.yaml` and `results/results.csv`, without a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from swapformer.errors import UsageError, quote
from swapformer.report.records import Records
from swapformer.report.results_csv import read_results
from swapformer.report.statistics.statements import stated_later
from swapformer.results.manifest import Axis
from swapformer.study.config import overrides as texts
from swapformer.study.manifest import asked
from swapformer.study.spec import Spec, load
from swapformer.yaml_reader import parse_yaml


def published_results(study: Path, scale: str | None = None) -> tuple[Records, Path]:
    """The records of a study, given by its file or folder, at a scale, and the folder that they were published in.

    Raises UsageError where the study is wrong, or nothing was published.
    """
    spec = load(str(study), scale)
    place = spec.published
    assert place is not None, "a study that was read from a file has a folder"
    if not (place / "results.csv").is_file():
        raise UsageError(
            f"a study is judged from its folder by results/results.csv, but {quote(str(place / 'results.csv'))} does "
            f"not exist; `swapformer study {study} --publish` writes it"
        )
    return stated_later(read_results(place / "results.csv", replace(asked(spec), axis=_axis(spec)))), place


def _axis(spec: Spec) -> Axis | None:
    """The one key that all arms set to different numbers."""
    keys = spec.axis or tuple({texts.key(override) for overrides in spec.arms.values() for override in overrides})
    if len(keys) != 1:
        return None
    given = {arm: texts.value(overrides, keys[0]) for arm, overrides in spec.arms.items()}
    values = {arm: parse_yaml(text) for arm, text in given.items() if text is not None}
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
    return Axis(keys[0], values) if numbers and len(set(values.values())) == len(spec.arms) > 1 else None
