"""The first import of the fork server: leave the session of the command that started it.

A stop that is sent to the whole group of processes (Ctrl-C, a scheduler's SIGTERM) must reach only the parent: without
the server it would take its children for dead while they still write their last records.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

if sys.argv[:1] == ["-c"] and "multiprocessing.forkserver" in sys.modules:  # nobody else who imports this
    with suppress(PermissionError):
        os.setsid()
