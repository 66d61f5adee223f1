"""Tokenisers of checkpoints: reads a tokenizer.json as a tokeniser of swapformer, and writes one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import decoders
from torch import Tensor

from swapformer.errors import UsageError
from swapformer.interop.rules import Weights
from swapformer.task.tokeniser import BPE, END, LearnedTokens, Tokeniser, TokenizerJson, WordPiece
from swapformer.task.tokeniser.subword import bytes_of_symbols, require_repeatable
from swapformer.yaml_reader import parse_foreign_json

FILE = "tokenizer.json"

_KINDS: dict[str, tuple[type[Tokeniser], dict[str, Any]]] = {
    "BPE": (BPE, {}),
    "WordPiece": (WordPiece, {"min_count": None}),
}
"""The kinds of Hugging Face tokenisers, with our class for each and its settings besides size and special tokens."""

_OURS = {"<|endoftext|>": END, "</s>": END}
"""Our names for special tokens of Hugging Face that have other names there."""

_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
"""A byte that no piece has, as SentencePiece spells it."""

_PER_SYMBOL = ("embedding.weight", "head.weight", "symbol_bias")
"""Weights with a row for each symbol."""


@dataclass(frozen=True)
class Vocabulary:
    """A Hugging Face tokeniser under our numbers of symbols, in which special tokens come first.

    Attributes:
        text: the file that task/tokeniser=trained reads.
        tokens: the spelling of each symbol.
        theirs: the checkpoint's number of each symbol, int64 [V].
    """

    text: str
    tokens: tuple[str, ...]
    theirs: Tensor

    def numbered(self, weights: Weights) -> dict[str, Tensor]:
        """Reorder weights from the checkpoint's numbers of symbols to ours."""
        return {
            name: weight[self.theirs] if name in _PER_SYMBOL and len(weight) == len(self.tokens) else weight
            for name, weight in weights.items()
        }


def read_tokeniser(path: Path, size: int) -> Vocabulary:
    """Read a tokenizer.json for a model of `size` symbols; numbers without a symbol stay unused.

    Raises:
        UsageError: if it is no such file, of a kind that swapformer does not have, or has more symbols than the model.
    """
    try:
        spec = parse_foreign_json(path.read_text(encoding="utf-8"))
        kind, pieces = spec["model"].get("type"), spec["model"]["vocab"]
        added = {token["content"]: token for token in spec.get("added_tokens") or ()}
        require_repeatable(spec)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} must be a tokenizer.json of the library tokenizers, but it is not: {error}"
        ) from error
    plain = [name for name, token in added.items() if not token.get("special")]
    if kind not in _KINDS or plain:
        why = f"adds {plain[0]!r} to its pieces" if kind in _KINDS else f"is {kind}"
        raise UsageError(f"the tokeniser of {path} must be only {' or '.join(_KINDS)}, but it {why}")
    numbers = {**pieces, **{name: token["id"] for name, token in added.items()}}
    if max(numbers.values()) >= size:
        raise UsageError(
            f"{path} must number fewer symbols than the model's {size}, but it has {max(numbers.values())}"
        )
    first = [name for name in added if name != spec["model"].get("unk_token")]
    names = {number: name for name, number in numbers.items()}
    special = sorted(numbers[name] for name in first)
    rest = [number for number in range(size) if number not in set(special)]
    ours = {names[number]: index for index, number in enumerate(rest) if number in names}
    spec["model"]["vocab"] = ours
    plainly: dict[str, Any] = {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    model = json.dumps({**spec, **plainly}, ensure_ascii=False)
    spellings = [names.get(number, f"<unused{number}>") for number in rest]
    words, of_bytes = [_spelling(piece, spec) for piece in spellings], _of_bytes(spec)
    learned = LearnedTokens(
        tokens=(*(_OURS.get(names[number], names[number]) for number in special), *words),
        sizes=(*[0] * len(special), *(_size(*each, kind, of_bytes) for each in zip(spellings, words, strict=True))),
        special=len(special),
        unknown=len(special) + ours[unknown] if (unknown := spec["model"].get("unk_token")) in ours else None,
        model=model,
    )
    owner, settings = _KINDS[kind]
    if kind == "WordPiece":
        settings = {**settings, "lowercase": bool((spec.get("normalizer") or {}).get("lowercase"))}
    held = {
        "tokeniser": owner.qualified_name(),
        "settings": {"vocab_size": size, "special": [], **settings},
        "learned": asdict(learned),
    }
    return Vocabulary(json.dumps(held) + "\n", learned.tokens, torch.tensor([*special, *rest]))


def _of_bytes(spec: Mapping[str, Any]) -> bool:
    """Whether each character of a piece spells one byte."""
    return "ByteLevel" in json.dumps([spec.get("pre_tokenizer"), spec.get("decoder")])


def _size(piece: str, word: str, kind: str, of_bytes: bool) -> int:
    """The number of bytes of text that a piece spells; a ▁ that begins a word counts as its space.

    WordPiece writes ## before what goes on with a word; elsewhere these are two characters of the text.
    """
    if of_bytes and bytes_of_symbols().keys() >= set(piece):
        return len(piece)
    if _BYTE.fullmatch(piece):
        return 1
    return len((word.removeprefix("##") if kind == "WordPiece" else word).encode())


def _spelling(piece: str, spec: Mapping[str, Any]) -> str:
    """The spelling of a piece in a text."""
    if _of_bytes(spec):
        text = decoders.ByteLevel().decode([piece])
        return piece if "\ufffd" in text else text
    return piece.replace("▁", " ")


def their_tokeniser(text: str) -> dict[str, Any] | None:
    """The tokenizer.json for a trial's tokeniser, special tokens first; None for a kind that Hugging Face lacks."""
    held = json.loads(text)
    if held["tokeniser"] == TokenizerJson.qualified_name():
        return dict(json.loads(held["learned"]["model"]))
    if held["tokeniser"] not in {owner.qualified_name() for owner, _ in _KINDS.values()}:
        return None
    learned = held["learned"]
    spec: dict[str, Any] = json.loads(learned["model"])
    count = learned["special"]
    first = {name: number for number, name in enumerate(learned["tokens"][:count])}
    spec["model"]["vocab"] = first | {piece: number + count for piece, number in spec["model"]["vocab"].items()}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    spec["added_tokens"] = [{"id": number, "content": name, **plain} for name, number in first.items()]
    return spec
