"""Answers that a study keeps beside its manifest, each with a digest of all that it was made of.

`report/answer.json` is what its report said, and `finished.json` is which command found nothing left to run. Asked
again while nothing has changed, both answer at once. What is damaged, or of another version, counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from swapformer.errors import UsageError
from swapformer.results.files import CorruptFile, read_file, write_atomic
from swapformer.results.manifest import manifest_path, read_manifest
from swapformer.results.schema import from_json, read_json
from swapformer.results.stamps import Stamps, program

WIDTHS = 4
"""Widths of terminals for which a report's text is kept."""
_PASSING = ("heartbeat", "lock", "checkpoints", "log.txt")
"""What a trial's folder has that no answer is made of."""

T = TypeVar("T", "KeptReport", "FinishedRun")


@dataclass(frozen=True)
class KeptReport:
    """What a report said.

    Attributes:
        made_of: the digest of what it was made of.
        files: the files that were written.
        written: the digest of these files as they were then.
        plain: the report as `--json` prints it.
        texts: width of a terminal → what it printed there, with its styles as ANSI codes.
    """

    made_of: str
    files: tuple[str, ...]
    written: str
    plain: Mapping[str, Any]
    texts: Mapping[str, str] = field(default_factory=dict)

    def with_text(self, width: int, text: str) -> KeptReport:
        """The same with what it prints at another width, in place of the oldest."""
        kept = dict([each for each in self.texts.items() if each[0] != str(width)][-WIDTHS + 1 :])
        return replace(self, texts={**kept, str(width): text})


@dataclass(frozen=True)
class FinishedRun:
    """A command that found nothing left to run.

    Attributes:
        asked: the digest of what was asked: the study, its overrides, the program and the data.
        data: the files and folders that the tasks read.
        made_of: the digest of what the study's trials left.
        statuses: status → how many trials have it, tuning ones among them.
    """

    asked: str
    data: tuple[str, ...]
    made_of: str
    statuses: Mapping[str, int]


def study_stamps(study: Path, runs_dir: Path) -> Stamps:
    """What a report is made of: the program, the study's manifest, its trials and costs.

    Raises:
        UsageError: if the manifest cannot be read.
    """
    manifest = read_manifest(study)
    tried = manifest.tuning.tried if manifest.tuning is not None else ()
    trials = {cell.trial for cell in manifest.cells if cell.trial}.union(*(each.trials for each in tried))
    text = hashlib.sha256(read_file(manifest_path(study))).hexdigest()  # it is written anew when nothing has changed
    found = program().add(str(study.absolute()), str(runs_dir.absolute()), text).file(study / "costs.json")
    if (study / "costs.json").exists():
        found.tree(runs_dir / "costs")
    for trial in sorted(trials):
        folder = runs_dir / "trials" / trial
        with suppress(OSError):
            names = sorted(name for name in os.listdir(folder) if name not in _PASSING)
            found.add(trial, names).files(folder / name for name in names)
        with suppress(OSError):
            names = sorted(os.listdir(folder / "artifacts"))
            found.add(names).files(folder / "artifacts" / name for name in names)
    return found


def report_path(study: Path) -> Path:
    """Where the answer of the report of the study in a folder is kept."""
    return study / "report" / "answer.json"


def read_kept_report(study: Path, runs_dir: Path) -> KeptReport | None:
    """What a study's report said, if building it again would say and draw the same; None otherwise."""
    kept = _read(report_path(study), KeptReport)
    if kept is None or Stamps().files(map(Path, kept.files)).digest != kept.written:
        return None
    with suppress(UsageError, CorruptFile, OSError):
        return kept if study_stamps(study, runs_dir).digest == kept.made_of else None
    return None


def keep_report(
    study: Path, runs_dir: Path, before: Stamps, plain: Mapping[str, Any], files: Sequence[Path]
) -> KeptReport | None:
    """Keep what a report said; `before`: what it was made of, as it was when that began.

    It is not kept where any of that changed meanwhile, or so short ago that it might have.
    """
    with suppress(UsageError, CorruptFile, OSError):
        if before.trusted and study_stamps(study, runs_dir).digest == before.digest:
            earlier = _read(report_path(study), KeptReport)
            texts = earlier.texts if earlier is not None and earlier.made_of == before.digest else {}
            kept = KeptReport(before.digest, tuple(map(str, files)), Stamps().files(files).digest, plain, texts)
            write_kept_report(study, kept)
            return kept
    return None


def write_kept_report(study: Path, kept: KeptReport) -> None:
    """Put a report's answer beside it."""
    write_atomic(report_path(study), json.dumps(asdict(kept)) + "\n")


def run_path(study: Path) -> Path:
    """Where a study keeps that nothing was left to run."""
    return study / "finished.json"


def read_finished_run(study: Path) -> FinishedRun | None:
    """The command that found nothing left to run, whether or not that is still so."""
    return _read(run_path(study), FinishedRun)


def write_finished_run(study: Path, run: FinishedRun) -> None:
    """Keep that a command found nothing left to run."""
    write_atomic(run_path(study), json.dumps(asdict(run)) + "\n")


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return from_json(kind, read_json(path))
    except (OSError, CorruptFile, UsageError, ValueError, TypeError, KeyError, AttributeError):
        return None
