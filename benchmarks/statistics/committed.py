"""How many claims of the committed studies fewer seeds would have decided."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from swapformer.exercises import shipped
from swapformer.report.statistics.claim_grammar import parse
from swapformer.report.statistics.evidence import gather
from swapformer.report.statistics.verdicts import judge
from swapformer.study.published_results import published_results


def committed_studies() -> dict[str, Path]:
    """The folders of the studies whose results are committed, by name."""
    return {name: file.parent for name, file in shipped().items() if (file.parent / "results/results.csv").is_file()}


def decided_share(folder: Path, seeds: int) -> float:
    """The share of a study's claims that are decided with so many of its seeds, over all choices of them."""
    records, _ = published_results(folder)
    manifest, evidence = records.manifest, gather(records)
    claims = parse(manifest.claims, tuple(manifest.arms), manifest.metrics)
    chosen = list(combinations(evidence.seeds, min(seeds, len(evidence.seeds))))
    decided = [verdict.outcome != "undecided" for some in chosen for verdict in judge(claims, evidence.restrict(some))]
    return sum(decided) / len(decided)
