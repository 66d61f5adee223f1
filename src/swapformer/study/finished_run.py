"""Recognises a study with nothing left to run by what it left, without composing it: no torch, no Hydra.

What a run of a study comes to follows from the study and its overrides, the program, the data and the trials in the
store. A run that ended with all results keeps a digest of them; while it is the same, running the study again would
compose the same trials and find them done. Studies of which something else could decide have none: parts, options or
resolvers of the user's own, data from the network, measurements, mirrored trials.
"""

from __future__ import annotations

import glob
import os
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swapformer.catalogue import default_runs_dir
from swapformer.errors import UsageError
from swapformer.results import record as records
from swapformer.results.files import CorruptFile
from swapformer.results.kept_answers import FinishedRun, read_finished_run, study_stamps, write_finished_run
from swapformer.results.stamps import Stamps, program
from swapformer.results.store import Store
from swapformer.study.config import overrides as texts
from swapformer.study.spec import Spec
from swapformer.targets import VARIABLE, targets

if TYPE_CHECKING:
    from swapformer.study.run_study import StudyResult

_OURS = ("swapformer.", "torch.")
_LIBRARY = ("Library", "Snippets", "Functions")
"""The sources that read the Python standard library."""
_ELSEWHERE = ("HuggingFace",)
"""The sources whose data may change without a file here."""


def store_of(spec: Spec, overrides: Sequence[str]) -> Store | None:
    """The store of a study's trials, as far as it is known without composing; None where the study file names it."""
    if texts.value(spec.overrides, "runs_dir") is not None:
        return None
    with suppress(UsageError, ValueError):  # what is wrong with it is told when it is composed
        return Store(texts.value(overrides, "runs_dir") or default_runs_dir())
    return None


def find_finished_run(spec: Spec, overrides: Sequence[str], store: Store) -> FinishedRun | None:
    """The run that left nothing to do for this study, if that is still so."""
    folder = store.studies / spec.name
    run = read_finished_run(folder)
    if run is None or not _is_ours(spec, overrides) or _asked(spec, overrides, run.data).digest != run.asked:
        return None
    with suppress(UsageError, CorruptFile, OSError):
        return run if study_stamps(folder, store.runs_dir).digest == run.made_of else None
    return None


def keep_finished_run(spec: Spec, overrides: Sequence[str], store: Store, found: StudyResult) -> None:
    """Keep that a study has all its results, where nothing but what can be looked at decides about it."""
    folder = store.studies / spec.name
    configs = [template.config for template in found.plan.templates]
    read = [_data(config) for config in configs]
    if not set(found.statuses.values()) <= set(records.FINAL) or not _is_ours(spec, overrides) or None in read:
        return
    data = tuple(sorted({path for paths in read for path in paths or ()}))
    with suppress(UsageError, CorruptFile, OSError):
        asked, left = _asked(spec, overrides, data), study_stamps(folder, store.runs_dir)
        if asked.trusted and left.trusted:
            counts = Counter(found.statuses.values())
            write_finished_run(folder, FinishedRun(asked.digest, data, left.digest, dict(counts)))


def _asked(spec: Spec, overrides: Sequence[str], data: Sequence[str]) -> Stamps:
    """The study, what was said on the command line, the program, and the data."""
    found = program().add(repr(spec), list(overrides), os.getcwd())
    for path in data:
        found.tree(Path(path))
    return found


def _is_ours(spec: Spec, overrides: Sequence[str]) -> bool:
    """Whether neither the environment nor an override brings code, options or mirrors of the user's own."""
    said = [*spec.overrides, *overrides, *(each for own in spec.arms.values() for each in own)]
    keys = {texts.key(override).partition(".")[0].partition("/")[0] for override in said}
    return (
        not os.environ.get(VARIABLE) and not os.environ.get("SWAPFORMER_RESOLVERS") and not keys & {"hydra", "logger"}
    )


def _data(config: Mapping[str, Any]) -> set[str] | None:
    """The files and folders that a trial's data and first weights come from; None where others could decide."""
    strange = any(not target.startswith(_OURS) for target in targets(config))
    if strange or config.get("measure") or config.get("logger"):
        return None
    found = {str(config["init_from"]["path"])} if config.get("init_from") else set[str]()
    for key, value in _leaves(config["task"]):
        name = value.rpartition(".")[2]
        if key == "_target_" and name in _ELSEWHERE:
            return None
        if key == "_target_" and name in _LIBRARY:
            found.add(sysconfig.get_path("stdlib"))
        elif key != "_target_":
            path = os.path.expanduser(value)
            if glob.has_magic(path):
                return None
            found |= {os.path.abspath(path)} if os.path.lexists(path) else set()
    return found


def _leaves(node: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a configuration, with its key."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from _leaves(value, str(name))
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _leaves(value, key)
    elif isinstance(node, str):
        yield key, node
