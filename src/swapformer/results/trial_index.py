"""Which studies a trial answers: read from the studies' manifests."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from swapformer.errors import UsageError
from swapformer.results.manifest import read_manifest
from swapformer.results.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Member:
    """A trial's place in a study; `setting`: what it tries, where it is there for the arm to be tuned by."""

    study: str
    arm: str
    condition: str = ""
    setting: str = ""

    def __str__(self) -> str:
        condition = f" with {self.condition}" if self.condition else ""
        return f"{self.study}/{self.arm}{condition}" + (f" tuning {self.setting}" if self.setting else "")


def members(store: Store) -> dict[str, list[Member]]:
    """Trial → its places in the studies of the store; a manifest that cannot be read is only named in the log."""
    found: dict[str, list[Member]] = {}
    for path in sorted(store.studies.glob("*/manifest.json")):
        try:
            manifest = read_manifest(path)
        except UsageError as error:
            log.warning("%s", error)
            continue
        for cell in manifest.cells:
            found.setdefault(cell.trial, []).append(Member(manifest.name, cell.arm, cell.condition))
        for tried in manifest.tuning.tried if manifest.tuning else ():
            setting = " ".join(f"{key}={value}" for key, value in tried.values.items())
            for trial in tried.trials:
                found.setdefault(trial, []).append(Member(manifest.name, tried.arm, tried.condition, setting))
    return found
