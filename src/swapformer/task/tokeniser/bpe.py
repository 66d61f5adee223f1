"""Byte-pair encoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from swapformer.task.tokeniser.base import Learned
from swapformer.task.tokeniser.subword import Subword

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library


class BPE(Subword):
    """Byte-pair encoding on bytes (Sennrich et al. 2016, arXiv:1508.07909; bytes: Radford et al. 2019, GPT-2).

    The commonest pair of neighbouring tokens within a word becomes a token, again and again. Every text can be written.
    UsageError: `vocab_size` below 256 and the special tokens, or above what the training text gives.
    """

    def learn(self, texts: Iterable[str], special: Sequence[str], min_count: int) -> Learned:
        self.require(256 + len(special), f"256 bytes and {len(special)} special tokens")
        library, pieces = self.trained(texts, special, min_count)
        byte_of = _bytes_of_symbols()
        written = [bytes(byte_of[symbol] for symbol in piece) for piece in pieces]
        return Learned(
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
            vocab_size=size, initial_alphabet=sorted(_bytes_of_symbols()), special_tokens=[], show_progress=False
        )
        library.train_from_iterator(iter(texts), trainer)
        return library


def _bytes_of_symbols() -> dict[str, int]:
    """The byte that each symbol of byte-level BPE stands for: itself where it can be printed, others from U+0100 on."""
    printed = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(256 + index): byte for index, byte in enumerate(others)}
