"""The law of those who write: what is kept of earlier places changes nothing."""

from __future__ import annotations

import torch

from swapformer.conformance.subject import LENGTH, Subject, ids, require, run
from swapformer.model.generate import Prompt, Writer


def cache_changes_nothing(subject: Subject) -> str | None:
    """Logits of places that are read one after the other, with a cache, are those of reading them at once."""
    model = subject.perturbed()
    if not model.stack.can_cache:
        return "its parts cannot keep places of a sequence that grows, so each symbol is written from all of it"
    if model.stack.tags:
        return "its pattern reads tags, which written places do not have"
    if model.reads_source:
        return "a source is kept whole; tests hold it to the same"
    inputs, prompt = ids(), LENGTH // 2
    writer = Writer(model, Prompt(inputs[:, :prompt]))
    found = []
    for place in range(prompt, LENGTH):
        found.append(writer.logits())
        writer.take(inputs[:, place])
    gap = (torch.stack(found, 1) - run(model, inputs)[:, prompt - 1 : -1]).abs().max().item()
    require(gap < 1e-10, f"writing with a cache must equal reading at once, but logits differ by {gap:.2g}.")
    return None
