"""The law of taps: every place that a part states is there, has the axes that are stated, and can be overwritten."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from swapformer.conformance.subject import LENGTH, VOCABULARY, Subject, ids, require, run
from swapformer.model.taps import Site, record, replace
from swapformer.model.topology import Topology
from swapformer.random import stream

OWN = {"attention": ".attn.", "extension": ".attn.", "ffn": ".mlp.", "residual": ".hook_", "block": ".hook_"}
"""What the names of a part's own places hold, by its slot; those of a topology are all that belong to no layer."""


def places_hold(subject: Subject) -> str | None:
    """A forward comes by every place that is stated, with its axes; watching changes no bit, replacing something."""
    if subject.slot not in (*OWN, "topology"):
        return f"parts of {subject.slot} state no places of their own"
    model = subject.perturbed()
    sites = {site.name: site for site in model.sites()}
    plain = run(model, ids())
    with record(model) as seen:
        watched = run(model, ids())
    require(torch.equal(plain, watched), "a model that is watched must compute the same, bit for bit, but it does not.")
    require(
        not (silent := sorted(sites.keys() - seen.keys())),
        f"`tap` must be called at every place that `places` states, but it is not at {', '.join(silent[:3])}.",
    )
    sizes = {"B": 2, "D": model.dims.d_model, "H": model.dims.num_heads, "V": VOCABULARY}
    for name, value in seen.items():
        _has_axes(name, value, sites[name], dict(sizes), LENGTH // 2 if name.startswith("encoder.") else LENGTH)
    for name, value in seen.items():
        if _own(name, subject.slot) and sites[name].instead is None and value.is_floating_point():
            changes = not torch.equal(plain, _disturbed(model, name))
            require(changes, f"what replaces the value at {name} must take its place, but nothing changes.")
    return None


def _has_axes(name: str, value: Tensor, site: Site, sizes: Mapping[str, int], length: int) -> None:
    """Require the axes that a place states; letters of unknown size match any size."""
    letters, keys = site.axes.split(), LENGTH // 2 if ".cross_attn." in name else length
    known = {**sizes, "T": length, "Q": length, "K": keys}
    fits = len(letters) == value.dim() and all(
        known.get(letter, size) == size for letter, size in zip(letters, value.shape, strict=True)
    )
    require(fits, f"the value at {name} must have the axes {site.axes}, but it has the shape {tuple(value.shape)}.")


def _own(name: str, slot: str) -> bool:
    if slot == "topology":
        return not any(part.isdigit() for part in name.split("."))
    return OWN[slot] in name and ".0." in name


def _disturbed(model: Topology, name: str) -> Tensor:
    """The logits where the value at a place has noise on it."""

    def noisy(value: Tensor) -> Tensor:
        return value + torch.randn(value.shape, generator=stream("noise", name), dtype=value.dtype)

    with replace(model, {name: noisy}):
        return run(model, ids())
