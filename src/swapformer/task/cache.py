"""Tokenised corpora kept on disk, so that a trial need not read and tokenise its text again.

In `$SWAPFORMER_CACHE` (default `~/.cache/swapformer`): `<signature>.json` says which corpus files of a certain size and
time of change make, and `<fingerprint>.npy` holds its ids. Every file is complete from its first moment (written aside,
then renamed), named by what it holds, and checked against the fingerprint when read: whoever writes at the same time
writes the same. What is damaged counts as absent; where nothing can be written, nothing is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from swapformer.task import corpus as corpus_module
from swapformer.task.corpus import Corpus
from swapformer.task.sources import Source

_SETTLED = 2 * 10**9
"""Nanoseconds after a change of a file before its signature is trusted: a second change might leave the same times."""


def cache_dir() -> Path:
    """The folder of the cache."""
    return Path(os.environ.get("SWAPFORMER_CACHE") or Path("~/.cache/swapformer").expanduser()) / "corpora"


def signature(source: Source, settings: Sequence[object]) -> tuple[str, int]:
    """What changes when a file may have changed, in hex, without reading it; and the latest change (ns since 1970).

    The code that makes the corpus is part of it: what another version made of the files does not count.
    """
    code = hashlib.sha256(Path(corpus_module.__file__).read_bytes()).hexdigest()
    stats = [(name, str(path.absolute()), path.stat()) for name, path in source.files]
    facts = [(name, path, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, path, s in stats]
    latest = max(max(s.st_mtime_ns, s.st_ctime_ns) for _, _, s in stats)
    return hashlib.sha256(json.dumps([code, facts, list(settings), source.whole_files]).encode()).hexdigest(), latest


def load(signature: str) -> Corpus | None:
    """The corpus that files with this signature make; None where it is not in the cache or is damaged there."""
    try:
        folder = cache_dir()
        entry = json.loads((folder / f"{signature}.json").read_text(encoding="utf-8"))
        ids = np.asarray(np.load(folder / f"{entry['fingerprint']}.npy", mmap_mode="r", allow_pickle=False))
        corpus = Corpus.of(ids, entry["lengths"], entry["vocabulary"], entry["unknown"])
        intact = corpus.fingerprint == entry["fingerprint"] and sum(corpus.lengths) == len(ids)
    except Exception:  # damage has no end of forms, and each means the same
        return None
    return corpus if intact else None


def store(signature: str, latest_change: int, corpus: Corpus) -> None:
    """Keep a corpus, unless its files changed so lately that their signature does not identify them."""
    if time.time_ns() - latest_change < _SETTLED:
        return
    entry = {
        "fingerprint": corpus.fingerprint,
        "lengths": corpus.lengths,
        "vocabulary": corpus.vocabulary,
        "unknown": corpus.unknown,
    }
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: nobody's home
        folder = cache_dir()
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / f"{corpus.fingerprint}.npy", lambda file: np.save(file, corpus.ids))
        _write(folder / f"{signature}.json", lambda file: file.write(json.dumps(entry).encode()))


def _write(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".unfinished-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
