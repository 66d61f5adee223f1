"""BERT's pieces of words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from swapformer.task.base import presence, whole_number
from swapformer.task.tokeniser.base import Learned
from swapformer.task.tokeniser.plain import character_counts
from swapformer.task.tokeniser.subword import Subword

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

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
        self, *, vocab_size: int, lowercase: bool, min_count: int | None = None, special: Sequence[str] = ()
    ) -> None:
        super().__init__(vocab_size=vocab_size, special=special)
        self.lowercase = presence("tokeniser.lowercase", lowercase)
        self.min_count = None if min_count is None else whole_number("tokeniser.min_count", min_count, 1)

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"lowercase": self.lowercase, "min_count": self.min_count}

    def learn(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> Learned:
        library, pieces = self.trained(texts, special, min_count)
        sizes = [1 if piece == _UNKNOWN else len(piece.removeprefix("##").encode()) for piece in pieces]
        return Learned(
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
    """Whether a word can go on with a character: punctuation, for one, is a word of its own."""
    assert library.normalizer is not None and library.pre_tokenizer is not None, "they have just been set"
    return len(library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(f"a{character}"))) == 1
