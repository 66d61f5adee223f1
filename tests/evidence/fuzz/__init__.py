"""Hostile inputs and damaged stores: tables that the tests run through, and a random form that draws from them."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from evidence.fuzz import command_lines, damages, settings, study_files, template
from evidence.fuzz.judge import FAULTS, Ending, dry, run

SIGNS = "{}[]()=,:'\"&*!|>%@`~\\$\0\n\t\u202e9-"
"""What parsers of YAML and of overrides know, and what no terminal should see."""


def fuzz(minutes: float, seed: int) -> tuple[dict[str, Counter[str]], list[str]]:
    """How commands end that are given random wrong settings, study files, store files and command lines, and faults.

    The same seed tries the same things in the same order.
    """
    chosen = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, settings.composing():
        place = _Place(Path(name), chosen)
        attempts: Mapping[str, Callable[[], tuple[str, Ending]]] = {
            "settings": place.setting, "study files": place.study_file, "store files": place.store_file,
            "command lines": place.command_line,
        }  # fmt: skip
        found = {kind: Counter[str]() for kind in attempts}
        faults = []
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            kind = chosen.choice(list(attempts))
            what, outcome = attempts[kind]()
            found[kind][outcome.kind] += 1
            if outcome.kind in FAULTS:
                faults.append(f"{outcome.kind}: {kind}: {what[:300]!r}: {outcome.message[-300:]!r}")
    return found, faults


class _Place:
    """A folder with a store that is damaged at random, and put right again."""

    def __init__(self, folder: Path, chosen: random.Random) -> None:
        self.chosen, self.folder, self.whole = chosen, folder / "damaged", folder / "whole"
        self.folder.mkdir()
        self.trials = template.make(self.folder)
        shutil.copytree(self.folder, self.whole, symlinks=True)
        self.empty = folder / "empty"
        self.empty.mkdir()

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
            ["status", template.NAME], ["report", template.NAME, "--json"], ["cost", template.NAME],
            ["sample", trial, "--prompt", "1", "--tokens", "2", "--runs-dir", "runs"],
            ["train", *template.SMALL, f"init_from={trial}", "seed=9"],
        ])  # fmt: skip
        with dry():
            found = run(command, self.folder, reads=command[0] not in ("cost", "train"))
        damages.DAMAGES["missing"](self.folder / "runs")
        shutil.copytree(self.whole / "runs", self.folder / "runs", symlinks=True)
        return f"{what}, then {' '.join(command)}", found

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
