"""The dashboard of a study: its sections and panels, from the manifest and the records of its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from swapformer.report.figures.figure_data import length_families, reported_metrics
from swapformer.report.records import read
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.results.history import SECONDS, TOKENS, TRAINING_LOSS
from swapformer.results.manifest import Manifest

Kind = Literal["text", "table", "curve", "bar", "scatter", "media"]


@dataclass(frozen=True)
class Panel:
    """One panel; arms are averaged over seeds, with their standard error, in curves and bars.

    `shows`: metrics; of a text the text itself, of a scatter what lies along x and along y. `over`: what a
    curve is drawn over.
    """

    kind: Kind
    title: str
    shows: tuple[str, ...]
    over: str = "Step"


@dataclass(frozen=True)
class Section:
    """Panels under a heading."""

    name: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """The dashboard of one study; `logger` is the setting of W&B that the study was run with."""

    study: str
    question: str
    sections: tuple[Section, ...]
    logger: Mapping[str, Any]


def dashboard(folder: Path, runs_dir: Path) -> Dashboard:
    """The dashboard of the study in `folder`. Raises UsageError where its manifest cannot be read."""
    records = read(folder, runs_dir)
    manifest = records.manifest
    recorded = list(dict.fromkeys(records.metrics["metric"]))
    lengths = length_families(manifest.metrics, recorded)
    measured = [name for name in reported_metrics(manifest.metrics, recorded) if not name.startswith("probe/")]
    probes = [name for name in dict.fromkeys([*manifest.metrics, *recorded]) if name.startswith("probe/")]
    curves = [name for name in manifest.metrics if "@" not in name and not name.startswith(("probe/", "test/"))]
    maps = [f"probe/{name}" for name in manifest.shared_config.get("probes") or ()]
    pictures = (Panel("media", "What the probes saw", tuple(maps)),) if maps and probes else ()
    metric = manifest.metrics[0] if manifest.metrics else "val/loss"
    costs = [Panel("scatter", f"{metric} against {x}", (f"cost/{x}", metric)) for x in ("parameters_total", "seconds")]
    sections = (
        Section("Verdicts", (Panel("text", "Question and claims", (_claims(manifest),)), *_tables("verdicts", "arms"))),
        Section("Results", tuple(Panel("bar", name, (name,)) for name in measured if "@" not in name)),
        Section("Length", tuple(Panel("bar", base, tuple(names.values())) for base, names in lengths.items())),
        Section("Training", tuple(_curves((*curves, TRAINING_LOSS, "train/lr", "train/grad_norm"), curves[:1]))),
        Section("Probes", (*(Panel("bar", name, (name,)) for name in probes), *pictures)),
        Section("Cost", (*_tables("cost"), *costs)),
        Section("Report", _tables("report")),
    )
    loggers = manifest.shared_config.get("logger")
    logger = loggers.get("wandb", loggers) if isinstance(loggers, dict) else {}  # one alone stood there once
    shown = tuple(section for section in sections if section.panels)
    return Dashboard(manifest.name, manifest.question, shown, logger)


def _claims(manifest: Manifest) -> str:
    """The question, and each claim with what it asserts, as Markdown."""
    claims = claims_of(manifest)
    lines = [f"- **{claim.text}**: {claim.assertion}" for claim in claims]
    return "\n".join([f"## {manifest.question or manifest.name}", "", *lines, "", f"`{manifest.command}`"])


def _curves(names: Sequence[str], first: Sequence[str]) -> Iterator[Panel]:
    """Metrics over the steps; what matters most over tokens and seconds too."""
    for name in names:
        yield Panel("curve", name, (name,))
    for name in dict.fromkeys((*first, TRAINING_LOSS)):
        for axis in (TOKENS, SECONDS):
            yield Panel("curve", f"{name} over {axis.removeprefix('train/')}", (name,), axis)


def _tables(*names: str) -> tuple[Panel, ...]:
    """Tables of the study's own run."""
    return tuple(Panel("table", name, (name,)) for name in names)
