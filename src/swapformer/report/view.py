"""A study in one condition of its grid; a study without a grid has one view, without a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swapformer.report import canvas, figures
from swapformer.report.claims import Claim
from swapformer.report.evidence import gather
from swapformer.report.records import Records
from swapformer.report.scene import Drawn, Scene
from swapformer.report.summaries import ArmRow, summarise
from swapformer.report.tuning import Tuned, sensitivity
from swapformer.report.verdicts import Verdict


@dataclass(frozen=True)
class View:
    """What the report shows of one condition."""

    condition: str
    scene: Scene
    verdicts: tuple[Verdict, ...]
    figures: tuple[Drawn, ...] = ()
    tuned: tuple[Tuned, ...] = ()

    @property
    def rows(self) -> Sequence[ArmRow]:
        """The table."""
        return self.scene.rows


def scenes(records: Records, claims: Sequence[Claim]) -> dict[str, Scene]:
    """What is known of each condition."""
    manifest = records.manifest
    anywhere = [arm for arm in manifest.arms if any(arm in manifest.at(c).possible for c in manifest.conditions)]
    found = {}
    for condition in manifest.conditions:
        there = records.at(condition)
        evidence = gather(there)
        rows = summarise(there, evidence, manifest.metrics)
        found[condition] = Scene(there, evidence, rows, claims, tuple(anywhere))
    return found


def views(
    records: Records, claims: Sequence[Claim], verdicts: Mapping[str, Sequence[Verdict]], tuned: Sequence[Tuned]
) -> list[View]:
    """One view for each condition, all arms drawn alike in all of them."""
    found = []
    for condition, scene in scenes(records, claims).items():
        prefix = f"{canvas.slug(condition)}_" if condition else ""
        here = tuple(each for each in tuned if each.condition == condition)
        with canvas.settings():
            curves = sensitivity(scene, here)
        drawn = (
            Drawn(prefix + each.name, each.title, each.caption, each.svg) for each in (*figures.draw(scene), *curves)
        )
        found.append(View(condition, scene, tuple(verdicts[condition]), tuple(drawn), here))
    return found
