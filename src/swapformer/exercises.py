"""Exercises: folders `NN_name` with one README and one study, or with a folder for the study of each of their parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from swapformer.errors import UsageError, quote, suggest
from swapformer.paths import experiments_dir

STUDY_FILE = "study.yaml"
_EXERCISE = re.compile(r"\d\d_[\w-]+")
_PART = re.compile(r"[^\W\d_][\w-]*")
_NO_PARTS = ("conf", "report", "results", "runs")
"""Folders of an exercise that hold something else than a part."""


@dataclass(frozen=True)
class Named:
    """The studies that a name means: name → study file. `one`: it names a study, not an exercise that has parts."""

    studies: Mapping[str, Path]
    one: bool


def is_exercise(folder: Path) -> bool:
    """Whether a folder is an exercise's, which its name says: two digits, an underscore, a word."""
    return _EXERCISE.fullmatch(folder.name) is not None


def studies_of(folder: Path) -> dict[str, Path]:
    """The studies of the exercise in `folder`: name → study file, the parts in the order of their names.

    Raises UsageError unless there is either one study for all of it, or one in the folder of every part.
    """
    whole = folder / STUDY_FILE
    parts = [path for path in sorted(folder.iterdir()) if path.is_dir() and _may_be_part(path)]
    with_study = [path for path in parts if (path / STUDY_FILE).is_file()]
    if whole.is_file() and with_study:
        raise UsageError(
            f"an exercise has either one {STUDY_FILE} or parts, but {quote(folder.name)} has {STUDY_FILE} and "
            f"{quote(f'{with_study[0].name}/{STUDY_FILE}')}; make the first a part too"
        )
    if whole.is_file():
        return {folder.name: whole}
    for path in parts:
        if not (path / STUDY_FILE).is_file():
            raise UsageError(
                f"every part of an exercise must have a {STUDY_FILE}, but {quote(f'{folder.name}/{path.name}')} has "
                "none; write one, or remove the folder"
            )
        if not _PART.fullmatch(path.name) or path.name in _NO_PARTS:
            raise UsageError(
                "a part's name must be a letter, then letters, digits, underscores and hyphens, and none of "
                f"{', '.join(_NO_PARTS)}, but {quote(folder.name)} has a part {quote(path.name)}; rename it"
            )
    known: dict[str, str] = {}
    for path in parts:
        if (other := known.setdefault(path.name.casefold(), path.name)) != path.name:
            raise UsageError(
                f"parts must differ in more than the case of letters, but {quote(folder.name)} has {quote(other)} and "
                f"{quote(path.name)}: one folder on some machines; rename one"
            )
    return {f"{folder.name}/{path.name}": path / STUDY_FILE for path in parts}


def _may_be_part(path: Path) -> bool:
    return (path / STUDY_FILE).is_file() or not (path.name.startswith((".", "_")) or path.name in _NO_PARTS)


def exercises(root: Path | None = None) -> dict[str, Path]:
    """The exercises in a folder, or of those that come with swapformer: name → folder."""
    root = experiments_dir() if root is None else root
    return {path.name: path for path in sorted(root.iterdir()) if path.is_dir() and is_exercise(path)}


def shipped() -> dict[str, Path]:
    """The studies that come with swapformer: name → study file."""
    return {name: path for folder in exercises(experiments_dir()).values() for name, path in studies_of(folder).items()}


def study_name(path: Path) -> str:
    """The name of the study in a file: `04_head_count/width` of a part, its folder's or its own name of another."""
    if path.name != STUDY_FILE:
        return path.stem
    folder = path.parent.resolve()
    if is_exercise(folder) or not is_exercise(folder.parent):
        return folder.name
    name = f"{folder.parent.name}/{folder.name}"
    return name if name in studies_of(folder.parent) else folder.name


def find(name: str) -> Named:
    """The studies that `name` means, which is a path or a name.

    A path is that of a study file or its folder, of an exercise, or of a folder that holds exercises. A name is that of
    a shipped study or exercise, or the beginning of it that fits one alone: `04`, `04_head_count/w`. Raises UsageError.
    """
    path = Path(name)
    try:
        if path.suffix in (".yaml", ".yml"):
            if not path.is_file():
                beside = [each.name for each in path.parent.glob("*.yaml")]
                raise UsageError(f"no study file {path}{suggest(path.name, beside)}")
            return Named({study_name(path): path}, one=True)
        if path.is_dir():
            return _in_folder(path)
    except OSError as error:  # a name that no file could have
        raise UsageError(f"a study is named by a file or a name, but {quote(name)} is not: {error.strerror}") from None
    return _by_name(name)


def _in_folder(folder: Path) -> Named:
    if is_exercise(folder.resolve()):
        found = studies_of(folder.resolve())
        if found:
            return Named(found, one=len(found) == 1 and "/" not in next(iter(found)))
    elif (folder / STUDY_FILE).is_file():
        return Named({study_name(folder / STUDY_FILE): folder / STUDY_FILE}, one=True)
    elif below := [study for path in exercises(folder).values() for study in studies_of(path).items()]:
        return Named(dict(below), one=False)
    raise UsageError(f"no study file {folder / STUDY_FILE}, and no folder NN_name of an exercise")


def _by_name(name: str) -> Named:
    known = shipped()
    of_exercises = {exercise: [s for s in known if s.split("/")[0] == exercise] for exercise in exercises()}
    names = {**of_exercises, **{study: [study] for study in known}}
    matches = [name] if name in names else sorted(set(_completions(name, names)))
    if len(matches) > 1:
        raise UsageError(f"the beginning of a study's name must be unique, but {quote(name)} fits {', '.join(matches)}")
    if not matches:
        raise UsageError(f"no study {quote(name)}{suggest(name, names)}; or give the path of a {STUDY_FILE}")
    return Named({study: known[study] for study in names[matches[0]]}, one=matches[0] in known)


def _completions(name: str, names: Mapping[str, object]) -> Iterator[str]:
    """The names of as many words between slashes as `name` has, each of which begins as its word does."""
    words = name.split("/")
    for full in names:
        found = full.split("/")
        if len(found) == len(words) and all(map(str.startswith, found, words)):
            yield full
