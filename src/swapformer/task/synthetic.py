"""What synthetic tasks share: items drawn at random, kept where their content belongs to the split, padded right."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torchmetrics import MetricCollection

from swapformer.interface import MAIN
from swapformer.random import stream
from swapformer.task.base import IGNORE, Batch, EvaluationSet, Split, Task, whole_number
from swapformer.task.metrics import directions_of, sequence_metrics
from swapformer.task.split import SHARES, ContentSplit

_METRICS = ("loss", "loss_se", "perplexity", "accuracy", "accuracy_se", "exact_match", "exact_match_se")


class Synthetic(Task):
    """A task whose items are prompts with one right answer; loss and metrics are on the answer and its end token.

    Items of `lengths` are drawn for training and for the evaluation set "", every length equally often (up to the
    rounding of the splits' shares); the set "@L" holds items of length L only. Sequences begin at place 0 and are
    padded on the right. Evaluation items are drawn with replacement from their split, without end.
    """

    directions = directions_of(_METRICS)

    remedy = "make the items more varied"
    """What to do where a length has too few different items."""

    def __init__(self, *, lengths: Sequence[int], eval_lengths: Sequence[int], batch_size: int, alphabet: int) -> None:
        """`alphabet`: number of symbols that items consist of; the token id `alphabet` fills their content."""
        self.mixture = torch.tensor(lengths)
        self.eval_lengths = tuple(eval_lengths)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        every_length = sorted({*lengths, *self.eval_lengths})
        self.longest_trained = max(lengths)
        self.train_length = self.tokens_at(self.longest_trained)
        self.max_length = self.tokens_at(every_length[-1])
        self.splits = ContentSplit(alphabet, every_length[-1])
        for length in every_length:
            everything = self.list_items(length)
            if everything is not None:
                self.splits.list_all(length, everything, self.remedy)

    @abstractmethod
    def settings(self) -> dict[str, object]:
        """The settings that the data depend on."""

    @abstractmethod
    def tokens_at(self, length: int) -> int:
        """T of a batch whose longest item has `length`."""

    @abstractmethod
    def list_items(self, length: int) -> Tensor | None:
        """All items of a length [N,P,W]; None where there are more than LISTED."""

    @abstractmethod
    def draw(self, generator: torch.Generator, lengths: Tensor, width: int) -> Tensor:
        """Random items [N,P,W=width] of `lengths` [N], filled with the alphabet's size."""

    @abstractmethod
    def write(self, content: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whole sequences [N,T+1] of items [N,P,W], and where their answers begin and end (exclusive) [N]."""

    def sample(self, generator: torch.Generator, split: Split, mixture: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """`count` random items of a split with their lengths, each length as often as it stands in `mixture`.

        They are drawn in surplus, and those of other splits are thrown away.
        """
        width = int(mixture.max())
        kept: list[tuple[Tensor, Tensor]] = []
        missing = count
        while missing > 0:
            surplus = int(1.3 * missing / SHARES[split]) + 8
            lengths = mixture[torch.randint(len(mixture), (surplus,), generator=generator)]
            content = self.draw(generator, lengths, width)
            mine = self.splits.contains(split, content, lengths).nonzero().squeeze(1)[:missing]
            kept.append((content[mine], lengths[mine]))
            missing -= len(mine)
        contents, counts = zip(*kept, strict=True)
        return torch.cat(contents), torch.cat(counts)

    def train_batch(self, seed: int, step: int) -> Batch:
        return self.collate(*self.sample(stream("train", int(seed), int(step)), "train", self.mixture, self.batch_size))

    def evaluation(self, split: Literal["val", "test"]) -> list[EvaluationSet]:
        mixtures = {"": self.mixture} | {f"@{length}": torch.tensor([length]) for length in self.eval_lengths}
        return [
            EvaluationSet(name, None, partial(self._evaluation_batch, split, name, mixture))
            for name, mixture in mixtures.items()
        ]

    def _evaluation_batch(self, split: Split, name: str, mixture: Tensor, index: int) -> Batch:
        return self.collate(*self.sample(stream(split, name, index), split, mixture, self.batch_size))

    def collate(self, content: Tensor, lengths: Tensor) -> Batch:
        """The batch of items [B,P,W], T = tokens_at(W)."""
        sequences, answer, end = self.write(content, lengths)
        place = torch.arange(1, sequences.shape[1])
        scored = (place >= answer.unsqueeze(1)) & (place < end.unsqueeze(1))
        padding = place >= end.unsqueeze(1)
        return Batch(
            inputs=sequences[:, :-1].masked_fill(padding, self.splits.alphabet),
            targets=sequences[:, 1:].masked_fill(~scored, IGNORE),
            padding=padding if bool(padding.any()) else None,
        )

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        return sequence_metrics(_METRICS)

    def fingerprint(self) -> str:
        """SHA-256 of the settings and of first batches: a change of the generator shows although no setting changed."""
        digest = hashlib.sha256(json.dumps([type(self).__name__, self.settings()], sort_keys=True).encode())
        batches = [self.train_batch(0, 0)]
        batches += [one.batch(0) for split in ("val", "test") for one in self.evaluation(split)]
        for batch in batches:
            digest.update(batch.inputs.numpy().tobytes() + batch.targets.numpy().tobytes())
        return digest.hexdigest()
