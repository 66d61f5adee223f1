"""Runs commands: an error becomes one line and an exit status, and nothing that is printed can steer the terminal."""

from __future__ import annotations

import argparse
import errno
import gc
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from swapformer.errors import UsageError, printable, quote, suggest

if TYPE_CHECKING:
    from rich.console import Console

DONE, FAILED, WRONG_USE = 0, 1, 2
RESUMES = "the same command continues from here"
LONGEST = 300
"""The most characters of the line with which a command refuses; `--debug` shows the whole."""
_HEAD, _CUT = 190, " … "
_UNWRITABLE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room for it"),
    errno.EFBIG: "raise the limit on the size of a file (`ulimit -f`)",
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose another folder, or make this one writable"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit on open files (`ulimit -n`)"),
}
"""Errors of the file system that are no fault of the program, and what helps."""
_NARROWEST, _USUAL, _PIPED = 20, 80, 160
"""Columns: a terminal that says that it has fewer than the first is taken for a usual one; a pipe takes names whole."""
UNFORESEEN = (
    "swapformer: an error that nobody foresaw, so a bug of swapformer or of a part of your own; please report it with "
    "the command and this traceback"
)


class Failed(Exception):
    """The command did its work and something in it failed: one line, status 1."""


@contextmanager
def few_collections() -> Iterator[None]:
    """Python's collector of cycles looks for them much less often: torch is imported in a fifth less time.

    Not for a training, where a cycle may hold the tensors of a step.
    """
    usual = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """The `type` of an option of argparse that is a whole number of at least `least`, and of 64 bits or `most`."""
    bound = 2**63 - 1 if most is None else most

    def count(text: str) -> int:
        if not text.lstrip("+-").isdecimal() or len(text) > 19 or not least <= int(text) <= bound:
            beyond = "" if most is None and len(text) < 19 else f" and at most {bound:,}"
            raise argparse.ArgumentTypeError(
                f"it must be a whole number of at least {least}{beyond}, but it is {quote(text)}"
            )
        return int(text)

    return count


def within(low: float, high: float) -> Callable[[str], float]:
    """The `type` of an option of argparse that is a number between two others, or one of them."""

    def number(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not low <= found <= high:
            raise argparse.ArgumentTypeError(f"it must be a number from {low:g} to {high:g}, but it is {quote(text)}")
        return found

    return number


@dataclass(frozen=True)
class OneOf:
    """The `type` of an argument of argparse that is one of some words.

    Unlike `choices` it also fits an argument that may be left out or stand several times, and says what is meant.
    """

    what: str
    words: tuple[str, ...]

    def __call__(self, text: str) -> str:
        if text not in self.words:
            raise argparse.ArgumentTypeError(f"no {self.what} {quote(text)}{suggest(text, self.words)}")
        return text


class _Printable:
    """A stream whose text is `printable`; all else is the stream's own."""

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream  # by this name rich finds where its own styles may be written
        self._stream = stream

    def write(self, text: str) -> int:
        shown = printable(text)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            shown.encode(encoding)
        except UnicodeEncodeError:  # what the terminal's encoding lacks is replaced
            shown = shown.encode(encoding, "replace").decode(encoding)
        self._stream.write(shown)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printable_output() -> Iterator[None]:
    """Escape control characters in what is printed within: names come from files that others may have written."""
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w") as nowhere:
        there = [nowhere if stream is None else stream for stream in before]  # None: closed by the shell
        sys.stdout, sys.stderr = (each if isinstance(each, _Printable) else _Printable(each) for each in there)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def terminal(*, stderr: bool = False) -> Console:
    """A console of rich, whose styles reach the terminal while its text is `printable`."""
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult

    class Escaped:
        def __init__(self, renderable: ConsoleRenderable) -> None:
            self.renderable = renderable

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for piece in console.render(self.renderable, options):
                yield piece if piece.control else piece._replace(text=printable(piece.text))

    class Hook(RenderHook):
        def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
            return [Escaped(renderable) for renderable in renderables]

    made = Console(stderr=stderr)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _PIPED
    elif made.width < _NARROWEST:  # COLUMNS=0 among them: nothing would be shown
        made.width = _USUAL
    made.push_render_hook(Hook())
    return made


def unwritable(error: BaseException) -> str | None:
    """The refusal of the file system and what helps, in words; None for an error that is not its."""
    if not isinstance(error, OSError) or error.errno not in _UNWRITABLE:
        return None
    return f"{error.filename or 'a file'} cannot be written: {error.strerror}; {_UNWRITABLE[error.errno]}"


class CommandLine(argparse.ArgumentParser):
    """A parser that does not accept abbreviated options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)


def guarded(action: Callable[[], int | None], debug: bool = False) -> int:
    """Run a command and return its exit status; with `debug`, errors keep their tracebacks."""
    before = warnings.formatwarning
    if not debug:
        warnings.formatwarning = _warning
    try:
        with printable_output():
            logging.basicConfig(level=logging.WARNING, format="swapformer: %(message)s")
            return _guarded(action, debug)
    finally:
        warnings.formatwarning = before


def _warning(message: Warning | str, *_: object, **__: object) -> str:
    """A library's warning as one line of ours, without the place in its code; `--debug` keeps that."""
    return _line(f"swapformer: warning: {message}".strip()) + "\n"


def _guarded(action: Callable[[], int | None], debug: bool) -> int:
    try:
        return action() or DONE
    except (UsageError, Failed) as error:
        if debug:
            raise
        wrong = isinstance(error, UsageError)
        print(_line(f"swapformer: {'error: ' if wrong else ''}{error}"), file=sys.stderr)
        return WRONG_USE if wrong else FAILED
    except KeyboardInterrupt:
        print(f"swapformer: interrupted; {RESUMES}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # The reader (head, less) has what it wanted; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG and not debug:
            print(_line(f"swapformer: error: a path is longer than a file's can be: {error.filename}"), file=sys.stderr)
            return WRONG_USE
        if debug or (why := unwritable(error)) is None:
            raise
        print(_line(f"swapformer: {why}, and {RESUMES}"), file=sys.stderr)
        return FAILED
    except MemoryError:
        if debug:
            raise
        print("swapformer: the memory does not suffice; lower sizes, such as task.batch_size", file=sys.stderr)
        return FAILED
    except Exception as error:
        if not debug:
            error.add_note(UNFORESEEN)
        raise


def _line(text: str) -> str:
    """A message as one line; a long one keeps its beginning, which says what is wrong, and its end, the remedy."""
    text = printable(" ".join(text.splitlines()))
    return text if len(text) <= LONGEST else text[:_HEAD] + _CUT + text[len(_CUT) + _HEAD - LONGEST :]
