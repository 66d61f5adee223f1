"""Measures generation: seconds to read a context and to write one token after it, and the bytes that are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch

from swapformer.measure.base import MeasuredModel, Measurement, beyond_table, random_batch
from swapformer.model.cache import Cache
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.ranges import Count, Natural
from swapformer.results.shapes import Curve, Finding
from swapformer.task.base import Direction, Task
from swapformer.training.assemble import count_parameters
from swapformer.training.inputs import model_inputs


class DecodeCost(Measurement):
    """Seconds of generation by length of the context: decode/prefill@n, decode/step@n, and the cache's bytes.

    `decode/prefill@n` reads n tokens of B sequences at once into an empty cache, `decode/step@n` one more token of each
    behind n that are cached (each step makes the context one longer: the samples go up to an eighth beyond n), and
    `decode/tokens_per_second@n` is B over the latter. Exact are `decode/cache_bytes@n`, keys, values and states of the
    B sequences after the prefill, and `decode/parameters`.

    Args:
        lengths: n, in tokens.
        batch: B.
        warm_up: steps before the first that counts.
        repeats: samples whose median counts.
        prefills: samples of reading the context, behind one that does not count; None for `repeats`, behind `warm_up`.
    """

    timed: ClassVar[bool] = True

    def __init__(
        self, *, lengths: Sequence[Count], batch: Count, warm_up: Natural, repeats: Count, prefills: Count | None = None
    ) -> None:
        self.lengths, self.batch, self.warm_up, self.repeats = lengths, batch, warm_up, repeats
        self.prefills = (warm_up, repeats) if prefills is None else (1, prefills)

    def directions(self) -> Mapping[str, Direction]:
        ways: dict[str, Direction] = {"prefill": "lower", "step": "lower", "tokens_per_second": "higher"}
        ways["cache_bytes"] = "lower"
        found = {f"decode/{name}@{length}": way for name, way in ways.items() for length in self.lengths}
        return {**found, "decode/parameters": "lower"}

    def _most(self, length: int) -> int:
        """Steps of a sample at most."""
        return max(length // (8 * self.repeats), 1)

    def unsuited(self, model: Topology, task: Task) -> str | None:
        if not model.stack.can_cache:
            return (
                "measure=decode times steps with a cache, but a part of this model has none; use model/attention=mha."
            )
        longest = max(self.lengths)
        return beyond_table("decode", longest + max(self.warm_up, 1) + self.repeats * self._most(longest), model)

    @torch.no_grad()
    def measure(self, subject: MeasuredModel) -> Finding:
        metrics: dict[str, float] = {"decode/parameters": count_parameters(subject.model)["total"]}
        for length in self.lengths:
            generation = _Generation(subject, self.batch, length)
            metrics |= subject.clock.sample(generation.timed_prefill, *self.prefills)
            metrics[f"decode/cache_bytes@{length}"] = generation.cache.num_bytes
            most = self._most(length)
            metrics |= subject.clock.sample(generation.timed_step, self.warm_up, self.repeats, most)
            metrics[f"decode/tokens_per_second@{length}"] = self.batch / metrics[f"decode/step@{length}"]
        exact = ("decode/parameters", *(f"decode/cache_bytes@{length}" for length in self.lengths))
        return Finding(metrics, {"decode": self._curve(metrics)}, exact)

    def _curve(self, metrics: Mapping[str, float]) -> Curve:
        names = ("prefill", "step")
        series = {name: [metrics[f"decode/{name}@{length}"] for length in self.lengths] for name in names}
        return Curve(
            "Seconds of generation",
            f"Reading a context of {self.batch} sequences at once, and one more token of each behind it.",
            "tokens of context", "seconds", list(self.lengths), series, log_x=True, log_y=True,
            fit=len(self.lengths) > 1,
        )  # fmt: skip


class _Generation:
    """A model that reads a context of one length, then continues token by token."""

    def __init__(self, subject: MeasuredModel, rows: int, length: int) -> None:
        self.model, self.clock, self.device, self.length = subject.model, subject.clock, subject.device, length
        batch = random_batch(subject.model, rows, length, subject.device)
        self.given = model_inputs(batch)
        self.token = batch.inputs[:, :1]
        self.tags = {name: tag[:, :1] for name, tag in batch.tags.items()}
        self.cache = Cache()

    def prefill(self) -> None:
        """Read the context into an empty cache."""
        self.cache = Cache()
        self.model(*self.given, self.cache)

    def step(self) -> None:
        """Read one more token of each sequence."""
        assert self.cache.tokens is not None, "the context has been read"
        here = Tokens.of(1, start=len(self.cache.tokens), device=self.device, tags=self.tags)
        self.model(self.token, here, *self.given[2:], self.cache)

    def timed_prefill(self) -> dict[str, float]:
        """Seconds of reading the context."""
        return {f"decode/prefill@{self.length}": self.clock.timed(self.prefill)}

    def timed_step(self) -> dict[str, float]:
        """Seconds of one more token."""
        return {f"decode/step@{self.length}": self.clock.timed(self.step)}
