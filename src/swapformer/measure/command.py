"""Any command as a trial: it is run with a trial's settings and seed, and leaves its metrics."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from swapformer.errors import UsageError, cut, suggest
from swapformer.measure.base import MeasuredModel, Measurement
from swapformer.numerals import read_number
from swapformer.ranges import Within
from swapformer.results.config import FILLED
from swapformer.results.history import COLUMNS, HistoryWriter, read_history
from swapformer.results.shapes import Finding
from swapformer.targets import NOT_IN_ID, unlisted_imports
from swapformer.task.base import Direction

if TYPE_CHECKING:
    from swapformer.training.assemble import Config
    from swapformer.training.fit import Outcome

OUT, CHECKPOINT, LOG = "output", "checkpoints/command", "command.log"
"""Where they lie in the trial's folder, and what the command prints."""
JSON, CSV = "metrics.json", "metrics.csv"
"""What a command may leave in {out}: name → value, or rows with a column `step`."""
SECONDS_TO_STOP = 10
"""How long a command that is told to stop may write its checkpoint, before it is killed."""
_NAME = re.compile(r"\{(\w+)\}")
_NO_METRIC = ("step", "epoch")
"""Columns of a table that hold something in every row."""
_SHOWN = 300
"""Characters of the end of its log that a message repeats."""
_NUMBERS = re.compile(
    r"[-+−]?(?:\.?\d+(?:[.,_]\d+)*\.?(?:e[-+]?\d+)?(?:[kMGT](?![a-z]))?|nan|inf(?:inity)?|none|null)|\s+",
    re.ASCII | re.IGNORECASE,
)
_NOT_FINITE = re.compile(r"(?<![a-z])(?:nan|inf|infinity|none|null)(?![a-z])", re.IGNORECASE)
_GOES_ON = re.compile(r"\d|[._]\d|[eE][-+]?\d", re.ASCII)
_OF_VALUE = re.compile(r"/\d|[kKMGTB]\b|:\d\d|[hms]\d|['’]\d{3}|[dD][-+]?\d|\s?[×*]\s?10\b", re.ASCII)
_BEGINS = re.compile(r"\d[._]?$|(?:^|[\s=:(\[,|\"'])[-+−]\.?$", re.ASCII)
"""What stands behind and before a piece of a number; behind a value also `/5`, `M` and `:34`."""


class Command(Measurement):
    """Runs a command, which trains and evaluates in its own way, and reads the metrics that it leaves.

    `{name}` in the command is filled with a setting: {seed} with the trial's seed, {out} with an empty folder,
    {checkpoint} with a folder that is kept when the trial is interrupted. No shell reads the command. Its metrics are
    those of `{out}/metrics.json` (name → number), those of the last row of each column of `{out}/metrics.csv` (a
    column `step`, one for each metric), or those of printed lines.

    A metric that has no number at the end was lost with its trial, as one that is nan: its column is empty where its
    next value should stand (pandas writes nan so), or a printed line has nan or inf where earlier ones had numbers.

    Args:
        run: the command.
        settings: name → value of its placeholders.
        metrics: name → which way it is better.
        reads: metric → regular expression of a printed line. Its group is the value; with a group named `step` each
            line is a point of the history, and the last one counts.
        code: files by whose content a trial is known: their names, or name → sha256 as a trial keeps them.
        minutes: the longest that the command may take; None without a limit.

    Raises:
        UsageError: for a placeholder without a setting, or a setting without one.
    """

    def __init__(
        self,
        *,
        run: str,
        settings: Mapping[str, Any],
        metrics: Mapping[str, Direction],
        reads: Mapping[str, str],
        code: Sequence[str] | Mapping[str, str],
        minutes: Annotated[float, Within("(0, inf)")] | None,
    ) -> None:
        self.words, self.settings = _words(run), settings
        self.metrics, self.code, self.minutes = metrics, code, minutes
        given = {name for name, value in settings.items() if value is not None}
        asked = {name for word in self.words for name in _NAME.findall(word)}
        for name in sorted(asked - {*given, *FILLED}):
            raise UsageError(
                f"each placeholder of `run` must have a value, but {{{name}}} has none{suggest(name, given)}; set "
                f"{name}=… in each arm or in `overrides`"
            )
        for name in sorted(given - asked):
            raise UsageError(f"`run` must use each setting, but has no {{{name}}}{suggest(name, asked)}; add it")
        if "seed" not in asked:
            raise UsageError("`run` must hand the seed on, but has no {seed}; add one, such as --seed {seed}")
        if not reads and "out" not in asked:
            raise UsageError("`run` must say where results go, but has no {out}, and `reads` reads no printed line")
        self.reads = {name: _pattern(name, text) for name, text in reads.items()}

    @staticmethod
    def resolved(**settings: Any) -> dict[str, Any]:
        """The settings with the hash of each file of code: a trial is known by what it says."""
        names = settings["code"]
        if not isinstance(names, Sequence) or isinstance(names, str):
            return settings
        return {**settings, "code": {str(name): _hash(str(name)) for name in names}}

    def directions(self) -> Mapping[str, Direction]:
        return self.metrics

    def measure(self, subject: MeasuredModel) -> Finding:
        raise AssertionError("a command measures no model of ours")

    def run(self, config: Config, directory: Path) -> Outcome:
        """Run the command to its end and read what it has left.

        Raises:
            UsageError: if its code has changed since the trial was named.
            RuntimeError: if it fails, takes too long, or leaves no metrics.
        """
        from swapformer.training.fit import Outcome  # late: it brings Lightning

        if isinstance(self.code, Mapping):
            for name, digest in self.code.items():
                if _hash(name) != digest:
                    raise UsageError(f"a trial is known by its code, but {name} has changed since; start it again")
        out, checkpoint = directory.absolute() / OUT, directory.absolute() / CHECKPOINT
        before = self._left_by_earlier_attempts(directory, out, checkpoint)
        shutil.rmtree(out, ignore_errors=True)
        for folder in (out, checkpoint):
            folder.mkdir(parents=True, exist_ok=True)
        values = {**self.settings, "seed": config["seed"], "out": out, "checkpoint": checkpoint}
        words = [_NAME.sub(lambda found: _text(values[found[1]]), word) for word in self.words]
        log = directory / LOG
        _write_history(directory, before)
        with log.open("ab") as file:
            start = file.tell()
            self._execute(words, file, int(config["trainer"]["threads"]))
        with log.open("rb") as file:
            file.seek(start)
            printed = file.read().decode("utf-8", "replace")
        history = self._history(out, printed)
        first = min(history, default=math.inf)
        history = {**{step: row for step, row in before.items() if step < first}, **history}
        _write_history(directory, history)
        metrics = self._final(out, printed, history)
        known = {name: value for name, value in metrics.items() if name in self.metrics}
        if missing := [name for name in self.metrics if name not in known]:
            given = ", ".join(metrics) or "none"
            raise RuntimeError(
                f"the command must leave {missing[0]}, in {{out}}/{JSON}, {{out}}/{CSV} or a printed line, but ended "
                f"without it; it left {given}{suggest(missing[0], metrics)}"
            )
        ended = {
            **dict.fromkeys(_emptied(out / CSV), "is empty in the last rows of its column"),
            **{name: "is printed without a number" for name in self.reads if self._lost_in(name, printed)},
        }
        left = _object(out / JSON)
        known |= {name: math.nan for name in ended if name in known and name not in left}
        lost = [
            f"{name} {ended.get(name, f'is {value}')}: it counts as lost"
            for name, value in known.items()
            if not math.isfinite(value)
        ]
        lost += [f"{NOT_IN_ID}{name}" for name in self._unlisted()]
        steps = max(history, default=0)
        return Outcome("finished", metrics=known, directions=dict(self.metrics), steps=steps, notes=tuple(lost))

    def _unlisted(self) -> list[str]:
        """The files that the command's Python scripts import and that `code` does not name."""
        scripts = [Path(word) for word in self.words if word.endswith(".py") and Path(word).is_file()]
        listed = [*map(Path, self.code), *scripts]
        found = [name for script in scripts for name in unlisted_imports(script, listed)]
        found += [
            script.name for script in scripts if script.resolve() not in {Path(each).resolve() for each in self.code}
        ]
        return list(dict.fromkeys(found))

    def _execute(self, words: Sequence[str], log: IO[bytes], threads: int) -> None:
        """Run it; whatever ends this process' wait ends the command and all that it has started."""
        count = str(threads)
        given = {**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}
        given.pop("PYTHONSAFEPATH", None)  # of our own processes: a script imports what lies beside it
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=given, start_new_session=True
            )
        except OSError as error:
            raise RuntimeError(
                f"the command must be one that can be run, but {words[0]!r}: {error.strerror}"
            ) from error
        try:
            status = process.wait(None if self.minutes is None else 60 * self.minutes)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the command must end within {self.minutes:g} minutes, but it did not") from None
        finally:
            _stop(process)
        if status:
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            said = Path(log.name).read_text("utf-8", "replace").strip().splitlines()
            raise RuntimeError(
                f"the command {how}: {cut(said[-1], _SHOWN) if said else 'it printed nothing'}; see {LOG}"
            )

    def _history(self, out: Path, printed: str, cut_off: bool = False) -> dict[int, dict[str, float]]:
        """Step → metric → value, of the table, whose last line may be `cut_off`, and of printed lines with a step.

        Only what was cut off may go back: each attempt begins at its checkpoint, and its values are the later ones.
        """
        found: dict[int, dict[str, float]] = {}
        for points in (_table(out / CSV, cut_off), self._points(printed)):
            last: dict[str, int] = {}
            for step, name, value in points:
                if step < last.get(name, 0) and not cut_off:
                    raise RuntimeError(
                        f"the steps of {name} must not go back, but {step} follows {last[name]}, so which value is the "
                        "last is not known; count on where another phase or epoch begins"
                    )
                last[name] = step
                found.setdefault(step, {})[name] = value
        return found

    def _left_by_earlier_attempts(self, directory: Path, out: Path, checkpoint: Path) -> dict[int, dict[str, float]]:
        """The history up to where a command was interrupted that goes on from its checkpoint; empty without one."""
        if not checkpoint.is_dir() or not any(checkpoint.iterdir()):
            return {}
        found: dict[int, dict[str, float]] = {}
        for step, name, value in zip(*(read_history(directory, None, [])[each] for each in COLUMNS), strict=True):
            found.setdefault(int(step), {})[name] = float(value)
        log = directory / LOG
        printed = log.read_text("utf-8", "replace") if log.is_file() else ""
        whole = printed[: printed.rfind("\n") + 1]  # the last line may have been cut off
        for step, row in self._history(out, whole, cut_off=True).items():
            found.setdefault(step, {}).update(row)
        return found

    def _points(self, printed: str) -> Iterator[tuple[int, str, float]]:
        for name, pattern in self.reads.items():
            if "step" in pattern.groupindex:
                for line in pattern.finditer(printed):
                    yield _step(_whole(name, line, "step")), name, _number(name, _value(name, line))

    def _lost_in(self, name: str, printed: str) -> bool:
        """Whether a printed line has nan or inf where the lines before it, which fit a metric's pattern, had numbers.

        A pattern such as `loss ([\\d.]+)` does not fit it, and the last number that it fits was not the last value.
        What fits may be several lines, and what follows a value on its line does not matter. A later line that has a
        number there, and does not fit either, is refused: `loss (\\d\\.\\d+)` would pass over 12.31.
        """
        printed = re.sub(r"[\r\n]+", "\n", printed)
        shapes: dict[str, int] = {}
        end = 0
        for found in self.reads[name].finditer(printed):
            start, end = printed.rfind("\n", 0, found.start()) + 1, found.end()
            shapes[_shape(printed[start:end])] = printed.count("\n", start, end) + 1
        later = printed[end:].split("\n")[1:]
        alike = [
            text
            for shape, count in shapes.items()
            for text in ("\n".join(later[at : at + count]) for at in range(len(later)))
            if _shape(text).startswith(shape)
        ]
        if not any(map(_NOT_FINITE.search, alike)) and alike:
            raise RuntimeError(
                f"the pattern of {name} must fit each line that reports it, but behind the last that it fits stands "
                f"{cut(alike[-1].strip(), 80)!r}; widen it, such as with (\\S+) for the value"
            )
        return bool(alike)

    def _final(self, out: Path, printed: str, history: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
        """The metrics at the end: the newest of the history, then what the file and single printed lines say."""
        found = {name: value for _, row in sorted(history.items()) for name, value in row.items()}
        for name, pattern in self.reads.items():
            if "step" not in pattern.groupindex:
                lines = [_value(name, line) for line in pattern.finditer(printed)]
                if len(lines) > 1:
                    raise RuntimeError(
                        f"the command must print {name} once, but {len(lines)} lines fit its pattern; give the pattern "
                        "a group (?P<step>…), and the last step counts"
                    )
                if lines:
                    found[name] = _number(name, lines[0])
        for name, value in _object(out / JSON).items():
            # other entries may be settings that the command repeats
            if name in self.metrics or (isinstance(value, int | float) and not isinstance(value, bool)):
                found[name] = _number(name, value)
        return found


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the command's process group: asked first, so that it can write its checkpoint."""
    for number, patience in ((signal.SIGTERM, SECONDS_TO_STOP), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    process.wait()


def _words(run: str) -> list[str]:
    try:
        words = shlex.split(run)
    except ValueError as error:
        raise UsageError(f"`run` must be a command, but its quotes do not match: {error}") from None
    if not words:
        raise UsageError("`run` must be a command, but it is empty")
    return words


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def _pattern(name: str, text: str) -> re.Pattern[str]:
    try:
        found = re.compile(text, re.MULTILINE)
    except re.error as error:
        raise UsageError(f"`reads` of {name} must be a regular expression, but {text!r}: {error}") from None
    if found.groups - ("step" in found.groupindex) != 1:
        raise UsageError(
            f"`reads` of {name} must have one group, its value (and perhaps (?P<step>…)), but {text!r} has "
            f"{found.groups}; write {name.rpartition('/')[2]} (\\S+)"
        )
    return found


def _shape(text: str) -> str:
    """A text without its numbers."""
    return _NUMBERS.sub("#", text.strip())


def _value(name: str, line: re.Match[str]) -> str:
    """The value of a line that fits: its group other than the step."""
    step = line.re.groupindex.get("step")
    return _whole(name, line, next(index for index in range(1, line.re.groups + 1) if index != step))


def _whole(name: str, line: re.Match[str], group: int | str) -> str:
    """What a group of a pattern takes. Raises RuntimeError where that is a piece of a number only."""
    (start, end), text = line.span(group), line.string
    begins = text[start : start + 1].isdigit() and _BEGINS.search(text[max(0, start - 3) : start])
    goes_on = _GOES_ON.match(text, end) or (group != "step" and _OF_VALUE.match(text, end))
    # 12,345 is one number, and 5,0.5 two cells of which the first is a step
    comma = re.compile(r",\d{3}(?!\d)" if group == "step" else r",\d").match(text, end)
    if begins or (comma and text[start:end].isdigit()) or (text[start:end] and goes_on):
        shown = text[max(0, start - 3) : end + 5].strip()
        raise RuntimeError(
            f"the pattern of {name} must take all of a number, but takes {text[start:end]!r} of {shown!r}; write "
            "(\\S+) for it"
        )
    return line[group]


def _number(name: str, text: object) -> float:
    try:
        if isinstance(text, bool):
            raise ValueError
        return read_number(text)
    except ValueError:
        raise RuntimeError(f"a metric must be a number, but the command left {name} = {text!r}") from None


def _step(text: str) -> int:
    if not (step := _number("step", text)).is_integer():
        raise RuntimeError(f"each step must be a whole number, but the command left {text}")
    return int(step)


def _object(path: Path) -> dict[str, Any]:
    """The entries of a JSON object; none where there is no file."""

    def once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise RuntimeError(f"{JSON} must have each metric once, but it has {twice!r} twice")
        return dict(pairs)

    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=once)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{JSON} must be JSON, but it cannot be read: {cut(error)}") from error
    if not isinstance(found, dict):
        raise RuntimeError(f"{JSON} must map names to numbers, but it holds {type(found).__name__}")
    return found


def _write_history(directory: Path, history: Mapping[int, Mapping[str, float]]) -> None:
    writer = HistoryWriter(directory, -1)
    for step, row in sorted(history.items()):
        writer.write(step, row)


def _table(path: Path, cut_off: bool = False) -> Iterator[tuple[int, str, float]]:
    """Every value of a table with a column `step`; where it may be `cut_off`, only those of whole lines."""
    for row in _rows(path, cut_off):
        for name, value in row.items():
            if name != "step" and value:
                yield _step(row["step"]), name, _number(name, value)


def _emptied(path: Path) -> Iterator[str]:
    """The metrics of a table whose column ends empty, where one more value should be there.

    That is so behind a row which holds nothing, and where the distance from its last value is one that its other values
    have kept to, the smallest; of distances that only grow, the next one.
    """
    rows = list(_rows(path))
    steps = [_step(row["step"]) for row in rows]
    for name in rows[0] if rows else ():
        filled = sorted(step for step, row in zip(steps, rows, strict=True) if row[name])
        behind = [row for step, row in zip(steps, rows, strict=True) if filled and step > filled[-1]]
        apart = [later - step for step, later in pairwise(filled) if later > step]
        grows = len(apart) > 1 and all(one < other for one, other in pairwise(apart))
        due = apart[-1] ** 2 / apart[-2] if grows else min(apart, default=math.inf)
        nothing = any(not any(value for key, value in row.items() if key not in _NO_METRIC) for row in behind)
        if behind and (nothing or max(steps) - filled[-1] >= due):
            yield name


def _rows(path: Path, cut_off: bool = False) -> Iterator[dict[str, str]]:
    """The rows of a table with a column `step`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1] if cut_off else text, newline="")))
    except FileNotFoundError:
        return
    except (OSError, ValueError, csv.Error) as error:
        raise RuntimeError(f"{CSV} must be a table, but it cannot be read: {cut(error)}") from error
    if cut_off and not rows:
        return
    head = rows[0] if rows else []
    if twice := next((name for name in head if head.count(name) > 1), None):
        raise RuntimeError(f"a metric must have one column in {CSV}, but {twice!r} has two")
    if "step" not in head:
        raise RuntimeError(f"{CSV} must have a column `step`, but it has {', '.join(head) or 'none'}")
    for row in rows[1:]:
        if not row:
            continue  # a blank line
        if len(row) != len(head):
            raise RuntimeError(f"each row of {CSV} must have {len(head)} values, but one has {len(row)}")
        yield dict(zip(head, row, strict=True))


def _hash(name: str) -> str:
    try:
        return hashlib.sha256(Path(name).read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"`code` must name files that can be read, but {name}: {error.strerror}") from error
