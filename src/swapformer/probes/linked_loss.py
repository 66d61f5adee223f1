"""Probe of the loss where a tag links a place to an earlier one, such as the use of a name to its definition."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from swapformer.interface import MAIN
from swapformer.model.topology import Topology
from swapformer.probes.analysis import target_nats
from swapformer.probes.base import Finding, Probe, validation
from swapformer.ranges import Count
from swapformer.task.base import IGNORE, Batch, Task
from swapformer.training.inputs import model_inputs


class LinkedLoss(Probe):
    """Mean loss in nats at the places that a tag links to an earlier place of their sequence, and at the others.

    A place i is linked where an earlier place j < i has key_j = query_i for one of the pairs (query, key) of channels.
    The metrics are `probe/linked_loss`, `probe/unlinked_loss` and `probe/linked_share`, the share of scored targets at
    linked places. Whether the model may attend to j plays no part, so that models with different patterns are asked the
    same.

    Args:
        batches: validation batches at the training length.
        links: pairs [query, key] of names of the task's tags.

    Raises:
        ValueError: if there are no links, a link is no pair, the task lacks a tag, or the answers are not
            symbols at each position.
    """

    def __init__(self, *, batches: Count, links: Sequence[Sequence[str]]) -> None:
        self.batches, self.links = batches, [tuple(link) for link in links]
        if not self.links or any(len(link) != 2 for link in self.links):
            raise ValueError(f"`links` of linked_loss must be pairs such as [[name, defined]], but is {links}.")

    def unsuited(self, model: Topology, task: Task) -> str | None:
        asked = task.interface.readouts[MAIN]
        if asked.per != "position" or asked.kind == "values":
            return (
                f"{type(task).__name__} asks for {asked.kind} of a {asked.per}, so there is no loss at linked places; "
                "leave out probes=linked_loss."
            )
        wanted = dict.fromkeys(name for link in self.links for name in link)
        if missing := [name for name in wanted if name not in task.tags]:
            return (
                f"linked_loss needs the tags {', '.join(missing)}, but {type(task).__name__} supplies "
                f"{', '.join(task.tags) or 'none'}; set probes.linked_loss.links to pairs of these, or choose a task "
                "that has them, such as task=source_code."
            )
        return None

    def measure(self, model: Topology, task: Task) -> Finding:
        sums, counts = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)
        for batch in validation(model, task, self.batches):
            nats = target_nats(model.answers(*model_inputs(batch))[MAIN], batch.targets)
            linked, scored = self.linked(batch), batch.targets != IGNORE
            for index, part in enumerate((linked & scored, ~linked & scored)):
                sums[index] += nats[part].sum()
                counts[index] += part.sum()
        found = {
            f"probe/{name}_loss": float(sums[index] / counts[index])
            for index, name in enumerate(("linked", "unlinked"))
            if counts[index]
        }
        share = int(counts[0]) / int(counts.sum())
        return Finding({**found, "probe/linked_share": share}, exact=("probe/linked_share",))

    def linked(self, batch: Batch) -> Tensor:
        """Whether a tag links each place to an earlier one, bool [B, T]."""
        rows, length = batch.inputs.shape[:2]
        earlier = torch.ones(length, length, dtype=torch.bool, device=batch.inputs.device).tril(-1)
        found = torch.zeros(rows, length, dtype=torch.bool, device=batch.inputs.device)
        for query, key in self.links:
            same = batch.tags[query][:, :, None] == batch.tags[key][:, None, :]
            found |= (same & earlier).any(2)
        return found
