"""The law of kernels: how attention is computed changes nothing that is computed."""

from __future__ import annotations

import torch

from swapformer.conformance.subject import LENGTH, TIGHT, Subject, gradients, ids, places, require, run
from swapformer.model.topology import Topology
from swapformer.options import options

MET_BY_KERNELS = ("kernel", "attention", "score", "normaliser", "pattern", "position", "qk_norm")
"""Slots whose parts are arguments of a kernel: those are held against every kernel, others against their own."""


def kernel_equals_reference(subject: Subject) -> str | None:
    """Logits and gradients equal those of the reference kernel, with padding, documents and later places too.

    Every kernel of conf/model/kernel that takes the part is asked, or that of the configuration where it is the kernel
    that is in question. A kernel that cannot run on this machine raises NotImplementedError.
    """
    if "kernel" not in subject.layers[0].attention().uses:
        return "the attention has no kernel"
    nodes = options("kernel")
    reference = nodes.pop("reference")
    if subject.slot not in MET_BY_KERNELS or subject.slot == "kernel":
        nodes = {"its own": subject.config["model"]["kernel"]}
    fast = {name: subject.with_model(kernel=node) for name, node in nodes.items() if node != reference}
    able = {name: other for name, other in fast.items() if not _refused(other)}
    slow = subject.with_model(kernel=reference).perturbed()
    asked = [name for name, other in able.items() if _compared(name, other.perturbed(), slow, subject)]
    return None if asked else "it is the reference, or no other kernel takes it here"


def _refused(subject: Subject) -> bool:
    layer = subject.layers[0]
    return layer.attention().refuses(layer.position()) is not None


def _compared(name: str, fast: Topology, slow: Topology, subject: Subject) -> bool:
    """Whether a kernel runs here; raises BrokenLaw if it is not the reference."""
    inputs = ids()
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, LENGTH - 3 :] = padding[0, :2] = True
    document = (torch.arange(LENGTH) >= LENGTH // 3).long()[None]
    for tokens in (None, places(padding=padding), places(start=7), places(document=document)):
        if tokens is not None and tokens.extent > subject.config["model"]["max_len"]:
            continue
        try:
            found = run(fast, inputs, tokens)
        except NotImplementedError:
            return False
        gap = (found - run(slow, inputs, tokens)).abs().max().item()
        require(gap < TIGHT, f"kernel {name} must equal the reference, but logits differ by {gap:.2g}.")
    (_, quick), (_, exact) = (gradients(model, inputs, places(padding=padding)) for model in (fast, slow))
    worst = max((quick[weight] - exact[weight]).abs().max().item() for weight in exact)
    require(worst < TIGHT, f"kernel {name} must equal the reference, but gradients differ by {worst:.2g}.")
    return True
