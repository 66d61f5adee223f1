"""Tokenisers of pieces of words, learned from the training text by the `tokenizers` library: BPE and WordPiece."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from swapformer.errors import UsageError
from swapformer.ranges import Count
from swapformer.task.tokeniser.base import Ids, LearnedTokens, Tokeniser, TokenSpans
from swapformer.task.tokeniser.plain import character_counts
from swapformer.yaml_reader import parse_foreign_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library


class Subword(Tokeniser):
    """Base of BPE and WordPiece. The library knows no special tokens: no text is ever taken for one.

    `vocab_size`: tokens in all, special ones included.
    """

    def __init__(self, *, vocab_size: Count, special: Sequence[str] = ()) -> None:
        super().__init__(special=special)
        self.vocab_size = vocab_size

    def settings(self) -> dict[str, Any]:
        return {"vocab_size": self.vocab_size, "tokenizers": version("tokenizers")}

    @abstractmethod
    def train(self, texts: Iterable[str], size: int, min_count: int) -> Library:
        """The library's tokeniser with `size` tokens, or fewer where the texts have no more."""

    def require(self, least: int, why: str) -> None:
        """UsageError unless the vocabulary has at least `least` tokens."""
        if self.vocab_size < least:
            raise UsageError(
                f"task.tokeniser.vocab_size must be at least {least} ({why}), but is {self.vocab_size}; take more"
            )

    def trained(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> tuple[Library, list[str]]:
        """The library's tokeniser and its tokens in the order of their ids."""
        library = self.train(texts, self.vocab_size - len(special), min_count)
        found = len(special) + library.get_vocab_size()
        if found < self.vocab_size:
            raise UsageError(
                f"task.tokeniser.vocab_size must be at most {found}, since the training text has no more pieces of "
                f"words, but is {self.vocab_size}; take fewer, or more text"
            )
        vocabulary = library.get_vocab()
        return library, sorted(vocabulary, key=vocabulary.__getitem__)

    @cached_property
    def _library(self) -> Library:
        from tokenizers import Tokenizer as Library  # here, since training on a corpus that is tokenised needs none

        found = Library.from_str(self.learned.model)
        found.no_truncation()  # an imported file may have been saved with either
        found.no_padding()
        return found

    def write(self, texts: Sequence[str]) -> list[Ids]:
        special = self.learned.special
        found = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, dtype=np.int64) + special for one in found]

    def write_with_spans(self, text: str) -> TokenSpans:
        found = self._library.encode(text, add_special_tokens=False)
        spans = np.array(found.offsets, dtype=np.int64).reshape(-1, 2)
        return TokenSpans(np.array(found.ids, dtype=np.int64) + self.learned.special, spans[:, 0], spans[:, 1])

    def read(self, ids: Iterable[SupportsIndex]) -> str:
        special = self.learned.special
        parts: list[str] = []
        own: list[int] = []
        for number in (index.__index__() for index in ids):
            if number >= special:
                own.append(number - special)
                continue
            parts += [self._library.decode(own), self.learned.tokens[number]]
            own = []
        return "".join([*parts, self._library.decode(own)])


class BPE(Subword):
    """Byte-pair encoding on bytes (Sennrich et al. 2016, arXiv:1508.07909; bytes: Radford et al. 2019, GPT-2).

    The commonest pair of neighbouring tokens within a word becomes a token, again and again. It can write every text.
    One that another program has trained may lack bytes, or normalise: it is not lossless.
    UsageError: `vocab_size` below 256 and the special tokens, or above what the training text gives.
    """

    @property
    def lossless(self) -> bool:  # type: ignore[override]  # it depends on what was learned
        return self._learned is None or keeps_bytes(self._learned.model)

    def learn(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> LearnedTokens:
        self.require(256 + len(special), f"256 bytes and {len(special)} special tokens")
        library, pieces = self.trained(texts, special, min_count)
        byte_of = bytes_of_symbols()
        written = [bytes(byte_of[symbol] for symbol in piece) for piece in pieces]
        return LearnedTokens(
            tokens=(*special, *(piece.decode(errors="backslashreplace") for piece in written)),
            sizes=(*[0] * len(special), *map(len, written)),
            special=len(special),
            model=library.to_str(),
        )

    def train(self, texts: Iterable[str], size: int, min_count: int) -> Library:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        library = Tokenizer(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=sorted(bytes_of_symbols()), special_tokens=[], show_progress=False
        )
        library.train_from_iterator(iter(texts), trainer)
        return library


def bytes_of_symbols() -> dict[str, int]:
    """The byte of each symbol of byte-level BPE: itself where it can be printed, others from U+0100 on."""
    printed = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(256 + index): byte for index, byte in enumerate(others)}


def keeps_bytes(text: str) -> bool:
    """Whether each token of a tokenizer.json stands for some bytes of the text as it was: nothing is added or lost."""
    spec = parse_foreign_json(text)
    cut, decoder, model = spec.get("pre_tokenizer") or {}, spec.get("decoder") or {}, spec["model"]
    steps = cut.get("pretokenizers") or [cut]
    whole = all(
        (step.get("type") == "ByteLevel" and step.get("add_prefix_space") is False)
        or (step.get("type") == "Split" and step.get("behavior") != "Removed")
        or step.get("type") == "Digits"
        for step in steps
    )
    ends = steps[-1].get("type") == decoder.get("type") == "ByteLevel"
    pieces = model["vocab"] if isinstance(model["vocab"], dict) else [piece for piece, _ in model["vocab"]]
    marks = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    complete = model.get("type") != "WordLevel" and not marks and bytes_of_symbols().keys() <= set(pieces)
    added = spec.get("added_tokens") or ()
    swallows = any((token.get("lstrip") or token.get("rstrip")) and not token.get("special") for token in added)
    return whole and ends and complete and not swallows and spec.get("normalizer") is None


def require_repeatable(spec: Mapping[str, Any]) -> None:
    """ValueError where a tokenizer.json leaves merges out at random: the same text would be other data each time."""
    if dropout := spec["model"].get("dropout"):
        raise ValueError(
            f"it leaves out merges at random (`dropout` is {dropout}); set it to null, so that a text has one spelling"
        )


_UNKNOWN = "[UNK]"


class WordPiece(Subword):
    """BERT's pieces (Devlin et al. 2018, arXiv:1810.04805): words and punctuation marks, longest pieces first.

    Words are what stands between white space and punctuation; a piece within a word is written `##so`. White space is
    lost, so no loss per byte is measured. `lowercase`: case and accents are lost too. `min_count`: a word with a
    character that occurs less often becomes one [UNK] (null: 1 for texts of your own, 100 for the library).
    UsageError: `vocab_size` below what single characters need, or above what the training text gives.
    """

    lossless = False

    def __init__(
        self, *, vocab_size: Count, lowercase: bool, min_count: Count | None = None, special: Sequence[str] = ()
    ) -> None:
        super().__init__(vocab_size=vocab_size, special=special)
        self.lowercase = lowercase
        self.min_count = min_count

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"lowercase": self.lowercase, "min_count": self.min_count}

    def learn(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> LearnedTokens:
        library, pieces = self.trained(texts, special, min_count)
        sizes = [1 if piece == _UNKNOWN else len(piece.removeprefix("##").encode()) for piece in pieces]
        return LearnedTokens(
            tokens=(*special, *pieces),
            sizes=(*[0] * len(special), *sizes),
            special=len(special),
            unknown=len(special),
            model=library.to_str(),
        )

    def train(self, texts: Iterable[str], size: int, min_count: int) -> Library:
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        library = Tokenizer(models.WordPiece(unk_token=_UNKNOWN))
        library.normalizer = normalizers.BertNormalizer(lowercase=self.lowercase)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        alphabet = self._alphabet(library, texts, self.min_count or min_count)
        # All single characters are given beforehand, and in order: the trainer would number those it finds by chance.
        first = [_UNKNOWN, *alphabet, *(f"##{one}" for one in alphabet if _within_words(library, one))]
        self.require(self.vocab_size - size + len(first), "its special tokens and single characters")
        trainer = trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=first, initial_alphabet=alphabet, limit_alphabet=len(alphabet),
            show_progress=False,
        )  # fmt: skip
        library.train_from_iterator(iter(texts), trainer)
        trained = Tokenizer(models.WordPiece(library.get_vocab(), unk_token=_UNKNOWN))
        trained.normalizer, trained.pre_tokenizer = library.normalizer, library.pre_tokenizer
        trained.decoder = decoders.WordPiece(cleanup=False)
        return trained

    def _alphabet(self, library: Library, texts: Iterable[str], least: int) -> list[str]:
        """The characters of words that occur at least `least` times, in the order of code points."""
        counts: dict[str, int] = {}
        normaliser = library.normalizer
        assert normaliser is not None, "it has just been set"
        raw = character_counts(texts)
        for code in np.flatnonzero(raw):
            for character in normaliser.normalize_str(chr(code)):
                counts[character] = counts.get(character, 0) + int(raw[code])
        return sorted(one for one, count in counts.items() if count >= least and not one.isspace())


def _within_words(library: Library, character: str) -> bool:
    """Whether a word can continue with a character: punctuation, for one, is a separate word."""
    assert library.normalizer is not None and library.pre_tokenizer is not None, "they have just been set"
    return len(library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(f"a{character}"))) == 1
