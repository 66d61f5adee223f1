"""The laws. Each raises BrokenLaw, or returns a reason why it does not apply, or None when it holds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from swapformer.conformance.bands import blocks_are_enough
from swapformer.conformance.facts import facts_hold
from swapformer.conformance.knobs import no_dead_knob, variants
from swapformer.conformance.subject import LENGTH, VOCABULARY, BrokenLaw, Subject, gradients, ids, places, require, run
from swapformer.conformance.writing import cache_changes_nothing
from swapformer.model.context import Tokens
from swapformer.model.position import Position
from swapformer.random import stream

Law = Callable[[Subject], str | None]

TIGHT = 1e-10
"""Largest difference in float64 that rounding explains at this size."""


def builds(subject: Subject) -> None:
    """Logits have shape [B, T, V] and everything is finite, gradients too."""
    model, inputs = subject.perturbed(), ids()
    logits = run(model, inputs)
    require(
        logits.shape == (2, LENGTH, VOCABULARY),
        f"logits must be [B, T, V] = [2, {LENGTH}, {VOCABULARY}], but are {list(logits.shape)}.",
    )
    require(logits.isfinite().all(), "logits must be finite; look for a division or a logarithm without a floor.")
    _, grads = gradients(model, inputs)
    bad = [name for name, grad in grads.items() if not grad.isfinite().all()]
    require(not bad, f"gradients must be finite, but those of {bad} are not.")


def causality(subject: Subject) -> str | None:
    """Changing later tokens cannot change earlier logits."""
    if not subject.causal:
        return "the pattern is not causal"
    model, inputs = subject.perturbed(), ids()
    changed = inputs.clone()
    changed[:, LENGTH // 2 :] = (changed[:, LENGTH // 2 :] + 1) % VOCABULARY
    gap = (run(model, inputs) - run(model, changed))[:, : LENGTH // 2].abs().max().item()
    require(
        gap == 0 or gap < TIGHT,
        f"later tokens must not change earlier logits, but they do by {gap:.2g}: the future leaks.",
    )
    return None


def _shuffled(length: int) -> Tokens:
    """Places in order, whose positions are a fixed permutation."""
    order = torch.randperm(length, generator=stream("shuffled positions"))
    return places(length, position=order[None])


def encodings_see_positions(subject: Subject) -> str | None:
    """Positions are what encodings see and order is what causality sees: each alone, never the other.

    Permuting the positions changes logits (unless there is no encoding), and lets no later token change an earlier
    logit; moving the whole order changes nothing.
    """
    model, inputs = subject.perturbed(), ids()
    plain, shuffled = run(model, inputs), run(model, inputs, _shuffled(LENGTH))
    moved = replace(places(), order=torch.arange(LENGTH)[None] + 7, consecutive=False)
    gap = (run(model, inputs, moved) - plain).abs().max().item()
    anchored = any(layer.pattern().anchored for layer in subject.layers)
    require(anchored or gap < TIGHT, f"moving every place of the order must change nothing, but it does by {gap:.2g}.")
    if subject.causal:
        changed = inputs.clone()
        changed[:, LENGTH // 2 :] = (changed[:, LENGTH // 2 :] + 1) % VOCABULARY
        leak = (run(model, changed, _shuffled(LENGTH)) - shuffled)[:, : LENGTH // 2].abs().max().item()
        require(leak < TIGHT, f"causality must follow the order, not the position, but the future leaks by {leak:.2g}.")
    positions = [layer.position() for layer in subject.layers]
    if not any(position.sees_positions and type(position) is not Position for position in positions):
        return None
    gap = (shuffled - plain).abs().max().item()
    require(gap > 1e-6, "permuting the positions must change logits, but does not: read `tokens.position`.")
    return None


def rows_are_apart(subject: Subject) -> None:
    """Changing one sequence of a batch leaves the others' logits alone, in evaluation."""
    model, inputs = subject.perturbed(), ids(3)
    for row in range(3):
        changed = inputs.clone()
        changed[row] = (changed[row] + 1) % VOCABULARY
        others = torch.arange(3) != row
        gap = (run(model, inputs) - run(model, changed))[others].abs().max().item()
        require(gap < TIGHT, f"sequences of a batch must not see each other, but one changes others by {gap:.2g}.")


def evaluation_is_exact(subject: Subject) -> None:
    """In evaluation a model draws nothing: dropout is off, and two runs are bit-equal."""
    model, inputs = subject.perturbed(), ids()
    dropped = Subject(
        {**subject.config, "model": {**subject.config["model"], "dropout": 0.5}}, subject.slot
    ).perturbed()
    once = run(model, inputs)
    require(torch.equal(run(model, inputs), once), "two evaluations must be bit-equal: something draws at random.")
    gap = (run(dropped, inputs) - once).abs().max().item()
    require(gap < TIGHT, f"dropout must be off in evaluation, but it changes logits by {gap:.2g}.")


def half_the_digits(subject: Subject) -> None:
    """Logits in float32 are those in float64 to float32's precision, and those in bfloat16 are finite."""
    model, inputs = copy.deepcopy(subject.perturbed()), ids()
    exact = run(model, inputs)
    gap = ((run(model.float(), inputs) - exact).abs().max() / exact.abs().max()).item()
    require(gap < 1e-3, f"float32 must agree with float64, but logits differ by {gap:.2g} of the largest.")
    half = run(model.bfloat16(), inputs)
    require(half.dtype == torch.bfloat16, f"a bfloat16 model must give bfloat16 logits, but gives {half.dtype}.")
    require(half.isfinite().all(), "logits must be finite in bfloat16.")
    gap = ((half.double() - exact).abs().mean() / exact.abs().mean()).item()
    require(gap < 0.3, f"bfloat16 must be near float64, but logits differ by {gap:.2g} of their mean size.")


def gradients_everywhere(subject: Subject) -> None:
    """Every parameter gets a gradient that is not zero."""
    model = subject.perturbed()
    _, grads = gradients(model, ids())
    without = [name for name, _ in model.named_parameters() if name not in grads or not grads[name].any()]
    require(not without, f"every parameter must get a gradient, but {without} get none: they are never used.")


def reproducible(subject: Subject) -> None:
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


def padding_is_invisible(subject: Subject) -> None:
    """Tokens at padded places change nothing at the others."""
    model, inputs = subject.perturbed(), ids()
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[0, LENGTH - 5 :] = True
    changed = torch.where(padding, (inputs + 1) % VOCABULARY, inputs)
    tokens = [places(LENGTH, padding=padding) for _ in range(2)]
    gap = (run(model, inputs, tokens[0]) - run(model, changed, tokens[1]))[~padding].abs().max().item()
    require(gap < TIGHT, f"padding must be invisible, but it changes other places by {gap:.2g}.")
    require(run(model, inputs, tokens[0]).isfinite().all(), "padding must not make logits infinite or NaN.")


def documents_are_apart(subject: Subject) -> None:
    """A document's logits do not depend on another document in the same row."""
    model, inputs = subject.perturbed(), ids()
    document = (torch.arange(LENGTH) >= LENGTH // 3).long()[None].expand(2, -1)
    changed = torch.where(document == 0, (inputs + 1) % VOCABULARY, inputs)
    tokens = [places(LENGTH, document=document) for _ in range(2)]
    gap = (run(model, inputs, tokens[0]) - run(model, changed, tokens[1]))[document == 1].abs().max().item()
    require(gap < TIGHT, f"packed documents must not see each other, but they do by {gap:.2g}.")


def kernel_equals_reference(subject: Subject) -> str | None:
    """Logits and gradients equal those of the reference kernel, with and without padding."""
    reference = {"_target_": "swapformer.model.kernel.Reference", "_partial_": True, "_convert_": "all"}
    if subject.config["model"]["kernel"]["_target_"] == reference["_target_"]:
        return "it is the reference"
    fast, slow, inputs = subject.perturbed(), subject.with_option("kernel", reference).perturbed(), ids()
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, LENGTH - 3 :] = True
    for tokens in (None, places(LENGTH, padding=padding), places(LENGTH, start=7)):
        if tokens is not None and tokens.extent > subject.config["model"]["max_len"]:
            continue
        gap = (run(fast, inputs, tokens) - run(slow, inputs, tokens)).abs().max().item()
        require(gap < TIGHT, f"the kernel must equal the reference, but logits differ by {gap:.2g}.")
    (_, quick), (_, exact) = gradients(fast, inputs), gradients(slow, inputs)
    worst = max((quick[name] - exact[name]).abs().max().item() for name in exact)
    require(worst < TIGHT, f"the kernel must equal the reference, but gradients differ by {worst:.2g}.")
    return None


def instances_are_apart(subject: Subject) -> None:
    """A model of other settings built and run in between changes nothing: no state outside the instance."""
    model, inputs = subject.perturbed(), ids()
    before = run(model, inputs)
    sizes = {"num_heads": 2, "head_dim": None}
    other = Subject({**subject.config, "model": {**subject.config["model"], **sizes}}, subject.slot)
    for variant in variants(other):
        run(variant.perturbed(), inputs)
    require(
        torch.equal(run(model, inputs), before),
        "another instance must not disturb this one: keep no state in the class.",
    )


LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        builds,
        causality,
        encodings_see_positions,
        rows_are_apart,
        evaluation_is_exact,
        half_the_digits,
        gradients_everywhere,
        reproducible,
        padding_is_invisible,
        documents_are_apart,
        kernel_equals_reference,
        blocks_are_enough,
        cache_changes_nothing,
        instances_are_apart,
        facts_hold,
        no_dead_knob,
    )
}


@dataclass(frozen=True)
class Verdict:
    """How one law fared: `holds` is None where it does not apply."""

    law: str
    holds: bool | None
    message: str


def examine(config: Mapping[str, Any], slot: str) -> list[Verdict]:
    """Hold a configuration to every law.

    Args:
        config: resolved configuration with small sizes.
        slot: the slot whose part is in question.
    """
    verdicts = []
    subject = Subject.fitting(config, slot)
    if (reason := subject.elsewhere) is not None:
        return [Verdict(name, None, reason) for name in LAWS]
    for name, law in LAWS.items():
        try:
            reason = law(subject)
            verdicts.append(Verdict(name, True if reason is None else None, reason or ""))
        except BrokenLaw as broken:
            verdicts.append(Verdict(name, False, str(broken)))
        except Exception as error:
            verdicts.append(Verdict(name, False, f"{type(error).__name__} where nothing should be raised: {error}"))
    return verdicts
