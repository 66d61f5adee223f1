"""A study in one condition of its grid; a study without a grid has one view, without a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from swapformer.report.figures import figure_list, pareto, probe_figures, svg
from swapformer.report.figures.figure_data import Drawn, Scene
from swapformer.report.records import Records
from swapformer.report.statistics.arm_summary import ArmRow, Summary, summarise
from swapformer.report.statistics.claims import Claim
from swapformer.report.statistics.evidence import gather
from swapformer.report.statistics.verdicts import Verdict
from swapformer.report.tuning import Tuned, sensitivity
from swapformer.results.costs import Costs


@dataclass(frozen=True)
class View:
    """What the report shows of one condition."""

    condition: str
    scene: Scene
    verdicts: tuple[Verdict, ...]
    figures: tuple[Drawn, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    probed: Mapping[str, Mapping[str, Summary]] = field(default_factory=dict)

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
    records: Records,
    claims: Sequence[Claim],
    verdicts: Mapping[str, Sequence[Verdict]],
    tuned: Sequence[Tuned],
    costs: Costs,
) -> list[View]:
    """One view for each condition, all arms drawn alike in all of them."""
    found = []
    for condition, scene in scenes(records, claims).items():
        prefix = f"{svg.slug(condition)}_" if condition else ""
        here = tuple(each for each in tuned if each.condition == condition)
        with svg.settings():
            flops = {each.arm: each.flops for each in records.manifest.fairness if each.condition == condition}
            weighed = pareto.draw(scene, flops, costs.timed(condition))
            later = [*probe_figures.draw(scene), *sensitivity(scene, here)]
        drawn = [replace(each, name=prefix + each.name) for each in (*weighed, *figure_list.draw(scene), *later)]
        found.append(
            View(condition, scene, tuple(verdicts[condition]), tuple(drawn), here, probe_figures.measured(scene))
        )
    return found
