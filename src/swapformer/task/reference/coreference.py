"""Pronouns that are bound by a feature."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from swapformer.task.base import whole_number
from swapformer.task.draws import permutations, some_words
from swapformer.task.layout import Written
from swapformer.task.lengths import evaluation_lengths, span
from swapformer.task.synthetic import Synthetic


class Coreference(Synthetic):
    """Names with a feature each, and pronouns for the last one that has it: `n3 f0 n5 f1 w2 p0 n3`.

    An item has n events, each after up to `distractors` words of `words`: a new name of `names` says which of
    `features` it has, or a pronoun of that feature is resolved: after it stands the latest name with the feature. The
    first event of a feature is a name; later ones are equally often either, the item's last is a pronoun.
    `lengths`: [fewest, most] events in training; `eval_lengths`: each adds a set "@n", 2x is twice the most.
    Scored is what follows a pronoun.
    UsageError: a number out of range, or too few names.
    """

    remedy = "raise task.names"

    def __init__(
        self,
        *,
        names: int = 64,
        features: int = 4,
        words: int = 16,
        distractors: int = 2,
        lengths: Sequence[int] = (4, 12),
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 32,
    ) -> None:
        self.features, self.words = whole_number("features", features, 2), whole_number("words", words, 2)
        self.distractors, self.lengths = whole_number("distractors", distractors, 0), span("lengths", lengths, 2)
        tested = evaluation_lengths("eval_lengths", eval_lengths, self.lengths[1], 2)
        # No name is introduced twice, and two are left at the end.
        self.names = whole_number("names", names, max(*self.lengths, *tested) + 1)
        sizes = (("n", names), ("f", features), ("p", features), ("w", words))
        self.tokens = (*(f"{kind}{index}" for kind, size in sizes for index in range(size)), "<pad>")
        self.vocab_size = len(self.tokens)
        super().__init__(lengths=self.lengths, eval_lengths=tested, batch_size=batch_size, alphabet=self.vocab_size - 1)

    def width_at(self, length: int) -> int:
        return (self.distractors + 2) * length

    def tokens_at(self, length: int) -> int:
        return self.width_at(length) - 1

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        rows, events, n = len(lengths), longest, lengths.unsqueeze(1)
        place, filler = torch.arange(events), self.vocab_size - 1
        name = permutations(generator, rows, self.names, events)
        feature = torch.randint(self.features, (rows, events), generator=generator)
        earlier = (torch.rand(rows, 1, generator=generator) * (n - 1)).long()
        feature = feature.scatter(1, n - 1, feature.gather(1, earlier))
        refers = (torch.rand(rows, events, generator=generator) < 0.5) | (place == n - 1)
        of_feature = one_hot(feature, self.features).bool()
        here = feature.unsqueeze(2)
        refers &= of_feature.cumsum(1).gather(2, here).squeeze(2) > 1
        named = torch.where(of_feature & ~refers.unsqueeze(2), place.unsqueeze(1), -1).cummax(1).values
        referent = name.gather(1, named.gather(2, here).squeeze(2))
        first = torch.where(refers, self.names + self.features + feature, name)
        second = torch.where(refers, referent, self.names + feature)
        words = some_words(generator, (rows, events), self.words, self.distractors, filler)
        words = torch.where(words == filler, filler, words + self.names + 2 * self.features)
        tokens = torch.cat([words, first.unsqueeze(2), second.unsqueeze(2)], dim=2)
        return tokens.masked_fill((place >= n).unsqueeze(2), filler).view(rows, 1, -1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> Written:
        tokens = content.squeeze(1)
        pronoun = (tokens >= self.names + self.features) & (tokens < self.names + 2 * self.features)
        return Written(tokens, pronoun.roll(1, 1))
