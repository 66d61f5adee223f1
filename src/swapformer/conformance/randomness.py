"""Laws about randomness: deterministic evaluation, reproducible builds and repeatable training steps."""

from __future__ import annotations

import torch

from swapformer.conformance.subject import TIGHT, Subject, gradients, ids, require, run


def evaluation_is_deterministic(subject: Subject) -> None:
    """In evaluation a model draws nothing: dropout is off, and two runs are bit-equal."""
    model, inputs = subject.perturbed(), ids()
    once = run(model, inputs)
    require(torch.equal(run(model, inputs), once), "two evaluations must be bit-equal: something draws at random.")
    gap = (run(subject.with_model(dropout=0.5).perturbed(), inputs) - once).abs().max().item()
    require(gap < TIGHT, f"dropout must be off in evaluation, but it changes logits by {gap:.2g}.")


def builds_are_reproducible(subject: Subject) -> None:
    """Two builds are bit-equal whatever happened in between, and another seed gives other weights."""
    first = subject.build().state_dict()
    torch.rand(3)
    second = subject.build().state_dict()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    require(
        not different, f"two builds must be bit-equal, but {different} differ: draw weights through the leaves only."
    )
    other = Subject({**subject.config, "seed": subject.config["seed"] + 1}, subject.slot).build().state_dict()
    require(any(not torch.equal(first[name], other[name]) for name in first), "another seed must give other weights.")


def training_steps_are_repeatable(subject: Subject) -> None:
    """After the same `torch.manual_seed` a training step is bit-equal, so that a resumed run repeats itself."""
    dropped = subject.with_model(dropout=0.3)
    model, inputs = (subject.with_model() if dropped.refused else dropped).perturbed().train(), ids()
    steps = []
    for _ in range(2):
        torch.manual_seed(7)
        steps.append(gradients(model, inputs))
        torch.rand(3)
    (loss, grads), (again, repeated) = steps
    different = [name for name, grad in grads.items() if not torch.equal(grad, repeated[name])]
    require(
        torch.equal(loss, again) and not different,
        "a training step must be bit-equal after the same torch.manual_seed, but it is not: draw with torch, from its "
        "global generator or from a stream of the part's own that does not move.",
    )
