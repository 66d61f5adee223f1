"""Datasets of Hugging Face, by name or in a folder, through the `datasets` library."""

from __future__ import annotations

import os
import re
import socket
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from swapformer.errors import UsageError
from swapformer.task.base import Split
from swapformer.task.source.base import Document, Source, Stamp, TextRow, require_columns, stamp_of_files
from swapformer.task.source.files import text_of
from swapformer.task.source.saved_dataset import saved_files, saved_splits

_PATIENCE = 1.0
"""Seconds to wait for the hub; the library itself would try for twenty."""
_BATCH = 1000


class HuggingFace(Source):
    """`split` of the dataset `name`; each row is a document, its text in `column`.

    `name`: of the hub, or a folder of data files, or one that `save_to_disk` has written, which has neither `config`
    nor `revision`; a saved set without splits is `train`, unless it says which it was. `config`: which of the dataset's
    configurations; null: its only one. `revision`: a commit, tag or branch; null: the newest. `split` is the dataset's
    own word; what is trained and evaluated on is cut from it by task.split, unless `val` (and `test`) name splits of
    the dataset that are evaluated on, as they are. A dataset that was tokenised once is not asked for again; another
    `revision` would be.
    UsageError: no such dataset, configuration, split or column; no network and no copy on this machine, within seconds.
    """

    def __init__(
        self, *, name: str, config: str | None = None, split: str = "train", column: str = "text",
        revision: str | None = None, val: str | None = None, test: str | None = None,
    ) -> None:  # fmt: skip
        self.name, self.config, self.split, self.column, self.revision = name, config, split, column, revision
        self.description = f"the split {split!r} of {name!r}"
        named: dict[Split, str | None] = {"train": split, "val": val, "test": test}
        self._own = {} if val is None else {own: name for own, name in named.items() if name is not None}
        if len({*self._own.values()}) < len(self._own) or (val is None and test is not None):
            raise UsageError(
                "task.source.split, val and test must be different splits, with a val where there is a test, but are "
                f"{split!r}, {val!r} and {test!r}"
            )

    @property
    def own_shares(self) -> tuple[float, float, float] | None:
        return (1.0, 1.0, float("test" in self._own)) if self._own else None

    def documents(self, columns: Sequence[str] = ()) -> Iterator[Document]:
        found = self._load()
        for own, name in self._own.items():
            yield from self._rows(found, name, own, columns)
        if not self._own:
            yield from self._rows(found, self.split, None, columns)

    def _rows(self, found: Any, split: str, own: Split | None, columns: Sequence[str]) -> Iterator[Document]:
        if split not in found:
            raise UsageError(
                f"task.source.{'split' if own in (None, 'train') else own} must be one of {', '.join(map(str, found))} "
                f"for the dataset {self.name!r}, but is {split!r}"
            )
        dataset = found[split].with_format(None)  # plain values, whatever it was saved with
        wanted = list(dict.fromkeys([self.column, *columns]))
        require_columns(f"the dataset {self.name!r}", wanted, dataset.column_names)
        number = 0
        for batch in dataset.select_columns(wanted).iter(_BATCH):
            for values in zip(*(batch[name] for name in wanted), strict=True):
                number += 1
                row = dict(zip(wanted, values, strict=True))
                location = f"row {number} of {self.name!r}" + (f", split {split!r}" if self._own else "")
                text = text_of(location, self.column, row[self.column])
                document = TextRow(location, text, {name: row[name] for name in columns})
                document.split = own
                yield document

    def stamp(self) -> Stamp:
        folder = Path(self.name)
        files = sorted(file for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else []
        facts, changed = stamp_of_files(files)
        own = [[*self._own.items()]] if self._own else []
        return Stamp([self.name, self.config, self.split, self.column, self.revision, facts, *own], changed)

    def _load(self) -> Any:
        """The splits of the dataset as the library gives them: in arrow files, mapped into memory."""
        folder = Path(self.name)
        saved = folder.is_dir() and bool(saved_splits(folder) or saved_files(folder))
        if saved and (self.config is not None or self.revision is not None):
            raise UsageError(
                f"a saved data set has no configurations and revisions, but task.source has config={self.config} and "
                f"revision={self.revision} for {self.name!r}; leave both null"
            )
        offline = not folder.is_dir() and not _reachable()
        if offline and not _has_copy(self.name):
            raise UsageError(
                f"the dataset {self.name!r} must be on this machine or the network, but the hub cannot be reached "
                "and there is no copy here; connect, or give files of your own with task/source=files"
            )
        import datasets  # type: ignore[import-untyped]  # seconds, and only for a corpus that has not been tokenised yet

        with _offline(offline):
            try:
                if saved:
                    found = datasets.load_from_disk(self.name)
                    found = {str(found.split or "train"): found} if isinstance(found, datasets.Dataset) else found
                else:
                    found = datasets.load_dataset(self.name, self.config, revision=self.revision)
            except Exception as error:  # a library of many formats and as many kinds of errors
                said = " ".join(str(error).split())
                raise UsageError(f"the dataset {self.name!r} must be one that can be loaded, but: {said}") from error
        return found


@contextmanager
def _offline(offline: bool) -> Iterator[None]:
    """Tell the libraries not to try the network, for as long as the context lasts."""
    if not offline:
        yield
        return
    from datasets import config
    from huggingface_hub import constants

    before = config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before


def _reachable() -> bool:
    """Whether something answers where the hub should be, or where the way to it begins."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or os.environ.get("HF_DATASETS_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    hub = urlsplit(constants.ENDPOINT)
    proxy = None if urllib.request.proxy_bypass(hub.hostname or "") else urllib.request.getproxies().get(hub.scheme)
    address = hub if proxy is None else urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    port = address.port or (443 if address.scheme == "https" else 80)
    answered = threading.Event()

    def knock() -> None:
        try:
            socket.create_connection((address.hostname, port), timeout=_PATIENCE).close()
        except OSError:
            return
        answered.set()

    # In a thread, since looking up a name obeys no time limit.
    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return answered.is_set()


def _has_copy(name: str) -> bool:
    """Whether the library's cache has a dataset of that name; it writes `owner/SomeName` as `owner___some_name`."""
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"))
    root = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()
    plain = re.sub(r"[\W_]", "", name).lower()
    return root.is_dir() and any(re.sub(r"[\W_]", "", folder.name).lower() == plain for folder in root.iterdir())
