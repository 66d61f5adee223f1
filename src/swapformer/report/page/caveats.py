"""How a study came to its verdicts, and what may be less fair than it looks, in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

from swapformer.report import number_format
from swapformer.report.condition_view import View
from swapformer.report.records import Records
from swapformer.report.statistics.power import plan
from swapformer.report.statistics.sequential import saved
from swapformer.report.statistics.verdicts import ALPHA


def design(records: Records, views: Sequence[View]) -> list[str]:
    """How the study came to its verdicts: what its seeds can do, what pairing did, looks, tuning."""
    manifest = records.manifest
    verdicts = [verdict for view in views for verdict in view.verdicts]
    found = []
    if verdicts:
        planned = plan([v.claim for v in verdicts], len(manifest.seeds), alpha=ALPHA / max(len(manifest.looks), 1))
        found.append(f"If true differences lie two standard deviations off their margins, {planned}.")
    found += pairing(manifest.metrics, views)
    if manifest.looks:
        looks = number_format.listed([str(seeds) for seeds in manifest.looks])
        text = f"Judged at {looks} seeds, with {number_format.percent(ALPHA / len(manifest.looks))} of error each"
        spared = saved(records, verdicts)
        found.append(f"{text}; {f'{spared} trials were not needed' if spared else 'no trial was saved'}.")
    if tuning := manifest.tuning:
        found.append(
            f"{number_format.listed(tuning.keys)} {'was' if len(tuning.keys) == 1 else 'were'} chosen for each arm by "
            "the "
            f"mean of {tuning.metric} over seeds that are not reported ({', '.join(map(str, tuning.seeds))})."
        )
    return found


def pairing(metrics: Sequence[str], views: Sequence[View]) -> list[str]:
    """How wide the paired intervals of the differences to the baseline are against the unpaired ones, by metric."""
    found = []
    for metric in metrics:
        summaries = [row.summaries[metric].comparison for view in views for row in view.rows]
        shares = sorted(1 - c.narrowed for c in summaries if c is not None and not math.isnan(c.narrowed))
        if shares:
            low, middle, high = (f"{share:.2f}" for share in (shares[0], median(shares), shares[-1]))
            spread = f" (median of {len(shares)}, from {low} to {high})" if len(shares) > 1 else ""
            found.append(f"Pairing by seed made intervals in {metric} {middle} times as wide as unpaired ones{spread}.")
    return found


def fairness_caveats(records: Records) -> list[str]:
    """Where a comparison may be less fair than it looks."""
    manifest = records.manifest
    chosen = manifest.tuning.chosen if manifest.tuning else ()
    found = [
        f"{number_format.placed(each.arm, each.condition)}: every setting that was tried diverged; "
        f"{', '.join(f'{key}={value}' for key, value in each.values.items())} is only the first; "
        "put other values into `tune`."
        for each in chosen
        if each.diverged
    ]
    found += [
        f"{number_format.placed(each.arm, each.condition)}: the chosen {key}={each.values[key]} lies at the edge "
        "of what was "
        "tried, so a better one may lie beyond; widen the grid of `tune`."
        for each in chosen
        for key in each.edges
    ]
    settings = Counter((each.arm, each.condition) for each in (manifest.tuning.tried if manifest.tuning else ()))
    found += [
        f"{number_format.placed(*place)} could have one setting of those that `tune` lists, so nothing was chosen "
        "for it."
        for place, number in settings.items()
        if number < 2
    ]
    wide = [each for each in manifest.fairness if each.beyond]
    found += [
        f"{number_format.placed(each.arm, each.condition)} differs from {manifest.baseline} in more than its axis: "
        f"{', '.join(each.beyond)}; name what is compared on purpose with `axis: [...]`."
        for each in wide
    ]
    if manifest.looks:
        found.append("A sequential study stops when differences look large: they are a little smaller than they look.")
    return found
