"""Errors of Hydra and OmegaConf as one line, with the name that was probably meant."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from swapformer.catalogue import option_files
from swapformer.errors import UsageError, quote, suggest
from swapformer.paths import conf_dir
from swapformer.study.config.lightning_options import GONE, instead_of
from swapformer.study.config.overrides import require_single_keys
from swapformer.study.config.resolvers import require_references
from swapformer.yaml_reader import read_yaml, reason

PLUGINS = {
    ("hydra/sweeper", "optuna"): "hydra-optuna-sweeper",
    ("hydra/sweeper", "ax"): "hydra-ax-sweeper",
    ("hydra/sweeper", "nevergrad"): "hydra-nevergrad-sweeper",
}
"""Group and option of Hydra's own plugins → the package that brings it."""


@contextmanager
def explained(overrides: Sequence[str] = (), prefix: str = "") -> Iterator[None]:
    """Turn errors of Hydra and OmegaConf about `overrides` into a UsageError, and put `prefix` before the message."""
    try:
        _refuse_dotted_groups(overrides)
        _refuse_values_of_groups(overrides)
        require_references(overrides)
        require_single_keys(overrides)
        yield
    except UsageError as error:
        raise UsageError(f"{prefix}{error}") from error
    except Exception as error:
        message = explain(error, overrides)
        if message is None:
            raise
        raise UsageError(f"{prefix}{message}") from error


def explain(error: BaseException, overrides: Sequence[str] = ()) -> str | None:
    """One line for an error that Hydra or OmegaConf raised while composing `overrides`; None for any other error."""
    from hydra.errors import HydraException, MissingConfigException, OverrideParseException
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    wrong: BaseException | None = error  # Hydra's `instantiate` wraps a UsageError into an error of its own
    while wrong is not None and not isinstance(wrong, UsageError):
        wrong = wrong.__cause__
    if wrong is not None:
        return str(wrong)
    if isinstance(error, MissingConfigException):
        group, _, option = (error.missing_cfg_file or "").rpartition("/")
        if error.options is None or not group:
            return " ".join(str(error).split())
        if f"{group}/{option}" in GONE:
            return f"{group}={option} is gone: {GONE[f'{group}/{option}']}"
        package = PLUGINS.get((group, option))
        install = f"; it comes with a package of its own: pip install {package}" if package else ""
        return f"unknown option {option!r} for {group}{install or suggest(option, error.options)}"
    if isinstance(error, yaml.YAMLError):
        return _unreadable(error)
    if isinstance(error, OverrideParseException):
        return f"cannot read the override {quote(error.override)}: it must be key=value, in Hydra's grammar"
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"a name in the overrides must be one that a file can have, but it is too long: {quote(error.filename)}"
    if isinstance(error, RecursionError):
        return "the overrides must be read to their last bracket, but are nested too deeply; nest less"
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return str(error).partition("\n")[0] if isinstance(error, Exception) and _raised_by_hydra(error) else None
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    key = getattr(cause, "full_key", None)
    if key and isinstance(cause, MissingMandatoryValue):
        return f"{key} must be given, since it has no default: {key}=…"
    if key and "is not in struct" in str(cause):
        return _unknown_key(str(key), getattr(cause, "parent_node", None))
    text = " ".join(str(error).partition("\nSee https://")[0].split())
    if found := re.match(r"Interpolation key '([^']*)' not found", text):
        why = "; Hydra's own settings are no part of a trial" if found[1].startswith("hydra.") else ""
        return f"{key or 'a setting'} must refer to a key of the configuration, but there is no {quote(found[1])}{why}"
    if found := re.match(r"Error in call to target '([\w.]+)'.*unexpected keyword argument '(\w+)'", text):
        return f"{found[1].rpartition('.')[2]} has no setting {found[2]!r}"
    if found := re.match(r"Error merging override ([\w.]+)=(.*) \(Cannot merge (\w+) with (\w+)", f"{text} ({cause})"):
        given, wanted = (
            {"DictConfig": "a mapping", "ListConfig": "a list"}.get(kind, kind) for kind in found.group(3, 4)
        )
        return f"{found[1]} must be {wanted}, but {quote(found[2])} is {given}"
    if found := re.match(r"Could not (?:override|delete)[^']*'([^']+)'\. No match in the defaults list", text):
        return _unchosen(found[1])
    if found := re.match(r"Could not delete from config\. '([^']+)' does not exist", text):
        return f"cannot delete {found[1]!r}: there is no such key"
    if found := re.match(r"Error merging 'hydra/launcher/(\w+)' with schema", text):
        return (
            f"hydra/launcher={found[1]} is swapformer's own, but a Hydra plugin with a launcher of the same name is "
            f"installed beside it; uninstall that one (hydra-{found[1]}-launcher), which swapformer does without"
        )
    return f"{text} ({' '.join(str(cause).split())})" if cause is not None and cause is not error else text


def _refuse_values_of_groups(overrides: Sequence[str]) -> None:
    """`optim=null` or `model/norm=../x` is no option's name, about which Hydra would raise an error of its own."""
    known = option_files(conf_dir())
    for override in overrides:
        key, equals, value = override.partition("=")
        group = key.lstrip("+").partition("@")[0]
        if equals and not key.strip("+~"):
            raise UsageError(f"an override must be key=value, but {quote(override)} has no key")
        if group.replace(".", "/") in ("hydra", "hydra/launcher", "hydra/sweeper") and equals:
            if "." not in group and "/" in group and _names_option(value):
                continue
            raise UsageError(
                f"{group} holds settings by name: write {group}.NAME=VALUE, or hydra/launcher=OPTION, instead of "
                f"{quote(override)}"
            )
        if group not in known and equals and any(other.startswith(f"{group}/") for other in known):
            raise UsageError(
                f"{group} holds groups and settings: write {group}/GROUP=NAME or {group}.KEY=VALUE instead of "
                f"{quote(override)}"
            )
        if group in known and equals and not _names_option(value):
            raise UsageError(
                f"{group} is a group of options: write {group}=NAME instead of {quote(override)}"
                f"{suggest('', known[group])}"
            )


def _names_option(value: str) -> bool:
    """Whether the text after the equals sign could be the name of an option, or a choice or list of them."""
    words = [word.strip(" \"'") for word in re.split(r"[,\[\]()]", value)]
    numbers = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?|null|true|false|nan|inf", re.IGNORECASE)
    return not value.startswith("{") and not any(
        word.startswith(("/", ".")) or "/." in word or numbers.fullmatch(word) for word in words
    )


def _raised_by_hydra(error: BaseException) -> bool:
    """Whether an error that is none of Hydra's own kinds is its complaint all the same, as that of `--resolve`."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = str(traceback.tb_frame.f_globals.get("__name__")) if traceback is not None else ""
    return isinstance(error, ValueError) and module.partition(".")[0] in ("hydra", "omegaconf")


def _unreadable(error: yaml.YAMLError) -> str:
    """The mistake in a YAML file that Hydra has read."""
    mark = getattr(error, "problem_mark", None)
    path = Path(mark.name if mark is not None else "")
    if path.is_file():
        try:
            read_yaml(path)  # which names both lines of a doubled key
        except UsageError as better:
            return str(better)
    return f"{path.name and f'{path} cannot be read: '}{reason(error)}"


def _unchosen(group: str) -> str:
    if group in GONE:
        return f"{group} is gone: {GONE[group]}"
    known = option_files(conf_dir())
    parent = group.rpartition("/")[0]
    if group in known and not parent:
        return f"{group} must be added, since nothing chooses from it by default: write +{group}=…"
    if group in known:
        return f"nothing here reads {group}: another {parent} has been chosen; remove it, or choose one that has it"
    return f"unknown group {group!r}{suggest(group, known)}"


def _unknown_key(key: str, siblings: object) -> str:
    if key in GONE:
        return f"{key} is gone: {GONE[key]}"
    if "/" in key:
        return f"unknown group {key!r}{suggest(key, option_files(conf_dir()))}"
    parent, _, name = key.rpartition(".")
    known = [str(sibling) for sibling in siblings] if isinstance(siblings, Iterable) else []
    where = f" in {parent}" if parent else ""
    if (said := instead_of(parent, name)) is not None:
        return f"{key} is not an option here: {said}"
    return f"unknown key {name!r}{where}{suggest(name, known)}"


def _refuse_dotted_groups(overrides: Sequence[str]) -> None:
    """`model.position=alibi` would silently put a text where a part belongs."""
    known = option_files(conf_dir())
    for override in overrides:
        key, _, value = override.partition("=")
        if (group := key.lstrip("+~").replace(".", "/")) in known and "." in key and not value.startswith("{"):
            name = value if _names_option(value) else "NAME"
            raise UsageError(f"{group} is a group of options: write {group}={name} instead of {quote(override)}")
