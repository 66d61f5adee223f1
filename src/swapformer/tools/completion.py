"""`swapformer completion`: a script that lets a shell complete verbs, options, groups, their options, and keys."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from swapformer.catalogue import catalogue, spelled, train_keys
from swapformer.paths import conf_dir

SOURCES = {
    "NAME": "echo \"$_swapformer_studies\"",
    "STUDY": 'ls "$runs/studies" 2>/dev/null',
    "TRIAL": 'ls "$runs/trials" 2>/dev/null',
    "OVERRIDE": 'echo "$_swapformer_keys"',
    "PART": 'echo "$_swapformer_keys"',
    "GROUP": 'echo "$_swapformer_groups"',
    "runs_dir": "echo runs_dir=",
}  # fmt: skip
"""What an argument's metavar (or its name in capitals) stands for → the shell command that lists it."""


UNKNOWN = "@"
"""Stands for a number, a file, a text: nothing of ours is offered, and the shell offers files."""


@dataclass(frozen=True)
class Line:
    """What may stand on one command line: options, words behind it, and words behind the options that take a value.

    `words` hold what is offered as it is, and the keys of `SOURCES` behind an @.
    """

    flags: tuple[str, ...]
    words: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def main(arguments: Sequence[str]) -> int:
    """Print the script; returns the exit status."""
    options = parser().parse_args(arguments)
    print(script(options.shell), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="swapformer completion",
        description="A script for your shell. bash: swapformer completion bash > "
        "~/.local/share/bash-completion/completions/swapformer. zsh: source it from ~/.zshrc, behind compinit.",
    )
    made.add_argument("shell", choices=("bash", "zsh"))
    made.add_argument("--debug", action="store_true", help="show tracebacks")
    return made


def script(shell: str) -> str:
    """All words stand in it, so that completing starts no Python; studies and trials of a store are looked up."""
    found = catalogue()
    groups = {spelled(group): list(options) for group, options in found.items() if group != "studies"} | _plugins()
    lines = command_lines()
    values = {f"{name} {flag}": words for name, line in lines.items() for flag, words in line.values.items()}
    parts = ["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else []
    parts += [
        "# Made by `swapformer completion`; make it again after an update.",
        *_cases("_swapformer_flags", {name: line.flags for name, line in lines.items()}),
        *_cases("_swapformer_words", {name: line.words for name, line in lines.items()}),
        *_cases("_swapformer_values", values),
        *_cases("_swapformer_options", groups),
        *_source_cases(),
        f"_swapformer_keys='{' '.join(f'{key}=' for key in [*groups, *train_keys()])}'",
        f"_swapformer_groups='{' '.join(found)}'",
        f"_swapformer_studies='{' '.join(found['studies'])}'",
        _FUNCTION,
    ]
    return "\n".join(parts)


def command_lines() -> dict[str, Line]:
    """The words that begin a command, such as `trials prune` → what may follow them; of none, the verbs."""
    from swapformer.cli import TOOLS, verb_parsers
    from swapformer.train import FLAGS

    verbs = verb_parsers()
    found = {"": Line(("--help", "--version"), tuple(verbs))}
    for verb, own in verbs.items():
        tool = import_module(TOOLS[verb][0]) if verb in TOOLS else None
        several = getattr(tool, "parsers", None)
        one = getattr(tool, "parser", None) or getattr(tool, "_parser", None)
        below = several() if several else {"": one() if one else own}
        for first, made in below.items():
            found |= _lines(f"{verb} {first}".strip(), made)
        found[verb] = Line(found[verb].flags, (*filter(None, below), *found[verb].words), found[verb].values)
    found["train"] = Line(tuple(flag for flag in FLAGS if flag.startswith("--")), ("@OVERRIDE",))
    return found


def _lines(name: str, made: argparse.ArgumentParser) -> Iterator[tuple[str, Line]]:
    """The command line of a parser, and those of the parsers below it."""
    flags: list[str] = []
    words: list[str] = []
    values: dict[str, tuple[str, ...]] = {}
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            words += list(action.choices)
            for word, below in action.choices.items():
                yield from _lines(f"{name} {word}", below)
        elif not action.option_strings:
            words += _meant(action)
        else:
            flags += [flag for flag in action.option_strings if flag.startswith("--")]
            values |= {flag: _meant(action) or (UNKNOWN,) for flag in action.option_strings if action.nargs != 0}
    yield name, Line(tuple(flags), tuple(dict.fromkeys(words)), values)


def _meant(action: argparse.Action) -> tuple[str, ...]:
    """What may stand for an argument: its choices, the words that its type takes, or what its name stands for."""
    if words := action.choices or getattr(action.type, "words", ()):
        return tuple(map(str, words))
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return tuple(f"@{word}" for word in re.findall(r"\w+", name) if word in SOURCES)


def _plugins() -> dict[str, list[str]]:
    """The groups of ours that configure Hydra itself."""
    found: dict[str, list[str]] = {}
    for path in sorted((conf_dir() / "hydra").rglob("*.yaml")):
        found.setdefault(path.parent.relative_to(conf_dir()).as_posix(), []).append(path.stem)
    return found


def _cases(name: str, words: Mapping[str, Sequence[str]]) -> list[str]:
    """A shell function that prints the words of its first argument."""
    cases = [f"    '{key}') echo '{' '.join(found)}' ;;" for key, found in words.items() if found]
    return [f"{name}() {{", '  case "$1" in', *cases, "  esac", "}"]


def _source_cases() -> list[str]:
    """A shell function that lists what a key of `SOURCES` stands for, or the word itself."""
    cases = [f"    @{key}) {command} ;;" for key, command in SOURCES.items()] + [f"    {UNKNOWN}) ;;"]
    return ["_swapformer_source() {", '  case "$1" in', *cases, '    *) echo "$1" ;;', "  esac", "}"]


_FUNCTION = r"""
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
