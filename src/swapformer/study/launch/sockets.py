"""Where processes that are started are spoken to: sockets, whose names the kernel keeps short."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from swapformer.errors import UsageError

LONGEST = 103
"""Bytes of a socket's name; Linux has four more."""
OWN = "/pymp-12345678/listener-12345678"
"""What multiprocessing appends to the folder for temporary files."""


@contextmanager
def short_sockets() -> Iterator[None]:
    """Start processes within: their sockets lie in the folder for temporary files, or in /tmp if its name is too long.

    Raises:
        UsageError: where neither will do.
    """
    before, longest = tempfile.tempdir, LONGEST - len(OWN)
    given = tempfile.gettempdir()
    fitting = [place for place in (given, "/tmp", "/var/tmp") if len(os.fsencode(place)) <= longest]
    usable = [place for place in fitting if os.access(place, os.W_OK | os.X_OK)]
    if not usable:
        raise UsageError(
            f"TMPDIR must have at most {longest} bytes, since sockets lie in it, but it is {given}; set it to a folder "
            "with a shorter name"
        )
    tempfile.tempdir = usable[0]
    try:
        yield
    finally:
        tempfile.tempdir = before
