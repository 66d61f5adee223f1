"""The law of kernels: how attention is computed changes nothing that is computed."""

from __future__ import annotations

import torch

from swapformer.conformance.subject import LENGTH, TIGHT, Subject, gradients, ids, places, require, run
from swapformer.model.topology import Topology
from swapformer.options import options
from swapformer.targets import find

MET_BY_KERNELS = ("kernel", "attention", "score", "normaliser", "pattern", "position", "qk_norm")
"""Slots whose parts are arguments of a kernel: those are held against every kernel, others against their own."""


def kernel_equals_reference(subject: Subject) -> str | None:
    """Logits and gradients equal those of the reference kernel, with padding, documents and later places too.

    Every kernel of conf/model/kernel that runs here and takes the part is asked, or that of the configuration where
    kernels do not meet the part.
    """
    if "kernel" not in subject.layers[0].attention().uses:
        return "the attention has no kernel"
    nodes = options("kernel")
    reference = nodes.pop("reference")
    if subject.slot not in MET_BY_KERNELS or subject.slot == "kernel":
        nodes = {"its own": subject.config["model"]["kernel"]}
    slow, asked = subject.with_model(kernel=reference).perturbed(), 0
    for name, node in nodes.items():
        fast = subject.with_model(kernel=node)
        here = find(node["_target_"]).accelerator in (None, "cpu")
        if here and node != reference and not fast.refused:
            _compare(name, fast.perturbed(), slow, subject.config["model"]["max_len"])
            asked += 1
    return None if asked else "it is the reference, or no other kernel takes it here"


def _compare(name: str, fast: Topology, slow: Topology, max_len: int) -> None:
    """Raise BrokenLaw where a kernel is not the reference."""
    inputs = ids()
    padding = torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1, LENGTH - 3 :] = padding[0, :2] = True
    document = (torch.arange(LENGTH) >= LENGTH // 3).long()[None]
    for tokens in (places(), places(padding=padding), places(start=7), places(document=document)):
        if tokens.extent > max_len:
            continue
        gap = (run(fast, inputs, tokens) - run(slow, inputs, tokens)).abs().max().item()
        require(gap < TIGHT, f"kernel {name} must equal the reference, but logits differ by {gap:.2g}.")
    (_, quick), (_, exact) = (gradients(model, inputs, places(padding=padding)) for model in (fast, slow))
    worst = max((quick[weight] - exact[weight]).abs().max().item() for weight in exact)
    require(worst < TIGHT, f"kernel {name} must equal the reference, but gradients differ by {worst:.2g}.")
