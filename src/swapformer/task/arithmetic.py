"""Tasks on whole numbers: addition (Lee et al. 2023, arXiv:2307.03381) and modular addition (Power et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import pad

from swapformer.errors import UsageError
from swapformer.random import stream
from swapformer.ranges import Count, OpenShare, Within
from swapformer.task.content_split import LISTED, SHARES
from swapformer.task.layout import column
from swapformer.task.questions import QuestionTask
from swapformer.task.settings import evaluation_lengths

_PAD, _PLUS, _EQUALS, _END = 10, 11, 12, 13


class Addition(QuestionTask):
    """Add two whole numbers: `128+67=195<end>`.

    `reversed`: the answer is written from its last digit, `128+67=591<end>`; then each digit depends on digits already
    seen (Lee et al. 2023, arXiv:2307.03381).

    An item's length is the digits of its longer operand. `digits`: the most in training, 1…digits equally often.
    `eval_digits`: each adds an evaluation set "@d" of sums with exactly d digits; 2x is twice `digits`. `zero_padded`:
    operands are written with the item's digits and the answer with one more; otherwise nothing has leading zeros.
    `ordered_operands`: a+b and b+a are two items, which may be in different splits, as by Lee et al.; otherwise they
    are always in the same one. `as_source`: the operands are the source of an encoder-decoder.

    `train_samples`: train on that many sums only (null: no limit), fixed by the settings and drawn as by Lee et al.: in
    proportion to the *numbers* of each digit count, 10 : 90 : 900 …, so that short sums are not lost among the long.
    Where a digit count has fewer training sums than its share, all are taken and the longest sums fill up. The training
    and the evaluation set "" then have this mixture of digit counts.
    UsageError: a number out of range, or more samples than there are sums.
    """

    tokens = (*"0123456789", "<pad>", "+", "=", "<end>")
    separator = ""
    separator_token, end_token = _EQUALS, _END
    one_stream_each = True  # published numbers come from these batches

    def __init__(
        self,
        *,
        digits: Count = 3,
        reversed: bool = False,
        zero_padded: bool = False,
        eval_digits: Sequence[int | str] = (),
        train_samples: Count | None = None,
        batch_size: Count = 32,
        eval_batch_size: Count | None = None,
        as_source: bool = False,
        ordered_operands: bool = False,
    ) -> None:
        self.ordered_operands = ordered_operands
        self.digits = digits
        self.reversed = reversed
        self.zero_padded = zero_padded
        self.train_samples = train_samples
        self.eval_digits = evaluation_lengths("eval_digits", eval_digits, self.digits)
        super().__init__(
            lengths=(1, digits),
            eval_lengths=self.eval_digits,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            as_source=as_source,
        )
        self._pool: Tensor | None = None
        if self.train_samples is not None:
            shares = self._balance(self.train_samples)
            self._pool = torch.cat([self._draw_pool(length, share) for length, share in shares.items()])
            self.mixture = torch.tensor(list(shares)).repeat_interleave(torch.tensor(list(shares.values())))

    def question_at(self, length: int) -> int:
        return 2 * length + 1

    def answer_at(self, length: int) -> int:
        return length + 1

    def items(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        if self._pool is None:
            return super().items(generator)
        chosen = torch.randint(len(self._pool), (self.batch_size,), generator=generator)
        return self._pool[chosen], self.mixture[chosen]

    def training_items(self, length: int) -> int | None:
        return super().training_items(length) if self._pool is None else int((self.mixture == length).sum())

    def list_items(self, length: int) -> Tensor | None:
        if 100**length > LISTED:
            return None
        pairs = torch.arange(100**length)
        pairs = pairs if length == 1 else pairs[pairs >= 100 ** (length - 1)]
        return _split_pairs(pairs.unsqueeze(1) // 100 ** torch.arange(length) % 100)

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        # Both operands' digits at a position are one number below 100, little-endian; the highest has one digit ≠ 0.
        pairs = torch.randint(100, (len(lengths), longest), generator=generator)
        highest = torch.randint(1, 100, (len(lengths), 1), generator=generator)
        top = (lengths - 1).unsqueeze(1)
        pairs.scatter_(1, top, torch.where(top > 0, highest, pairs[:, :1]))
        outside = torch.arange(longest) > top
        return _split_pairs(pairs).masked_fill(outside.unsqueeze(1), _PAD)

    def question(self, content: Tensor, lengths: Tensor) -> Tensor:
        first, second = (self._written(number, lengths).flip(1) for number in _operands(content))
        return torch.cat([first, column(len(content), _PLUS), second], dim=1)

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        total = self._written(_add(*_operands(content)), lengths + 1)
        return total if self.reversed else total.flip(1)

    def _written(self, number: Tensor, size: Tensor) -> Tensor:
        """Little-endian digits [N,W], with filler where a number has no digit: beyond its own, or beyond `size`."""
        digits = size if self.zero_padded else _significant(number)
        return number.masked_fill(torch.arange(number.shape[1]) >= digits.unsqueeze(1), _PAD)

    def _balance(self, samples: int) -> dict[int, int]:
        """The number of training sums of each digit count."""
        shares: dict[int, int] = {}
        for digits in range(1, self.digits + 1):
            sums = 100**digits - (100 ** (digits - 1) if digits > 1 else 0)
            # Half of the training sums at most where the split's exact size is not known: they are found by drawing.
            limit = int(sums * SHARES["train"] * (1 if sums <= LISTED else 0.5))
            rest = samples - sum(shares.values())
            share = round(samples * 10**digits * (0.9 if digits > 1 else 1.0) / 10**self.digits)
            shares[digits] = min(share, limit, rest) if digits < self.digits else rest
            if shares[digits] > limit:
                raise UsageError(
                    f"task.train_samples must be at most {limit + samples - rest} for task.digits={self.digits}, "
                    f"but is {samples}; take fewer, or null for no limit"
                )
        return {digits: share for digits, share in shares.items() if share}

    def _draw_pool(self, length: int, share: int) -> Tensor:
        """`share` different training sums of `length` digits [share,2,digits]."""
        generator = stream("train samples", length)
        everything = self.list_items(length)
        if everything is not None:
            training = everything[self.splits.contains("train", everything, torch.full((len(everything),), length))]
            pool = training[torch.randperm(len(training), generator=generator)[:share]]
        else:
            pool = torch.empty(0, 2, length, dtype=torch.long)
            while len(pool) < share:
                more, _ = self.sample(generator, "train", torch.tensor([length]), share - len(pool))
                pool = torch.unique(torch.cat([pool, more]), dim=0)
        return pad(pool, (0, self.digits - length), value=_PAD)


def _split_pairs(pairs: Tensor) -> Tensor:
    """Two operands [N,2,W] of their pairs of digits [N,W]."""
    return torch.stack([pairs // 10, pairs % 10], dim=1)


def _operands(content: Tensor) -> tuple[Tensor, Tensor]:
    """Both operands of items, little-endian [N,W], with zeros for filler."""
    first, second = content.masked_fill(content == _PAD, 0).unbind(1)
    return first, second


def _significant(number: Tensor) -> Tensor:
    """The number of digits [N] of little-endian numbers [N,W]: up to the last that is not 0, at least one."""
    return ((number != 0) * torch.arange(1, number.shape[1] + 1)).amax(1).clamp(min=1)


def _add(first: Tensor, second: Tensor) -> Tensor:
    """Sums [N,W+1] of little-endian [N,W]: a carry was made at the last position below that does not add up to 9."""
    sums = first + second
    decider = torch.where(sums != 9, torch.arange(sums.shape[1]), -1).cummax(1).values
    carry = (decider >= 0) & (sums.gather(1, decider.clamp(min=0)) >= 10)
    zero = sums.new_zeros(len(sums), 1)
    return (torch.cat([sums, zero], 1) + torch.cat([zero, carry], 1)) % 10


class ModularAddition(QuestionTask):
    """Add two numbers modulo p: `a + b = c`, every number one token (Power et al. 2022, arXiv:2201.02177: grokking).

    `modulus`: p. `fraction`: of the table's p² sums are for training; validation and test have half of the rest each.
    `ordered_operands`: a + b and b + a are two items, which may be in different splits, as in the paper; otherwise they
    are always in the same one, so that no answer follows from training by exchanging operands. `as_source`: a + b is
    the source of an encoder-decoder.
    UsageError: a number out of range, or a split with too few sums.
    """

    remedy = "raise task.modulus, or take another task.fraction"
    end_token = None

    def __init__(
        self,
        *,
        modulus: Annotated[int, Within("[2, 4000]")] = 97,
        fraction: OpenShare = 0.5,
        batch_size: Count = 128,
        eval_batch_size: Count | None = None,
        as_source: bool = False,
        ordered_operands: bool = False,
    ) -> None:
        self.ordered_operands = ordered_operands
        self.modulus, self.fraction = modulus, fraction
        self.tokens = (*map(str, range(self.modulus)), "<pad>", "+", "=")
        self._plus, self.separator_token = modulus + 1, modulus + 2
        held = (1 - self.fraction) / 2
        self.shares = {"train": self.fraction, "val": held, "test": held}
        super().__init__(lengths=(1, 1), batch_size=batch_size, eval_batch_size=eval_batch_size, as_source=as_source)

    def question_at(self, length: int) -> int:
        return 3

    def list_items(self, length: int) -> Tensor:
        return torch.cartesian_prod(*[torch.arange(self.modulus)] * 2).unsqueeze(2)

    def draw(self, generator: torch.Generator, lengths: Tensor, longest: int) -> Tensor:
        return torch.randint(self.modulus, (len(lengths), 2, 1), generator=generator)

    def question(self, content: Tensor, lengths: Tensor) -> Tensor:
        return torch.cat([content[:, 0], column(len(content), self._plus), content[:, 1]], dim=1)

    def answer(self, content: Tensor, lengths: Tensor) -> Tensor:
        return content.sum(1) % self.modulus
