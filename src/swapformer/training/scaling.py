"""Rates, decay and starts that transfer to other sizes: μP and CompleteP, by each parameter's declared role.

A learning rate is chosen at a small size, the base. A model that is m times as wide, whose heads are h times as wide
and which has l times as many layers, then starts from the base's deviation, learns at the rate and has Adam's ε times

    role                                start      rate       ε
    tables, biases, gains               1          1          1/m
    matrices from width to width        m^−½       1/m        1/m
    head, router                        1/m        1/m        1
    query and its bias, further         h^−½       h^−½       h^½
    within layers (completep), further                        1/l
    end of a branch, further            1/l        1/l        l

and weight decay divided by its rate, so that a step shrinks a weight as it does at the base. m is the ratio of a
matrix's fan_in to that of the same matrix at the base, so a width that stays as it is counts as it is.

The table is that of Yang et al. 2022 (Tensor Programs V, arXiv:2203.03466, table 3, for Adam) and, for depth, of Dey
et al. 2025 (CompleteP, arXiv:2505.01618, table 1, α = 1). Both have factors in the forward pass: 1/m on the logits, 1/d
instead of 1/√d on scores, 1/l on each branch. With Adam, a factor c on what a matrix gives is the same as its start
and rate times c and its ε divided by c, exactly, so these factors stand here and no part knows of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from swapformer.model.init import Init
from swapformer.model.init.base import deviation
from swapformer.model.layers import Role, origin_of, roles_of_leaf
from swapformer.model.stack import stacks
from swapformer.model.topology import Topology

SIZES: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "mup": ("d_model", "num_heads"),
    "completep": ("d_model", "num_heads", "num_layers"),
}
"""What `optim.base` states for each `optim.scaling`."""

MATRICES = (
    *(Role.QUERY, Role.KEY, Role.VALUE, Role.LATENT, Role.ATTENTION_OUT),
    *(Role.FFN_IN, Role.FFN_GATE, Role.FFN_OUT, Role.GATE, Role.POOLER),
)
READOUTS = (Role.HEAD, Role.ROUTER)
VECTORS = (Role.TOKEN_EMBEDDING, Role.SEGMENT_EMBEDDING, Role.POSITION_EMBEDDING, Role.BIAS, Role.GAIN)


@dataclass(frozen=True)
class Factors:
    """The factors of a parameter's start, as the present scheme draws it, of its learning rate and of Adam's ε."""

    start: float = 1.0
    rate: float = 1.0
    epsilon: float = 1.0

    def times(self, start: float, rate: float, epsilon: float) -> Factors:
        return Factors(self.start * start, self.rate * rate, self.epsilon * epsilon)


def factors(here: Topology, base: Topology, init: Init, init_at_base: Init, deeper: float | None) -> dict[str, Factors]:
    """The factors of each parameter, by name.

    Args:
        here, base: the model, and the same one at the base's width with as many layers, so that names agree.
        init, init_at_base: the scheme that starts the model, and the one that starts it at the base.
        deeper: l, how many times as many layers there are; None where depth does not scale (μP).
    """
    at_base = dict(base.named_parameters())
    wider, wider_heads = here.dims.d_model / base.dims.d_model, here.dims.head_dim / base.dims.head_dim
    layers = tuple(f"{name}.layers." for name in stacks(here))
    found = {}
    for name, parameter in here.named_parameters():
        origin, small = origin_of(name, parameter), origin_of(name, at_base[name])
        leaf = next(roles_of_leaf(here, name), origin.role)
        if origin.role in MATRICES:
            ratio = origin.fan_in / small.fan_in
            made = Factors(ratio**-0.5, 1 / ratio, 1 / wider)
        elif origin.role in READOUTS:
            ratio = origin.fan_in / small.fan_in
            made = Factors(1 / ratio, 1 / ratio)
        else:
            made = Factors(epsilon=1.0 if leaf in READOUTS else 1 / wider)
        if leaf is Role.QUERY:
            made = made.times(wider_heads**-0.5, wider_heads**-0.5, wider_heads**0.5)
        if deeper is not None and name.startswith(layers):
            made = made.times(1, 1, 1 / deeper)
            if leaf.ends_branch:
                made = made.times(1 / deeper, 1 / deeper, deeper)
        now = deviation(init, origin)
        found[name] = made.times(deviation(init_at_base, small) / now if now else 1.0, 1, 1)
    return found


def unstated(here: Topology, base: Topology) -> list[str]:
    """The roles of parameters for which the table has no row, although what they map from or to is wider here."""
    at_base = dict(base.named_parameters())
    found = set()
    for name, parameter in here.named_parameters():
        if origin_of(name, parameter).role not in (*MATRICES, *READOUTS, *VECTORS) and (
            parameter.shape != at_base[name].shape
        ):
            found.add(str(origin_of(name, parameter).role))
    return sorted(found)
