"""`swapformer report experiments --scorecard`: what of each exercise is answered, and what its studies found.

An exercise's README answers what `exercises.yaml` says that it asks, item by item, in a table of its own:

    | item | answer | verdict or number | figure | study |
    |---|---|---|---|---|
    | 1 heads from 1 to 32 | flat from 4 to 32 | 0.002 nats | [axis](width/results/axis_val_loss.svg) | `width` |
    | 2 … | | not answered yet | – | – |

An item's number comes first; a figure is a link to a file, a study the name of a part (or of the exercise); – is none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swapformer.errors import UsageError, quote
from swapformer.exercises import exercises, studies_of
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.grid import grid_verdicts
from swapformer.report.statistics.sequential import judge_all
from swapformer.study.published_results import published_results
from swapformer.yaml_reader import read_yaml

COLUMNS = ("item", "answer", "verdict or number", "figure", "study")
NOT_YET = "not answered yet"
NONE = "–"
COMMAND = "swapformer report experiments --scorecard --publish"
_LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Item:
    """One of the things that an exercise asks, as the table of its README answers it."""

    number: int
    text: str
    answer: str
    verdict: str
    figure: str
    study: str

    @property
    def answered(self) -> bool:
        """Whether there is an answer, “not decided, because …” among them."""
        return self.verdict != NOT_YET


@dataclass(frozen=True)
class Exercise:
    """What `exercises.yaml` says of an exercise: its title, and the items that it asks."""

    title: str
    asks: tuple[str, ...]


def read_asked(root: Path) -> dict[str, Exercise]:
    """The exercises that `exercises.yaml` in a folder names. Raises UsageError."""
    path = root / "exercises.yaml"
    raw = read_yaml(path, "the list of exercises")
    for name, entry in raw.items() if isinstance(raw, Mapping) else ():
        fine = (
            isinstance(entry, Mapping) and isinstance(entry.get("title"), str) and isinstance(entry.get("asks"), list)
        )
        if not fine or not entry["asks"]:
            raise UsageError(f"{path} must give each exercise a title and a list of what it asks, not {quote(name)}")
    if not isinstance(raw, Mapping) or not raw:
        raise UsageError(f"{path} must map names of exercises to {{title: …, asks: […]}}")
    return {str(name): Exercise(entry["title"], tuple(map(str, entry["asks"]))) for name, entry in raw.items()}


def read_items(readme: Path, asks: Sequence[str], studies: Collection[str]) -> list[Item]:
    """The table of items in an exercise's README, which must answer each of what it asks once, in order.

    Raises UsageError for the first thing that is wrong, with the line.
    """
    try:
        lines = readme.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"{readme} must be an exercise's README, but cannot be read ({error})") from None
    heads = [at for at, line in enumerate(lines) if tuple(each.lower() for each in _cells(line)) == COLUMNS]
    if len(heads) != 1:
        raise UsageError(f"{readme} must have one table | {' | '.join(COLUMNS)} |, but it has {len(heads)}; write one")
    found: list[Item] = []
    for at, line in enumerate(lines[heads[0] + 2 :], heads[0] + 3):
        if not line.startswith("|"):
            break
        found.append(_item(line, f"{readme}, line {at}", len(found) + 1, readme.parent, studies))
    if len(found) != len(asks):
        raise UsageError(
            f"{readme} must answer the {len(asks)} items that the exercise asks, but its table has {len(found)}; give "
            f"each a row, with `{NOT_YET}` where there is no answer"
        )
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def _item(line: str, where: str, number: int, folder: Path, studies: Collection[str]) -> Item:
    cells = _cells(line)
    if len(cells) != len(COLUMNS):
        raise UsageError(f"{where}: an item has {len(COLUMNS)} cells, but there are {len(cells)}; write \\| for a bar")
    said, text = re.fullmatch(r"(\d*)\W*(.*)", cells[0]).groups()  # type: ignore[union-attr]
    if said != str(number):
        raise UsageError(f"{where}: items are numbered from 1, so item {number} must stand here, not {quote(cells[0])}")
    item = Item(number, text, *cells[1:])
    if not item.verdict or (item.answered and not item.answer):
        raise UsageError(f"{where}: item {number} needs an answer and a verdict or number, or `{NOT_YET}`")
    for link in _LINK.findall(item.figure):
        if not (folder / link).is_file():
            raise UsageError(f"{where}: item {number} links {quote(link)}, which does not exist")
    if item.figure != NONE and not _LINK.search(item.figure):
        raise UsageError(f"{where}: the figure of item {number} must be a link or {NONE}, not {quote(item.figure)}")
    known = sorted(name.split("/")[-1] for name in studies)
    for part in re.findall(r"`([^`]+)`", item.study) or ([] if item.study == NONE else [item.study]):
        if part.partition(".")[0] not in known:
            raise UsageError(f"{where}: item {number} names the study {quote(part)}, but there is {', '.join(known)}")
    return item


def judged(study: Path) -> dict[str, Counter[str]]:
    """How many claims have each verdict, for each scale at which a study's results are published."""
    found = {}
    paths = study.parent.glob("results/**/results.csv")
    for scale in sorted("" if path.parent.name == "results" else path.parent.name for path in paths):
        records, _ = published_results(study, scale or None)
        claims = claims_of(records.manifest)
        found[scale] = Counter[str](each.outcome for each in grid_verdicts(claims, judge_all(claims, records)))
    return found


def scorecard(root: Path) -> str:
    """The Markdown of the scorecard of all exercises in a folder. Raises UsageError."""
    asked, folders = read_asked(root), exercises(root)
    if strange := sorted(folders.keys() - asked.keys()):
        raise UsageError(f"{root / 'exercises.yaml'} must name every exercise, but {quote(strange[0])} is missing")
    rows, answered = [], 0
    for name, each in asked.items():
        if name in folders:
            count, cells = _row(folders[name], each)
        else:
            count, cells = 0, [each.title, f"0 of {len(each.asks)}", "not begun", ""]
        answered += count
        rows.append([f"1.{int(name[:2])}", *cells])
    total = sum(len(each.asks) for each in asked.values())
    lines = [
        "# The exercises, and what is answered", "",
        f"Made by `{COMMAND}` from the table of items in each README and the results in each study's folder; a test "
        "holds that this page is what the command makes.", "",
        f"{answered} of {total} items are answered. Claims are counted as supported / refuted / undecided.", "",
        "| exercise | question | items answered | claims | picture |", "|---|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in rows), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _row(folder: Path, asked: Exercise) -> tuple[int, list[str]]:
    """How many items of an exercise are answered, and its cells: title, items, claims, picture."""
    studies = studies_of(folder)
    readme = folder / "README.md"
    count = sum(item.answered for item in read_items(readme, asked.asks, studies))
    claims: dict[str, Counter[str]] = {}
    for study in studies.values():
        for scale, counts in judged(study).items():
            claims.setdefault(scale, Counter()).update(counts)
    said = "<br>".join(f"{f'{scale}: ' if scale else ''}{_counts(counts)}" for scale, counts in claims.items())
    picture = next((link for link in _LINK.findall(readme.read_text(encoding="utf-8")) if link.endswith(".svg")), "")
    shown = f'[<img src="{folder.name}/{picture}" width="240" alt="{asked.title}">]({folder.name}/{picture})'
    title = f"[{asked.title}]({folder.name}/README.md)"
    return count, [title, f"{count} of {len(asked.asks)}", said or "no results yet", shown if picture else ""]


def _counts(counts: Mapping[Any, int]) -> str:
    depends = f" ({counts['depends']} by condition)" if counts["depends"] else ""
    return f"{counts['supported']} / {counts['refuted']} / {counts['undecided']}{depends}"
