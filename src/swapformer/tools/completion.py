"""Writes the shell script of `swapformer completion`: it completes verbs, options, groups, their options, and keys.

The script is ours, since what others offer was measured to be worse. Hydra's own completion starts Python and torch at
every press of the key, which takes seconds. The library shtab writes verbs, options and choices; but it offers no verbs
below `trials` and `check`, which take other words too, and nothing behind an equals sign, at which bash cuts words. For
overrides, studies and trials it would still need functions of ours, in bash and in zsh.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from swapformer.catalogue import EXPERIMENTS, catalogue, spelled, train_keys
from swapformer.paths import conf_dir
from swapformer.results.manifest import manifest_path

_MANIFESTS = " ".join(str(manifest_path(Path(each))) for each in ("*", "*/*"))
SOURCES = {
    "NAME": 'echo "$_swapformer_studies"',
    "STUDY": f"(cd \"$runs/studies\" 2>/dev/null && ls {_MANIFESTS} 2>/dev/null) | sed 's:/[^/]*$::'",
    "TRIAL": 'ls "$runs/trials" 2>/dev/null',
    "OVERRIDE": 'echo "$_swapformer_keys"',
    "PART": 'echo "$_swapformer_keys"',
    "GROUP": 'echo "$_swapformer_groups"',
    "runs_dir": "echo runs_dir=",
}
"""The metavar of an argument, or its name in capitals → the shell command that lists its values.

Among the words of a command line, a key of this table stands behind an @."""

UNKNOWN = "@"
"""A number, a path or a text: the script offers nothing, so that the shell offers files."""


def script(shell: str, parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """The script for bash or zsh. Only studies and trials of a store are looked up when it runs.

    `parsers`: every command line by its words, such as `trials prune`.
    """
    verbs = dict.fromkeys(name.partition(" ")[0] for name in parsers)
    flags: dict[str, Iterable[str]] = {"": ("--help", "--version")}
    words: dict[str, Iterable[str]] = {"": verbs}
    values: dict[str, Iterable[str]] = {}
    for name, parser in parsers.items():
        own = [action for action in parser._actions if action.option_strings]
        flags[name] = [flag for action in own for flag in action.option_strings if flag.startswith("--")]
        values |= {
            f"{name} {flag}": _values(action) or [UNKNOWN]
            for action in own
            for flag in action.option_strings
            if action.nargs != 0
        }
        below = [other.partition(" ")[2] for other in parsers if other.startswith(f"{name} ")]
        arguments = [word for action in parser._actions if action not in own for word in _values(action)]
        words[name] = dict.fromkeys([*below, *arguments])
    found = catalogue()
    options: dict[str, Iterable[str]] = {spelled(group): each for group, each in found.items() if group != EXPERIMENTS}
    for path in sorted((conf_dir() / "hydra").rglob("*.yaml")):
        group = path.parent.relative_to(conf_dir()).as_posix()
        options[group] = [*options.get(group, ()), path.stem]
    sources = [f"    @{key}) {command} ;;" for key, command in SOURCES.items()] + [f"    {UNKNOWN}) ;;"]
    lines = ["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else []
    lines += [
        "# Made by `swapformer completion`; make it again after an update.",
        *_function("_swapformer_flags", flags),
        *_function("_swapformer_words", words),
        *_function("_swapformer_values", values),
        *_function("_swapformer_options", options),
        *["_swapformer_source() {", '  case "$1" in', *sources, '    *) echo "$1" ;;', "  esac", "}"],
        f"_swapformer_keys='{' '.join(f'{key}=' for key in [*options, *train_keys()])}'",
        f"_swapformer_groups='{' '.join(found)}'",
        f"_swapformer_studies='{' '.join(found[EXPERIMENTS])}'",
        _COMPLETE,
    ]
    return "\n".join(lines)


def _values(action: argparse.Action) -> list[str]:
    """The values of an argument: its choices, the words of its type, or the source that its name stands for."""
    if words := action.choices or getattr(action.type, "words", ()):
        return list(map(str, words))
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return [f"@{word}" for word in re.findall(r"\w+", name) if word in SOURCES]


def _function(name: str, words: Mapping[str, Iterable[str]]) -> list[str]:
    """A shell function that prints the words of its first argument."""
    cases = [f"    '{key}') echo '{' '.join(found)}' ;;" for key, found in words.items() if found]
    return [f"{name}() {{", '  case "$1" in', *cases, "  esac", "}"]


_COMPLETE = r"""
_swapformer() {
  local line="${COMP_LINE:0:COMP_POINT}" runs=runs words=() word name='' inside=1 cur='' before='' choices='' key
  read -r -a words <<< "$line"
  case "$line" in *[[:space:]]) ;; *) cur="${words[${#words[@]}-1]}"; unset "words[${#words[@]}-1]" ;; esac
  for word in "${words[@]:1}"; do
    case "$word" in runs_dir=*) runs="${word#runs_dir=}" ;; esac
    before="$word"
    case "$word" in -*) continue ;; esac
    key="${name:+$name }$word"
    if [ -n "$inside" ] && [ -n "$(_swapformer_flags "$key")" ]; then name="$key"; else inside=''; fi
  done
  key="${cur%%=*}"
  case "$cur" in
    -*) choices="$(_swapformer_flags "$name")" ;;
    *=*) for word in $(_swapformer_options "$key"); do choices="$choices $key=$word"; done ;;
    *)
      words=($(_swapformer_values "$name $before"))
      if [ ${#words[@]} = 0 ]; then words=($(_swapformer_words "$name")); fi
      for word in "${words[@]}"; do choices="$choices $(_swapformer_source "$word")"; done ;;
  esac
  COMPREPLY=($(compgen -W "$choices" -- "$cur"))
  if [[ "$cur" == *=* && "$COMP_WORDBREAKS" == *=* ]]; then  # bash has cut the word there
    COMPREPLY=("${COMPREPLY[@]#*=}")
  fi
  if [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o default -F _swapformer swapformer
"""
