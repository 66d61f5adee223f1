"""The base of tasks: data as a pure function of (seed, step), fixed evaluation sets, what is asked, and its metrics."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex

import torch
from torch import Tensor

from swapformer.errors import UsageError, suggest
from swapformer.interface import IGNORE as IGNORE
from swapformer.interface import MAIN, Interface
from swapformer.interface import Direction as Direction
from swapformer.ranges import Declared

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

MEASURED = ("loss", "loss_se", "perplexity", "accuracy", "accuracy_se", "exact_match", "exact_match_se")
"""What is measured of predicted symbols, unless a task says otherwise."""
Split = Literal["train", "val", "test"]


@dataclass(eq=False, kw_only=True)
class Sequences:
    """Sequences that a model sees: B of T positions; int64 unless said otherwise.

    `inputs` [B,T]: token ids, or float32 [B,T,C] where the task's inputs are values. `padding` [B,T] bool: True where a
    position is filler; None where nothing is. `document`, `position` and `tags` [B,T]: what the model's Tokens take
    besides; None or empty where a task has none. `extent`: the largest position plus 1, known on the host before the
    sequences are moved, since a model that asked the device for it would wait for it in every step.
    """

    inputs: Tensor
    padding: Tensor | None = None
    document: Tensor | None = None
    position: Tensor | None = None
    tags: Mapping[str, Tensor] = field(default_factory=dict)
    extent: int | None = None

    def to(self, device: torch.device | str) -> Self:
        """The same on `device`."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Self:
        """The same in memory from which a GPU copies while it computes."""
        return self._mapped(Tensor.pin_memory)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        changed = {one.name: _mapped(getattr(self, one.name), change) for one in fields(self)}
        if self.extent is None and self.position is not None:
            changed["extent"] = int(self.position.max()) + 1
        return replace(self, **changed)


@dataclass(eq=False, kw_only=True)
class Batch(Sequences):
    """Sequences that a model sees, and the answers to them.

    `targets`: of the main answer; for an answer at each position [B,T], `targets[:, t]` is what must be predicted at
    position t (already shifted); for one of a sequence [B]; values have one more axis. IGNORE, or NaN among values,
    where there is no loss. `labels`: targets of the other answers by name. `source`: a sequence that is read first.
    """

    targets: Tensor
    labels: Mapping[str, Tensor] = field(default_factory=dict)
    source: Sequences | None = None

    @property
    def num_positions(self) -> int:
        """Positions that are read, those of a source among them."""
        rows, length = self.inputs.shape[:2]
        return rows * length + (0 if self.source is None else self.source.inputs.shape[:2].numel())

    @property
    def answers(self) -> dict[str, Tensor]:
        """The targets of every answer by name."""
        return {MAIN: self.targets, **self.labels}


@dataclass(frozen=True)
class PositionShift:
    """The positions that encodings get instead of a token's p: `offset` + `stride` · p. The order stays as it is."""

    offset: int = 0
    stride: int = 1

    def of(self, batch: Batch) -> Batch:
        """The batch, and its source, with other positions."""
        if self == PositionShift():
            return batch
        source = batch.source
        moved = None if source is None else replace(source, position=self._positions(source), extent=None)
        return replace(batch, position=self._positions(batch), extent=None, source=moved)

    def last(self, length: int) -> int:
        """The largest position of sequences of `length` tokens, which are counted from 0."""
        return self.offset + self.stride * (length - 1)

    def _positions(self, sequences: Sequences) -> Tensor:
        known = sequences.position
        if known is None:
            known = torch.arange(sequences.inputs.shape[1], device=sequences.inputs.device)[None]
        return self.offset + self.stride * known


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _mapped(held, change) for name, held in value.items()}
    return value._mapped(change) if isinstance(value, Sequences) else value


def cut(value: Any, rows: int, low: int, high: int) -> Any:
    """The sequences `low` … `high` − 1 of what has `rows` of them; what all rows share stays as it is."""
    if isinstance(value, Tensor):
        return value[low:high] if value.shape[0] == rows else value
    if isinstance(value, Mapping):
        return {name: cut(channel, rows, low, high) for name, channel in value.items()}
    if isinstance(value, Sequences):
        return replace(value, **{f.name: cut(getattr(value, f.name), rows, low, high) for f in fields(value)})
    return value


def target_mask(targets: Tensor) -> Tensor:
    """True where a target carries loss."""
    return ~targets.isnan() if targets.is_floating_point() else targets != IGNORE


@dataclass(frozen=True)
class EvaluationSet:
    """A fixed set of batches: a pure function of their index, whatever the data seed.

    `name`: "" for data like the training's, "@64" for length 64. `batches`: how many there are (None: no end).
    """

    name: str
    batches: int | None
    make: Callable[[int], Batch] = field(repr=False)

    def batch(self, index: int) -> Batch:
        """Batch number `index`; IndexError beyond the last."""
        if index < 0 or (self.batches is not None and index >= self.batches):
            raise IndexError(f"evaluation set {self.name!r} has no batch {index}")
        return self.make(index)


class Pieces(Sequence[Tensor]):
    """The pieces of `torch.split(values, size)`, each cut when it is asked for: a long text has very many."""

    def __init__(self, values: Tensor, size: int) -> None:
        self.values, self.size = values, max(1, size)

    def __len__(self) -> int:
        return -(-len(self.values) // self.size)

    def __getitem__(self, index: int) -> Tensor:  # type: ignore[override]  # one piece at a time, counted from 0
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} pieces, and none is number {index}")
        return self.values[index * self.size : (index + 1) * self.size]


class Task(Declared, ABC):
    """Base of tasks: the data, the questions and the metrics of one problem.

    `vocab_size`: number of token ids. `train_length`: T of the training batches. `max_length`: longest T of any split.
    `longest_trained`: the longest length in training, in the unit that names the evaluation sets `@L`.
    `directions`: which way each metric is better; a metric `x_se` is the standard error of `x` and has no direction.
    `measured`: what is measured of predicted symbols.
    `summaries`: numbers that follow from the metrics of all sets of a split, with their directions.
    `exact`: the metrics that are the same with every seed.
    `tags`: names of the channels that its batches tag their positions with.
    `tokens`: how each id is written, and `separator` what stands between two of them.
    `start_token`, `end_token`: ids that the answer to a source begins with, and that ends an answer; None for none.
    `predicts_next`: whether a target is the next token, which no position may see.
    `left_out`: how many examples of a split are not evaluated since training has them too; of a task that counts them.
    """

    vocab_size: int
    train_length: int
    max_length: int
    longest_trained: int
    directions: Mapping[str, Direction]
    measured: Sequence[str] = MEASURED
    summaries: Mapping[str, Direction] = MappingProxyType({})
    exact: Sequence[str] = ()
    tags: Sequence[str] = ()
    tokens: Sequence[str]
    separator: str = ""
    start_token: int | None = None
    end_token: int | None = None
    predicts_next: bool = True

    @property
    def unit(self) -> str:
        """The meaning of a position: losses per position are comparable where it is the same; "" for a task's own."""
        return ""

    @property
    def left_out(self) -> Mapping[Split, int]:
        """None of any split, unless a task says otherwise."""
        return {}

    @property
    def interface(self) -> Interface:
        """Inputs and answers of a model: symbols and the next symbol, unless a task says otherwise."""
        return Interface(self.vocab_size)

    @abstractmethod
    def train_batch(self, seed: int, step: int) -> Batch:
        """Training batch number `step` under the data seed `seed`: a pure function of both, in any order or process."""

    def train_rows(self, seed: int, step: int, low: int, high: int) -> Batch:
        """The sequences `low` … `high` − 1 of `train_batch(seed, step)`: what one of several devices trains on.

        A task whose sequences do not depend on each other can make them without the rest of the batch.
        """
        batch = self.train_batch(seed, step)
        found: Batch = cut(batch, len(batch.inputs), low, high)
        return found

    def crowded_batch(self) -> str | None:
        """The reason why a training batch is larger than its source, and a size that fits; None where it is not."""
        return None

    @abstractmethod
    def evaluation(self, split: Literal["val", "test"]) -> Sequence[EvaluationSet]:
        """The evaluation sets of a split: first the one like training, then one for each other length."""

    def metrics(self, answer: str = MAIN) -> MetricCollection:
        """Fresh metrics of an answer, to be updated with (what the model gives, targets); those of MAIN have `loss`.

        By default those of its kind, of symbols the `measured` ones. An answer at each position gives [B,T,size], one
        of a sequence [B,size]. Metrics of another answer than MAIN are recorded as `<answer>_<metric>`.
        """
        from swapformer.task import metrics, value_metrics  # late: torchmetrics takes seconds

        readout = self.interface.readouts[answer]
        if readout.kind == "classes":
            return metrics.class_metrics(readout.size)
        if readout.kind == "values":
            return value_metrics.value_metrics(readout.size)
        return metrics.sequence_metrics(self.measured)

    def loss(self, answers: Mapping[str, Tensor], batch: Batch) -> Mapping[str, Tensor] | None:
        """The training loss of each answer by name, summed over its targets.

        None for the usual one: cross-entropy of symbols and classes, squared error of values. The sum over a batch is
        divided by the number of its targets, however the batch is cut among parts and devices. Metrics are `metrics`'.
        """
        return None

    def summarise(self, values: Mapping[str, float]) -> dict[str, float]:
        """The `summaries` of a split, from its metrics by name, such as `loss` and `loss@64`."""
        return {}

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the data that the settings name; the same in every process."""

    def vocabulary(self) -> str | None:
        """The state that writes as this task does, without its data: a file that trials keep.

        Another task can learn from it (task/tokeniser=trained), and a trained model can write by it.

        None where a task is not written by a tokeniser.
        """
        return None

    def encode(self, text: str) -> list[int]:
        """Token ids of a written text. UsageError names a symbol that the task does not have."""
        ids = {token: index for index, token in enumerate(self.tokens)}
        parts = text.split() if self.separator else list(text)
        for part in parts:
            if part not in ids:
                raise UsageError(
                    f"every symbol must be one that the task knows, but {part!r} is not{suggest(part, ids)}"
                )
        return [ids[part] for part in parts]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text of token ids."""
        return self.separator.join(self.tokens[operator.index(index)] for index in ids)
