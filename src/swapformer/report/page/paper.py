"""The parts of a report that a paper needs: tables as LaTeX with booktabs, and a paragraph for its methods section."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swapformer import __version__
from swapformer.report.figures.condition_view import View
from swapformer.report.number_format import listed, percent
from swapformer.report.page import wording
from swapformer.report.page.tables import arrow
from swapformer.report.records import Records
from swapformer.report.statistics.arm_summary import ArmRow
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.estimates import ShareEstimate
from swapformer.report.statistics.look_path import look_path
from swapformer.report.statistics.verdicts import ALPHA, FIRST, Verdict
from swapformer.report.tuning import stages_text
from swapformer.results.arms import arm_name
from swapformer.results.config import command_of

MARKS = {"supported": r"$\checkmark$", "refuted": r"$\times$", "undecided": "?", "depends": r"$\pm$"}
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "\N{MINUS SIGN}": "$-$", "Δ": r"$\Delta$", "τ": r"$\tau$", "ρ": r"$\rho$", "×": r"$\times$",
    "·": r"$\cdot$", "±": r"$\pm$", "√": r"$\surd$", "½": r"$\frac{1}{2}$", "²": "$^2$", "↓": r"$\downarrow$",
    "↑": r"$\uparrow$", "→": r"$\rightarrow$", "≤": r"$\leq$", "≥": r"$\geq$", "∞": r"$\infty$", "–": "--", "—": "---",
    "…": r"\ldots{}", "“": "``", "”": "''", "’": "'", "µ": r"\textmu{}", "\N{NARROW NO-BREAK SPACE}": r"\,",
    "\N{NO-BREAK SPACE}": "~",
}  # fmt: skip


def escaped(text: str) -> str:
    """Text as LaTeX shows it, in T1 fonts with UTF-8."""
    return "".join(_SPECIAL.get(letter, letter) for letter in re.sub(r"\s*\n\s*", " ", text))


def paper_tex(records: Records, views: Sequence[View]) -> str:
    r"""`paper.tex`: results, verdicts and methods, to be taken into a paper with \input or in pieces."""
    manifest = records.manifest
    parts = [
        f"% {escaped(manifest.name)}: tables of the study, made by swapformer {__version__}.",
        r"% The preamble needs \usepackage{booktabs}, \usepackage{amssymb} and \usepackage[T1]{fontenc}.",
    ]
    for view in views:
        parts += ["", *_results(records, view)]
        parts += ["", *_verdicts(view, _error(records))] if view.verdicts else []
    parts += ["", "% How to describe the comparison in a methods section:", escaped(methods_text(records, views)), ""]
    return "\n".join(parts)


def _results(records: Records, view: View) -> Iterator[str]:
    metrics, baseline = records.manifest.metrics, records.manifest.baseline
    where = f", {view.condition}" if view.condition else ""
    heads = ["arm", "trials"]
    for metric in metrics:
        heads += [escaped(metric + arrow(records.directions.get(metric))), rf"$\Delta$ to {escaped(baseline)}"]
    caption = escaped(records.manifest.question or records.manifest.name) + escaped(where)
    note = escaped(wording.table_note(view.rows, baseline))
    yield from _table(f"ll{'rr' * len(metrics)}", heads, [_row(row, metrics) for row in view.rows], f"{caption} {note}")


def _row(row: ArmRow, metrics: Sequence[str]) -> list[str]:
    found = [escaped(row.arm) + (" (baseline)" if row.is_baseline else ""), escaped(row.trials_text)]
    for metric in metrics:
        summary = row.summaries[metric]
        beside = summary.paired.full_text if summary.n and summary.paired else ""
        found += [escaped(summary.full_text), escaped(beside)]
    return found


def _verdicts(view: View, error: float) -> Iterator[str]:
    rows = [
        [
            MARKS[each.outcome],
            escaped(each.claim.text),
            escaped("; ".join(map(wording.contrast_text, each.contrasts)) or wording.verdict_text(each)),
        ]
        for each in view.verdicts
    ]
    where = f" With {escaped(view.condition)}." if view.condition else ""
    caption = (
        rf"Claims: {MARKS['supported']} supported, {MARKS['refuted']} refuted, {MARKS['undecided']} undecided. "
        rf"Intervals are those that decide, at {escaped(percent(error))} for all claims together.{where}"
    )
    yield from _table(r"lp{0.45\linewidth}p{0.42\linewidth}", ["", "claim", "difference"], rows, caption)


def _table(columns: str, heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Iterator[str]:
    yield from (r"\begin{table}", r"\centering\small", rf"\begin{{tabular}}{{{columns}}}", r"\toprule")
    yield " & ".join(heads) + r" \\"
    yield r"\midrule"
    yield from (" & ".join(row) + r" \\" for row in rows)
    yield from (r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}")


def methods_text(records: Records, views: Sequence[View]) -> str:
    """The study for a methods section: arms, training, seeds, tuning, matching, statistics, software."""
    verdicts = [verdict for view in views for verdict in view.verdicts]
    return " ".join(
        sentence
        for sentence in (
            _compared(records),
            _trained_first(records),
            *_fairness(records),
            _judged(records, verdicts) if verdicts else "",
            _lost(records),
            _software(records),
        )
        if sentence
    )


def _compared(records: Records) -> str:
    manifest = records.manifest
    others = [arm for arm in manifest.possible if arm != manifest.baseline]
    grid = [name for name in manifest.conditions if name]
    where = f" under {len(grid)} conditions ({listed(grid)})" if grid else ""
    counts = records.cells.groupby(["condition", "arm"])["seed"].nunique()
    low, high = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    seeds = f"{low}" if low == high else f"{low} to {high}"
    return (
        f"We compared {1 + len(others)} arm{'s' * bool(others)}{where}: the baseline {manifest.baseline}"
        + (f", and {listed(others)}" if others else "")
        + f"; each was run with {seeds} seed{'' if high == 1 else 's'}."
        + (f" {listed(list(manifest.impossible))} could not be built." if manifest.impossible else "")
        + (
            " Arms with one seed saw the same batches, and weights that they share began with the same values."
            if manifest.shared_config.get("budget", {}).get("steps")
            and not any("do not share their start" in text for texts in records.remarks.values() for text in texts)
            else ""
        )
    )


def _trained_first(records: Records) -> str:
    """The baseline's model and training, in the first condition where there are several."""
    said = _trained(records.manifest.shared_config)
    first, *others = records.manifest.conditions or [""]
    return f"In the condition {first}, {said[0].lower()}{said[1:]}" if said and others else said


def _trained(config: Mapping[str, Any]) -> str:
    """The baseline's model and training; nothing where the report was made without its configuration."""
    if command := command_of(config):
        return f"A trial of the baseline is the command `{command}` with its settings."
    try:
        model, task, steps = config["model"], config["task"], int(config["budget"]["steps"])
        if not steps:
            return "Nothing was trained: models were measured as they were initialised."
        optimiser = str(config["optim"]["_target_"]).rpartition(".")[2]
        own = model["topology"].get("module")
        what = (
            f"is {own['_target_']}"
            if own
            else (
                f"has {_count(model['num_layers'], 'layer')} of width {model['d_model']} with "
                f"{_count(model['num_heads'], 'head')}"
            )
        )
        return (
            f"The baseline {what} and was trained for {steps:,} steps of {task['batch_size']} sequences with "
            f"{optimiser} at a peak learning rate of {config['optim']['lr']:g}."
        )
    except (KeyError, TypeError, ValueError):
        return ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _fairness(records: Records) -> Iterator[str]:
    manifest = records.manifest
    if tuning := manifest.tuning:
        verb = "was" if len(tuning.keys) == 1 else "were"
        yield (
            f"{listed(tuning.keys)} {verb} chosen for each arm by the mean of {tuning.metric} over "
            f"{len(tuning.seeds)} seeds that are not reported."
        )
        yield from stages_text(tuning)
    matched = [entry for entry in manifest.fairness if entry.match is not None]
    if matched:
        names = listed([arm_name(entry.arm, entry.condition) for entry in matched])
        yield f"Sizes were solved so that arms cost the same: {names}."


def _judged(records: Records, verdicts: Sequence[Verdict]) -> str:
    withdrawn = sum(bool(verdict.claim.withdrawn) for verdict in verdicts)
    verdicts = [verdict for verdict in verdicts if not verdict.claim.withdrawn]
    family = [verdict for verdict in verdicts if not verdict.claim.exact]
    text = ""
    if family:
        stated = " or ".join(sorted({"margin" if verdict.claim.bounds is None else "range" for verdict in family}))
        claims = len({verdict.claim.text for verdict in family})
        what = f"{len(family)} claims, each with a {stated} stated beforehand, were"
        if claims < len(family):
            what = f"{claims} claims ({len(family)} with conditions), each with a {stated} stated beforehand, were"
        what = f"1 claim, with a {stated} stated beforehand, was" if len(family) == 1 else what
        also = f", {withdrawn} withdrawn included" if withdrawn else ""
        text = (
            f"{what} judged by {_limits(family)}; the error of {percent(_error(records))} is that of all claims "
            f"together{also} (Holm)"
        )
        looks = [len(seeds) for seeds in look_path(claims_of(records.manifest), records).seeds]
        text += f" and of the looks at {listed([str(n) for n in looks])} seeds." if len(looks) > 1 else "."
        text += (
            " A claim is supported if the whole interval lies where it holds, refuted if it lies where it does not, "
            "and undecided otherwise."
        )
    exact = len(verdicts) - len(family)
    if exact:
        counts = "1 claim about exact counts was" if exact == 1 else f"{exact} claims about exact counts were"
        text += f"{' ' if text else ''}{counts} decided by arithmetic."
    return text


def _error(records: Records) -> float:
    """The error of all looks together."""
    return look_path(claims_of(records.manifest), records).error or FIRST * ALPHA


def _limits(family: Sequence[Verdict]) -> str:
    """The limits by which claims were judged."""
    contrasts = [contrast for verdict in family for contrast in verdict.contrasts]
    shares = "exact one-sided binomial limits of shares of seeds (Clopper and Pearson)"
    counts = sum(any(isinstance(c.estimate, ShareEstimate) for c in verdict.contrasts) for verdict in family)
    if counts == len(family):
        return shares
    how = "of independent samples (Welch)" if {c.estimate.paired for c in contrasts} == {False} else "paired by seed"
    return f"one-sided t limits of differences {how}" + (f", {counts} of them by {shares}" if counts else "")


def _lost(records: Records) -> str:
    counts = records.cells["status"].value_counts().drop("finished", errors="ignore")
    if not len(counts):
        return ""
    return f"Of {len(records.cells)} trials " + listed([f"{n} {status}" for status, n in counts.items()]) + "."


def _software(records: Records) -> str:
    known = records.cells.loc[records.cells["environment"] != "", "environment"].value_counts()
    commit = f" at commit {records.manifest.commit[:12]}" if records.manifest.commit else ""
    return f"Software: {'; '.join([f'swapformer {__version__}{commit}', *map(str, known.index)])}."
