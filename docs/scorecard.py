"""`python -m docs.scorecard`: what of each exercise is answered, and what its studies found.

An exercise's README answers what `exercises.yaml` says that it asks, item by item, in a table of its own:

    | item | grade | answer | verdict or number | figure | study |
    |---|---|---|---|---|---|
    | 1 heads from 1 to 32 | measured | flat from 4 to 32 | 0.002 nats | [axis](width/results/axis.svg) | `width` |
    | 2 … | not run | | `depths` would tell | – | – |

An item's number comes first; a figure is a link to a file, a study the name of a part (or of the exercise); – is none.
Only what is `measured` or `derived` is answered; `undecided` and `not run` say what would decide, `outside` why.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docs import decision_table as decisions
from docs.decision_table import written
from swapformer.console import guarded
from swapformer.errors import UsageError, quote
from swapformer.exercises import exercises, studies_of
from swapformer.paths import experiments_dir
from swapformer.report.build import write
from swapformer.report.figures.style import ALARM, GRID, INK, PAPER, SOFT
from swapformer.report.page.wording import SYMBOLS
from swapformer.report.statistics.claim_grammar import claims_of
from swapformer.report.statistics.grid import grid_verdicts
from swapformer.report.statistics.sequential import judge_all
from swapformer.study.published_results import published_results
from swapformer.yaml_reader import read_yaml

COLUMNS = ("item", "grade", "answer", "verdict or number", "figure", "study")
ANSWERED = ("measured", "derived")
GRADES = (*ANSWERED, "undecided", "not run", "outside")
NONE = "–"
COMMAND = "python -m docs.scorecard --publish"
PICTURE = "scorecard.svg"
_LINE = 21
_COLOURS = {"supported": "#1a7f37", "refuted": ALARM, "undecided": SOFT}
_LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Item:
    """One of the things that an exercise asks, as the table of its README answers it."""

    number: int
    text: str
    grade: str
    answer: str
    verdict: str
    figure: str
    study: str


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
            "each a row, with the grade `not run` where there is no answer"
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
    if item.grade not in GRADES:
        raise UsageError(f"{where}: the grade of item {number} must be one of {', '.join(GRADES)}, not {item.grade!r}")
    if not item.verdict or (item.grade in ANSWERED and not item.answer):
        raise UsageError(f"{where}: item {number} needs a verdict or number, and an answer where it is {item.grade}")
    if item.grade == "measured" and item.study == NONE and item.verdict == NONE:
        raise UsageError(f"{where}: item {number} is measured, so it must name its study or a number")
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
    """How many claims have each verdict or are withdrawn, for each scale at which a study's results are published."""
    found = {}
    paths = study.parent.glob("results/**/results.csv")
    for scale in sorted("" if path.parent.name == "results" else path.parent.name for path in paths):
        records, _ = published_results(study, scale or None)
        claims = claims_of(records.manifest)
        verdicts = grid_verdicts(claims, judge_all(claims, records))
        found[scale] = Counter[str]("withdrawn" if each.claim.withdrawn else each.outcome for each in verdicts)
    return found


@dataclass(frozen=True)
class ExerciseScore:
    """How far an exercise is answered.

    `number`: as in the chapter; `grades`: how many items have each; `folder`: its own, empty where it is not begun;
    `claims`: scale → how many have each verdict, or are withdrawn, "" for the default scale; `picture`: the first of
    its README, below its folder.
    """

    number: str
    title: str
    asked: int
    grades: Counter[str] = field(default_factory=Counter)
    folder: str = ""
    claims: Mapping[str, Counter[str]] = field(default_factory=dict)
    picture: str = ""

    @property
    def answered(self) -> int:
        """How many items are measured or derived."""
        return sum(self.grades[each] for each in ANSWERED)


def scores(root: Path) -> list[ExerciseScore]:
    """The scores of all exercises in a folder. Raises UsageError."""
    asked, folders = read_asked(root), exercises(root)
    if strange := sorted(folders.keys() - asked.keys()):
        raise UsageError(f"{root / 'exercises.yaml'} must name every exercise, but {quote(strange[0])} is missing")
    return [_score(f"1.{int(name[:2])}", each, folders.get(name)) for name, each in asked.items()]


def _score(number: str, asked: Exercise, folder: Path | None) -> ExerciseScore:
    if folder is None:
        return ExerciseScore(number, asked.title, len(asked.asks))
    studies = studies_of(folder)
    readme = folder / "README.md"
    grades = Counter(item.grade for item in read_items(readme, asked.asks, studies))
    claims: dict[str, Counter[str]] = {}
    for study in studies.values():
        for scale, counts in judged(study).items():
            claims.setdefault(scale, Counter()).update(counts)
    picture = next((link for link in _LINK.findall(readme.read_text(encoding="utf-8")) if link.endswith(".svg")), "")
    return ExerciseScore(number, asked.title, len(asked.asks), grades, folder.name, claims, picture)


def scorecard(found: Sequence[ExerciseScore]) -> str:
    """The scorecard as Markdown."""
    answered, total = sum(each.answered for each in found), sum(each.asked for each in found)
    lines = [
        "# The exercises, and what is answered", "",
        f"Made by `{COMMAND}` from the table of items in each README and the results in each study's folder; a test "
        "holds that this page is what the command makes.", "",
        f"{answered} of {total} items are answered, which is what was measured or derived; of the others "
        f"{_others(Counter(grade for each in found for grade in each.grades.elements()))}. Claims are counted as "
        "supported / refuted / undecided.", "",
        "| exercise | question | items answered | claims | picture |", "|---|---|---|---|---|",
        *("| " + " | ".join(_row(each)) + " |" for each in found), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _others(grades: Mapping[str, int]) -> str:
    """How many items have the grades that are no answers."""
    said = [f"{grades[each]} {each}" for each in GRADES if each not in ANSWERED and grades.get(each)]
    return ", ".join(said) or "there are none"


def _row(score: ExerciseScore) -> list[str]:
    """The cells of an exercise: number, title, items, claims, picture."""
    rest = f" ({_others(score.grades)})" if score.answered < sum(score.grades.values()) else ""
    items = f"{score.answered} of {score.asked}{rest}"
    if not score.folder:
        return [score.number, score.title, items, "not begun", ""]
    said = "<br>".join(f"{f'{scale}: ' if scale else ''}{_counts(counts)}" for scale, counts in score.claims.items())
    place = f"{score.folder}/{score.picture}"
    shown = f'[<img src="{place}" width="240" alt="{score.title}">]({place})' if score.picture else ""
    title = f"[{score.title}]({score.folder}/README.md)"
    return [score.number, title, items, said or "no results yet", shown]


def _counts(counts: Mapping[Any, int]) -> str:
    words = {"depends": "by condition", "withdrawn": "withdrawn"}
    others = ", ".join(f"{counts[each]} {word}" for each, word in words.items() if counts[each])
    return f"{counts['supported']} / {counts['refuted']} / {counts['undecided']}{others and f' ({others})'}"


def scorecard_svg(found: Sequence[ExerciseScore]) -> str:
    """The scorecard as a small picture: for each exercise the items answered, and its claims by verdict."""
    width, height = 760, 62 + _LINE * len(found)
    answered, total = sum(each.answered for each in found), sum(each.asked for each in found)
    claims = [each.claims.get("", Counter[str]()) for each in found]
    most = max([sum(counts[verdict] for verdict in _COLOURS) for counts in claims] + [1])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        written(12, 23, f"{answered} of {total} items are answered", 14, INK, "start", "bold"),
        written(270, 43, "items", 11, SOFT, "start"),
        written(430, 43, "claims: supported, refuted, undecided", 11, SOFT, "start"),
    ]
    for index, (each, counts) in enumerate(zip(found, claims, strict=True)):
        top = 52 + _LINE * index
        lines.append(written(12, top + 13, f"{each.number}  {each.title}", 11.5, INK, "start"))
        lines += [_bar(270, top + 3, 90, GRID), _bar(270, top + 3, 90 * each.answered / each.asked, INK)]
        lines.append(written(366, top + 13, f"{each.answered} of {each.asked}", 10, INK, "start"))
        left = 430.0
        for verdict, colour in _COLOURS.items():
            length = 180 * counts[verdict] / most
            lines.append(_bar(left, top + 3, length, colour))
            left += length
        said = " ".join(f"{counts[verdict]}\u2009{SYMBOLS[verdict]}" for verdict in _COLOURS)
        lines.append(written(left + 6, top + 13, said if counts else "no results yet", 10, SOFT, "start"))
    return "\n".join([*lines, "</svg>", ""])


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:.4g}" height="12" fill="{colour}"/>'


def main(arguments: Sequence[str], root: Path | None = None) -> int:
    """Print the scorecard of the exercises, or with `--publish` write it to their README.md with decision tables."""
    root = root or experiments_dir()
    if arguments not in ([], ["--publish"]):
        raise UsageError(f"python -m docs.scorecard takes --publish or nothing, not {quote(' '.join(arguments))}")
    found = scores(root)
    if not arguments:
        print(scorecard(found), end="")
        return 0
    print(*write(root, {"README.md": scorecard(found), PICTURE: scorecard_svg(found)}, clean=False), sep="\n")
    for exercise in sorted(each for each in root.iterdir() if each.is_dir()):
        if (table := decisions.decision_table(exercise)) is not None:
            print(*write(exercise, {decisions.PICTURE: table.svg()}, clean=False))
    return 0


if __name__ == "__main__":
    sys.exit(guarded(lambda: main(sys.argv[1:])))
