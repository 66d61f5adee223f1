"""The studies that use a trial: read from the studies' manifests."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from swapformer.errors import UsageError
from swapformer.results.arms import arm_name
from swapformer.results.manifest import read_manifest
from swapformer.results.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Member:
    """A trial's role in a study; `setting`: what it tries, where it is there for the arm to be tuned by."""

    study: str
    arm: str
    condition: str = ""
    setting: str = ""

    def __str__(self) -> str:
        tuning = f" tuning {self.setting}" if self.setting else ""
        return f"{self.study}/{arm_name(self.arm, self.condition)}{tuning}"


def members(store: Store) -> dict[str, list[Member]]:
    """Trial → its roles in the studies of the store; a manifest that cannot be read is only named in the log."""
    found: dict[str, list[Member]] = {}
    for study in store.study_folders():
        try:
            manifest = read_manifest(study)
        except UsageError as error:
            log.warning("%s", error)
            continue
        for cell in manifest.cells:
            found.setdefault(cell.trial, []).append(Member(manifest.name, cell.arm, cell.condition))
        for tried in manifest.tuning.tried if manifest.tuning else ():
            for trial in tried.trials:
                found.setdefault(trial, []).append(Member(manifest.name, tried.arm, tried.condition, tried.text))
    return found
