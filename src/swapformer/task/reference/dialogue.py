"""Turns of speakers who keep to their words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.task.base import whole_number
from swapformer.task.draws import some_words
from swapformer.task.layout import Written, with_room
from swapformer.task.lengths import evaluation_lengths, span
from swapformer.task.synthetic import Synthetic


class Dialogue(Synthetic):
    """Turns `s1 t0 w3 w7 .2` of a speaker on a topic: the last turn's word is taken up, then a word of its own follows.

    Each speaker has one word for each topic, drawn anew for every dialogue, and keeps to it; the first turn takes up no
    word; up to `distractors` of `noise` meaningless words end a turn. So the word that is taken up is found one turn
    back, and the own word in an earlier turn of the same speaker, if there was one on this topic: both are scored.
    `speakers`, `topics`, `words`: sizes of their alphabets. `lengths`: [fewest, most] turns in training;
    `eval_lengths`: each adds a set "@n" of n turns, 2x is twice the most.
    Tags: `turn` (its number), `speaker`, `topic` of the turn that a token belongs to.
    UsageError: a number out of range.
    """

    remedy = "raise task.words"
    tags = ("turn", "speaker", "topic")

    def __init__(
        self,
        *,
        speakers: int = 3,
        topics: int = 4,
        words: int = 32,
        noise: int = 16,
        distractors: int = 2,
        lengths: Sequence[int] = (4, 12),
        eval_lengths: Sequence[int | str] = (),
        batch_size: int = 32,
    ) -> None:
        self.speakers, self.topics = whole_number("speakers", speakers, 2), whole_number("topics", topics, 2)
        self.words, self.noise = whole_number("words", words, 2), whole_number("noise", noise, 2)
        self.distractors, self.lengths = whole_number("distractors", distractors, 0), span("lengths", lengths, 2)
        sizes = (("s", speakers), ("t", topics), ("w", words), (".", noise))
        self.tokens = (*(f"{kind}{index}" for kind, size in sizes for index in range(size)), "<pad>")
        self.vocab_size = len(self.tokens)
        super().__init__(
            lengths=self.lengths,
            eval_lengths=evaluation_lengths("eval_lengths", eval_lengths, self.lengths[1], 2),
            batch_size=batch_size,
            alphabet=self.vocab_size - 1,
        )

    def width_at(self, length: int) -> int:
        return (self.distractors + 3) * length

    def tokens_at(self, length: int) -> int:
        return (self.distractors + 4) * length - 1

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        rows, turns, filler = len(lengths), longest, self.vocab_size - 1
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

    def write(self, content: Tensor, lengths: Tensor, longest: int) -> Written:
        rows, filler = len(content), self.vocab_size - 1
        turns = content.view(rows, -1, self.distractors + 3)
        speaker, topic, word, noise = turns[..., :1], turns[..., 1:2], turns[..., 2:3], turns[..., 3:]
        said = word.roll(1, 1).masked_fill(word == filler, filler)
        tokens = torch.cat([speaker, topic, said, word, noise], dim=2)
        pair = (speaker * (filler + 1) + topic).squeeze(2)
        before = torch.ones(pair.shape[1], pair.shape[1], dtype=torch.bool).tril(-1)
        known = ((pair.unsqueeze(1) == pair.unsqueeze(2)) & before).any(2)
        scored = torch.zeros_like(tokens, dtype=torch.bool)
        scored[:, :, 2], scored[:, :, 3] = True, known
        number = torch.arange(turns.shape[1])[:, None]
        tags = {"turn": number, "speaker": speaker, "topic": topic - self.speakers}
        spoken = torch.arange(tokens.flatten(1).shape[1]) != 2  # nothing is taken up in the first turn

        def laid_out(values: Tensor, empty: int) -> Tensor:
            return with_room(values.expand_as(tokens).flatten(1)[:, spoken], empty)

        sequences, channels = laid_out(tokens, filler), {name: laid_out(tag, 0) for name, tag in tags.items()}
        return Written(sequences, laid_out(scored, False), channels, inputs=(sequences != filler).sum(1))
