"""Runs commands: an error becomes one line instead of a traceback, and an exit status."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from swapformer.errors import UsageError, suggest

DONE, FAILED, WRONG_USE = 0, 1, 2
RESUMES = "the same command goes on from here"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Failed(Exception):
    """The command did its work and something in it failed: one line, status 1."""


def at_least(least: int) -> Callable[[str], int]:
    """The `type` of an option of argparse that is a whole number of at least `least`."""

    def count(text: str) -> int:
        if not text.lstrip("+-").isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"it must be a whole number of at least {least}, but it is {text!r}")
        return int(text)

    return count


@dataclass(frozen=True)
class OneOf:
    """The `type` of an argument of argparse that is one of some words; completion offers them.

    Unlike `choices` it also fits an argument that may be left out or stand several times, and says what is meant.
    """

    what: str
    words: tuple[str, ...]

    def __call__(self, text: str) -> str:
        if text not in self.words:
            raise argparse.ArgumentTypeError(f"no {self.what} {text!r}{suggest(text, self.words)}")
        return text


def guarded(action: Callable[[], int | None], debug: bool = False) -> int:
    """Run a command and return its exit status; with `debug`, errors keep their tracebacks."""
    logging.basicConfig(level=logging.WARNING, format="swapformer: %(message)s")
    try:
        return action() or DONE
    except (UsageError, Failed) as error:
        if debug:
            raise
        wrong = isinstance(error, UsageError)
        print(f"swapformer: {'error: ' if wrong else ''}{error}", file=sys.stderr)
        return WRONG_USE if wrong else FAILED
    except KeyboardInterrupt:
        print(f"swapformer: interrupted; {RESUMES}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # The reader (head, less) has what it wanted; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        if debug or error.errno not in _NO_ROOM:
            raise
        path = error.filename or "a file"
        print(f"swapformer: {path} cannot be written: {error.strerror}; {RESUMES} with room for it", file=sys.stderr)
        return FAILED
