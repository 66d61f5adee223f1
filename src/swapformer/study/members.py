"""Which studies a trial answers: read from the studies' manifests."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from swapformer.errors import UsageError
from swapformer.report.manifest import read_manifest
from swapformer.study.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Member:
    """A trial's place in a study."""

    study: str
    arm: str
    condition: str = ""

    def __str__(self) -> str:
        return f"{self.study}/{self.arm}" + (f" with {self.condition}" if self.condition else "")


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
    return found
