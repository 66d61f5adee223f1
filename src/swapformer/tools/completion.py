"""`swapformer completion`: a script that lets a shell complete verbs, options, groups, their options, and keys."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from swapformer.catalogue import catalogue, train_keys
from swapformer.study.record import STATUSES

OVERRIDDEN = ("train", "study", "cost", "bench")
"""Verbs that take overrides."""
OF_STUDIES = ("report", "status", "dashboard")
"""Verbs that take studies that were run here (`cost` does too, beside overrides); `study` takes a shipped one."""
OF_TRIALS = ("trials", "sample", "export")
"""Verbs that take trials of the store."""


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
    groups = {group: list(options) for group, options in found.items() if group != "studies"}
    flags = {verb: sorted(_flags(verb)) for verb in sorted(_verbs())}
    lines = ["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else []
    lines += [
        "# Made by `swapformer completion`; make it again after an update.",
        *_cases("_swapformer_flags", {verb: words for verb, words in flags.items() if words}),
        *_cases("_swapformer_options", {**groups, "--status": list(STATUSES)}),
        f"_swapformer_verbs='{' '.join(flags)}'",
        f"_swapformer_keys='{' '.join([*(f'{group}=' for group in groups), *(f'{key}=' for key in train_keys())])}'",
        f"_swapformer_studies='{' '.join(found['studies'])}'",
        _FUNCTION.replace("OVERRIDDEN", "|".join(OVERRIDDEN))
        .replace("OF_STUDIES", "|".join(OF_STUDIES))
        .replace("OF_TRIALS", "|".join(OF_TRIALS)),
    ]
    return "\n".join(lines)


def _verbs() -> Mapping[str, Any]:
    """Verb → its parser, or None for one that has its command line elsewhere."""
    from swapformer.cli import verb_parsers

    return verb_parsers()


def _flags(verb: str) -> Iterator[str]:
    """The options of a verb, those of its own verbs too."""
    from swapformer.cli import TOOLS
    from swapformer.train import FLAGS

    if verb == "train":
        yield from (flag for flag in FLAGS if flag.startswith("--"))
        return
    module = import_module(TOOLS[verb][0]) if verb in TOOLS else None
    several = getattr(module, "parsers", None)
    one = getattr(module, "parser", None) or getattr(module, "_parser", None)
    found = list(several().values()) if several else [one()] if one else [_verbs()[verb]] if module is None else []
    for made in found:
        yield from _of(made)


def _of(made: argparse.ArgumentParser) -> set[str]:
    """The long options of a parser and of those below it."""
    words = {word for action in made._actions for word in action.option_strings if word.startswith("--")}
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                words |= _of(below)
    return words


def _cases(name: str, words: Mapping[str, Sequence[str]]) -> list[str]:
    """A shell function that prints the words of its first argument."""
    cases = [f"    {key}) echo '{' '.join(found)}' ;;" for key, found in words.items()]
    return [f"{name}() {{", '  case "$1" in', *cases, "  esac", "}"]


_FUNCTION = r"""
_swapformer() {
  local line="${COMP_LINE:0:COMP_POINT}" runs=runs words=() word verb cur='' before=''
  read -r -a words <<< "$line"
  case "$line" in *[[:space:]]) ;; *) cur="${words[${#words[@]}-1]}"; unset "words[${#words[@]}-1]" ;; esac
  for word in "${words[@]:1}"; do
    case "$word" in runs_dir=*) runs="${word#runs_dir=}" ;; esac
    if [ -z "$verb" ]; then verb="$word"; fi
    before="$word"
  done
  local choices=''
  if [ -z "$verb" ]; then
    choices="$_swapformer_verbs --help --version"
  elif [ "$before" = --status ]; then
    choices="$(_swapformer_options --status)"
  else
    case "$cur" in
      -*) choices="$(_swapformer_flags "$verb") --help" ;;
      *=*) for word in $(_swapformer_options "${cur%%=*}"); do choices="$choices ${cur%%=*}=$word"; done ;;
      *)
        case "$verb" in OVERRIDDEN) choices="$_swapformer_keys" ;; esac
        case "$verb" in
          study) choices="$choices $_swapformer_studies" ;;
          cost) choices="$choices $(ls "$runs/studies" 2>/dev/null) runs_dir=" ;;
          OF_STUDIES) choices="$(ls "$runs/studies" 2>/dev/null) runs_dir=" ;;
          OF_TRIALS) choices="$(ls "$runs/trials" 2>/dev/null) runs_dir=" ;;
          list) choices="$(echo "$_swapformer_keys" | tr ' ' '\n' | sed -n 's/=$//p')" ;;
        esac
        case "$verb" in trials) choices="compare prune $choices" ;; esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$choices" -- "$cur"))
  if [[ "$cur" == *=* && "$COMP_WORDBREAKS" == *=* ]]; then  # bash has cut the word there
    COMPREPLY=("${COMPREPLY[@]#*=}")
  fi
  if [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _swapformer swapformer
"""
