"""Hostile inputs and damaged stores: tables that the tests run through, and a random form that draws from them."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from evidence.fuzz import command_lines, damages, settings, study_files, template
from evidence.fuzz.judge import CLEAR, FAILED, FAULTS, WORKED, WRONG, Ending, dry, run

SIGNS = "{}[]()=,:'\"&*!|>%@`~\\$\0\n\t\u202e9-"
"""What parsers of YAML and of overrides know, and what no terminal should see."""


def fuzz(count: int, seed: int) -> tuple[dict[str, Counter[str]], list[str]]:
    """How `count` commands end that are given random wrong inputs of each kind in turn, and the faults among them.

    The same seed tries the same things in the same order.
    """
    chosen = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, settings.composing():
        place = _Place(Path(name), chosen)
        attempts: Mapping[str, Callable[[], tuple[str, Ending]]] = {
            "settings": place.setting, "study files": place.study_file, "store files": place.store_file,
            "results files": place.results_file, "command lines": place.command_line,
        }  # fmt: skip
        found = {kind: Counter[str]() for kind in attempts}
        faults = []
        for number in range(count):
            kind = [*attempts][number % len(attempts)]
            what, outcome = attempts[kind]()
            found[kind][outcome.kind] += 1
            if outcome.kind in FAULTS:
                faults.append(f"{outcome.kind}: {kind}: {what[:300]!r}: {outcome.message[-300:]!r}")
    return found, faults


def table(found: Mapping[str, Counter[str]]) -> str:
    """The counts as a table in Markdown."""
    columns = ("tried", CLEAR, WORKED, FAILED, *FAULTS)
    rows = [["input", *columns], ["---"] * (len(columns) + 1)]
    rows += [
        [kind, *(str(counts.total() if each == "tried" else counts[each]) for each in columns)]
        for kind, counts in found.items()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


class _Place:
    """A folder with a store that is damaged at random, and put right again."""

    def __init__(self, folder: Path, chosen: random.Random) -> None:
        self.chosen, self.folder, self.whole = chosen, folder / "damaged", folder / "whole"
        self.folder.mkdir()
        self.trials = template.make(self.folder)
        shutil.copytree(self.folder, self.whole, symlinks=True)
        self.empty = folder / "empty"
        self.empty.mkdir()
        self.answer = json.loads(run(["report", template.NAME, "--json"], self.folder).out)
        self.results = {
            name: (self.folder / "runs/studies" / template.NAME / "report" / name).read_text(encoding="utf-8")
            for name in ("results.csv", "history.csv")
        }

    def setting(self) -> tuple[str, Ending]:
        """A number of the base configuration or of an option, set to what is none, or to a random one."""
        every = [*settings.base_settings(), *settings.option_settings()]
        setting = self.chosen.choice(every)
        values = [*settings.NUMBERS.values(), self.chosen.uniform(-2, 2), 10 ** self.chosen.randint(2, 12), [], {}, "x"]
        value = self.chosen.choice(values)
        return f"{setting} = {value!r}", settings.attempt(setting, value, self.empty)

    def study_file(self) -> tuple[str, Ending]:
        """A study file with a field of a wrong type, or a text that was cut, doubled or changed somewhere."""
        what, text = self.chosen.choice([*study_files.mutations(), *study_files.TEXTS.items()])
        if self.chosen.random() < 0.5:
            what, text = f"{what}, changed", self._changed(text)
        return self._study(what, text)

    def _study(self, what: str, text: str) -> tuple[str, Ending]:
        (self.empty / "a.yaml").write_text(text, encoding="utf-8", errors="surrogateescape")
        with dry():
            return f"{what}: {text[-200:]!r}", self._emptied(lambda: run(["study", "a.yaml"], self.empty))

    def store_file(self) -> tuple[str, Ending]:
        """A file of the store damaged, and a command that reads it."""
        trial = self.chosen.choice(self.trials)
        below, name = self.chosen.choice(
            [(f"trials/{trial}", name) for name in damages.TRIAL_FILES]
            + [(f"studies/{template.NAME}", name) for name in damages.STUDY_FILES]
        )
        target = self.folder / "runs" / below
        what = f"{name} {self._damage(damages.place(target, name))}"
        command = self.chosen.choice([
            ["trials"], ["trials", trial], ["trials", "compare", *self.trials[:2]], ["trials", "prune"], ["status"],
            ["status", template.NAME], ["report", template.NAME, "--json"],
            ["sample", trial, "--prompt", "1", "--tokens", "2", "runs_dir=runs"],
            ["train", *template.SMALL, f"init_from={trial}", "seed=9"],
        ])  # fmt: skip
        with dry():
            found = run(command, self.folder, reads=command[0] != "train")
        damages.DAMAGES["missing"](self.folder / "runs")
        shutil.copytree(self.whole / "runs", self.folder / "runs", symlinks=True)
        return f"{what}, then {' '.join(command)}", self._believed(found) if command[0] == "report" else found

    def results_file(self) -> tuple[str, Ending]:
        """A study's folder with a `results.csv` that an editor or a cut has spoiled, judged again without a store."""
        lines = self.results["results.csv"].splitlines()
        at = self.chosen.randrange(1, len(lines))
        cells = lines[at].split(",")
        cell = self.chosen.randrange(len(cells))
        how = self.chosen.choice(
            ["semicolons", "tabs", "cut", "a row short", "a row long", "doubled", "gone", "shuffled", "other cell",
             "text changed", "no header", "a column gone", "an arm gone"]
        )  # fmt: skip
        if how in ("semicolons", "tabs"):
            lines = [line.replace(",", ";" if how == "semicolons" else "\t") for line in lines]
        elif how == "cut":
            lines = "\n".join(lines)[: self.chosen.randrange(len("\n".join(lines)))].splitlines()
        elif how in ("a row short", "a row long"):
            lines[at] = lines[at].rpartition(",")[0] if how == "a row short" else lines[at] + ",1"
        elif how == "doubled":
            lines.insert(at, lines[at])
        elif how == "gone":
            del lines[at]
        elif how == "shuffled":
            lines[1:] = self.chosen.sample(lines[1:], len(lines) - 1)
        elif how == "other cell":
            cells[cell] = self.chosen.choice(["", "nothing", "-1", "1_0", "nan", "up", "0x10"])
            lines[at] = ",".join(cells)
        elif how == "no header":
            del lines[0]
        elif how == "a column gone":
            lines = [",".join(each for i, each in enumerate(line.split(",")) if i != cell) for line in lines]
        elif how == "an arm gone":
            lines = [line for line in lines if not line.startswith(cells[0])]
        text = "\n".join(lines) + "\n"
        text = self._changed(text) if how == "text changed" else text
        results = self.empty / template.NAME / "results"
        results.mkdir(parents=True)
        shutil.copy(self.folder / template.FILE, results.parent / "study.yaml")
        (results / "results.csv").write_text(text, encoding="utf-8", errors="surrogateescape")
        found = self._emptied(lambda: run(["report", template.NAME, "--json"], self.empty))
        untouched = how in ("text changed", "other cell")  # numbers may have become other numbers, which nobody can see
        return f"{how} in row {at}, cell {cell}: {lines[at : at + 1]}", found if untouched else self._believed(found)

    def _believed(self, found: Ending) -> Ending:
        """The ending, or WRONG where a complete answer has other verdicts than the undamaged store."""
        if found.kind != WORKED:
            return found
        answer = json.loads(found.out)
        wrong = answer["complete"] and answer["verdicts"] != self.answer["verdicts"]
        return replace(found, kind=WRONG, message=str(answer["verdicts"])) if wrong else found

    def _damage(self, path: Path) -> str:
        """Damage a file in a way of the tables, or at random, and say how."""
        if path.suffix in (".json", ".yaml") and path.is_file() and self.chosen.random() < 0.5:
            how, text = self.chosen.choice(list(damages.wrong_types(path)))
            path.write_text(text, encoding="utf-8")
            return how
        if path.name == "last.ckpt" and self.chosen.random() < 0.5:
            how = self.chosen.choice(list(damages.CHECKPOINTS))
            damages.CHECKPOINTS[how](path)
            return how
        if path.is_file() and self.chosen.random() < 0.3:
            content = bytearray(path.read_bytes())
            for _ in range(self.chosen.randint(1, 20) if content else 0):
                content[self.chosen.randrange(len(content))] = self.chosen.randrange(256)
            path.write_bytes(content)
            return "bytes changed"
        how = self.chosen.choice(list(damages.DAMAGES))
        damages.DAMAGES[how](path)
        return how

    def command_line(self) -> tuple[str, Ending]:
        """A hostile command line, or a good one with a word changed, doubled, moved or left out."""
        words = [*self.chosen.choice([line for lines in command_lines.LINES.values() for line in lines])]
        if words and self.chosen.random() < 0.6:
            at = self.chosen.randrange(len(words))
            change = self.chosen.choice(["changed", "doubled", "left out", "moved"])
            if change == "changed":
                words[at] = self._changed(words[at])
            elif change == "doubled":
                words.insert(at, words[at])
            else:
                word = words.pop(at)
                words += [word] if change == "moved" else []
        with dry():
            return json.dumps(words)[-300:], self._emptied(lambda: run(words, self.empty))

    def _emptied(self, act: Callable[[], Ending]) -> Ending:
        found = act()
        shutil.rmtree(self.empty)
        self.empty.mkdir()
        return found

    def _changed(self, text: str) -> str:
        """A text with a piece cut out, doubled, or replaced by signs that parsers know."""
        start = self.chosen.randrange(len(text) + 1)
        end = min(len(text), start + self.chosen.randint(1, 8))
        middle = self.chosen.choice(
            ["", 2 * text[start:end], self.chosen.choice("{}[]()=,:'\"&*!|>%@`~\\$\0\n\t\u202e9-")]
        )
        return text[:start] + middle + text[end:]
