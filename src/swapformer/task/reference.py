"""Tasks of reference: pronouns of names (coreference), and the words of speakers (dialogue)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from swapformer.ranges import Count, Natural, Several
from swapformer.task.layout import ItemLayout, append_filler, permutations, some_words
from swapformer.task.settings import at_least
from swapformer.task.synthetic import Synthetic


class Coreference(Synthetic):
    """Resolve pronouns: each stands for the last name that has its feature: `n3 f0 n5 f1 w2 p0 n3`.

    An item has n events, each after up to `distractors` words of `words`: a new name of `names` says which of
    `features` it has, or a pronoun of that feature is resolved: after it stands the latest name with the feature. The
    first event of a feature is a name; later ones are equally often either, the item's last is a pronoun.
    `fixed`: each name has one feature for good, n<i> that of the number i mod `features`, and no word says it, as with
    names of men and women: `n3 n4 w2 p1 n3`. Then one may be named again, and each feature has names / features names.
    `lengths`: [fewest, most] events in training; `eval_lengths`: each adds a set "@n", 2x is twice the most.
    Scored is what follows a pronoun.
    UsageError: a number out of range, or too few names.
    """

    remedy = "raise task.names"
    shortest = 2

    def __init__(
        self,
        *,
        names: Count = 64,
        features: Several = 4,
        words: Several = 16,
        distractors: Natural = 2,
        fixed: bool = False,
        lengths: Sequence[int] = (4, 12),
        **settings: Any,
    ) -> None:
        self.features, self.words, self.fixed = features, words, fixed
        self.distractors, self.names = distractors, names
        sizes = (("n", names), ("f", features), ("p", features), ("w", words))
        self.tokens = (*(f"{kind}{index}" for kind, size in sizes for index in range(size)), "<pad>")
        super().__init__(lengths=lengths, **settings)

    def require_room(self, longest: int) -> None:
        if self.fixed:
            at_least("names", self.names, 2 * self.features)
        else:  # no name is introduced twice, and two are left at the end
            at_least("names", self.names, longest + 1)

    def width_at(self, length: int) -> int:
        return (self.distractors + 2) * length

    def tokens_at(self, length: int) -> int:
        return self.width_at(length) - 1

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        rows, events, n = len(lengths), longest, lengths.unsqueeze(1)
        position, filler = torch.arange(events), self.vocab_size - 1
        if not self.fixed:
            name = permutations(generator, rows, self.names, events)
        feature = torch.randint(self.features, (rows, events), generator=generator)
        earlier = (torch.rand(rows, 1, generator=generator) * (n - 1)).long()
        feature = feature.scatter(1, n - 1, feature.gather(1, earlier))
        if self.fixed:
            each = self.names // self.features
            name = torch.randint(each, (rows, events), generator=generator) * self.features + feature
        refers = (torch.rand(rows, events, generator=generator) < 0.5) | (position == n - 1)
        of_feature = one_hot(feature, self.features).bool()
        here = feature.unsqueeze(2)
        refers &= of_feature.cumsum(1).gather(2, here).squeeze(2) > 1
        named = torch.where(of_feature & ~refers.unsqueeze(2), position.unsqueeze(1), -1).cummax(1).values
        referent = name.gather(1, named.gather(2, here).squeeze(2))
        first = torch.where(refers, self.names + self.features + feature, name)
        second = torch.where(refers, referent, filler if self.fixed else self.names + feature)
        words = some_words(generator, (rows, events), self.words, self.distractors, filler)
        words = torch.where(words == filler, filler, words + self.names + 2 * self.features)
        tokens = torch.cat([words, first.unsqueeze(2), second.unsqueeze(2)], dim=2)
        return tokens.masked_fill((position >= n).unsqueeze(2), filler).view(rows, 1, -1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> ItemLayout:
        tokens = content.squeeze(1)
        pronoun = (tokens >= self.names + self.features) & (tokens < self.names + 2 * self.features)
        return ItemLayout(tokens, pronoun.roll(1, 1))


class Dialogue(Synthetic):
    """Predict the words of speakers: a turn `s1 t0 w3 w7 .2` repeats the last turn's word, then says the speaker's own.

    Each speaker has one word for each topic, drawn again for every dialogue, and keeps to it; the first turn takes up
    no word; up to `distractors` of `noise` meaningless words end a turn. So the word that is taken up is found one turn
    back, and the own word in an earlier turn of the same speaker, if there was one on this topic: both are scored.
    `back`: b turns back stands the word that is taken up, by default in the last turn; the first b take up none.
    `rounds`: speakers take turns in an order that is drawn for each dialogue, all before one speaks again, and who
    speaks next is scored too once all have spoken. `speakers`, `topics`, `words`: sizes of their alphabets.
    `lengths`: [fewest, most] turns in training; `eval_lengths`: each adds a set "@n" of n turns, 2x is twice the most.
    Tags: `turn` (its number), `speaker`, `topic` of the turn that a token belongs to; a turn's first token, behind
    which its topic stands, has the topic n, the number of topics. `boundary`: 1 at a turn's first token.
    UsageError: a number out of range.
    """

    remedy = "raise task.words"
    tags = ("turn", "speaker", "topic", "boundary")

    def __init__(
        self,
        *,
        speakers: Several = 3,
        topics: Several = 4,
        words: Several = 32,
        noise: Several = 16,
        distractors: Natural = 2,
        rounds: bool = False,
        back: Count = 1,
        lengths: Sequence[int] = (4, 12),
        **settings: Any,
    ) -> None:
        self.speakers, self.topics, self.rounds, self.back = speakers, topics, rounds, back
        self.words, self.noise = words, noise
        self.distractors, self.shortest = distractors, back + 1
        sizes = (("s", speakers), ("t", topics), ("w", words), (".", noise))
        self.tokens = (*(f"{kind}{index}" for kind, size in sizes for index in range(size)), "<pad>")
        super().__init__(lengths=lengths, **settings)

    def width_at(self, length: int) -> int:
        return (self.distractors + 3) * length

    def tokens_at(self, length: int) -> int:
        return (self.distractors + 4) * length - self.back

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        rows, turns, filler = len(lengths), longest, self.vocab_size - 1
        if self.rounds:
            order = permutations(generator, rows, self.speakers, self.speakers)
            speaker = order[:, torch.arange(turns) % self.speakers]
        else:
            speaker = torch.randint(self.speakers, (rows, turns), generator=generator)
        topic = torch.randint(self.topics, (rows, turns), generator=generator)
        habits = torch.randint(self.words, (rows, self.speakers * self.topics), generator=generator)
        word = self.speakers + self.topics + habits.gather(1, speaker * self.topics + topic)
        noise = some_words(generator, (rows, turns), self.noise, self.distractors, filler)
        noise = torch.where(noise == filler, filler, noise + self.speakers + self.topics + self.words)
        own = torch.stack([speaker, self.speakers + topic, word], dim=2)
        tokens = torch.cat([own, noise], dim=2)
        beyond = torch.arange(turns) >= lengths.unsqueeze(1)
        return tokens.masked_fill(beyond.unsqueeze(2), filler).view(rows, 1, -1)

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> ItemLayout:
        rows, filler = len(content), self.vocab_size - 1
        turns = content.view(rows, -1, self.distractors + 3)
        speaker, topic, word, noise = turns[..., :1], turns[..., 1:2], turns[..., 2:3], turns[..., 3:]
        said = word.roll(self.back, 1).masked_fill(word == filler, filler)
        tokens = torch.cat([speaker, topic, said, word, noise], dim=2)
        pair = (speaker * (filler + 1) + topic).squeeze(2)
        before = torch.ones(pair.shape[1], pair.shape[1], dtype=torch.bool).tril(-1)
        known = ((pair.unsqueeze(1) == pair.unsqueeze(2)) & before).any(2)
        scored = torch.zeros_like(tokens, dtype=torch.bool)
        scored[:, :, 2], scored[:, :, 3] = True, known
        number = torch.arange(turns.shape[1])[:, None]
        if self.rounds:
            scored[:, self.speakers :, 0] = True
        named = torch.arange(tokens.shape[2]) > 0  # the speaker's token stands before the topic
        tags = {
            "turn": number,
            "speaker": speaker,
            "topic": torch.where(named, topic - self.speakers, self.topics),
            "boundary": (~named).long(),
        }
        taken_up = torch.arange(tokens.shape[2]) == 2
        spoken = ~(taken_up & (number < self.back)).flatten()  # nothing is taken up in the first turns

        def laid_out(values: Tensor, empty: int) -> Tensor:
            return append_filler(values.expand_as(tokens).flatten(1)[:, spoken], empty)

        sequences, channels = laid_out(tokens, filler), {name: laid_out(tag, 0) for name, tag in tags.items()}
        return ItemLayout(sequences, laid_out(scored, False), channels, inputs=(sequences != filler).sum(1))
