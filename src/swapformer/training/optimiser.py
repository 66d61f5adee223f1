"""Optimisers: which parameters are trained, which decay, and at which share of the learning rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from swapformer.errors import UsageError
from swapformer.model.layers import origin_of
from swapformer.model.stack import stacks
from swapformer.targets import make
from swapformer.training.parameter_selection import readout_parameters, select_parameters
from swapformer.training.scaling import Factors

OURS = ("freeze", "layer_decay", "scaling", "base")
"""Settings of `optim` that are the training's, whatever the optimiser."""


def make_optimiser(optim: Mapping[str, Any]) -> Callable[[Iterable[Any]], Optimizer]:
    """The optimiser that an `optim` node names, to be given its groups of parameters."""
    settings = {key: value for key, value in optim.items() if key not in OURS}
    return make({**settings, "_convert_": "all"}, Optimizer)


def freeze(model: nn.Module, optim: Mapping[str, Any]) -> None:
    """Leave the parameters that `optim.freeze` means as they are: no gradient, no step, no decay.

    Running averages of a batchnorm go on; dropout stays.

    Raises:
        UsageError: if an entry means nothing, or nothing would be trained.
    """
    frozen = select_parameters(model, optim["freeze"], "optim.freeze")
    parameters = dict(model.named_parameters())
    if not parameters.keys() - frozen:
        raise UsageError("`optim.freeze` must leave some parameters to train, but it means all of them.")
    for name in frozen:
        parameters[name].requires_grad_(False)


def parameter_groups(
    model: nn.Module, optim: Mapping[str, Any], scaled: Mapping[str, Factors] | None = None
) -> list[dict[str, Any]]:
    """The trained parameters by role and layer: matrices and tables with weight decay, biases and gains without.

    With `layer_decay` d, what lies n layers below the readout learns at d^n of the rate: the last layer at d, the
    first of L at d^L, embeddings at d^(L+1) (Bao et al. 2021, arXiv:2106.08254; ELECTRA 2020, arXiv:2003.10555).
    A model of the user's own may have a method `parameter_groups(optim)`, which gives torch's groups in their place.
    `scaled` are the factors by which rates, decay and ε follow the model's sizes (see `scaling`).
    """
    if (own := getattr(getattr(model, "module", None), "parameter_groups", None)) is not None:
        return _own_groups(model, own(dict(optim)))
    decay, rate = optim.get("weight_decay", 0.0), optim["layer_decay"]
    below = layers_below(model) if rate != 1 else {}
    scaled = scaled or {}
    groups: dict[tuple[int, bool, float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decays, own = origin_of(name, parameter).role.is_matrix, scaled.get(name, Factors())
            key = (below.get(name, 0), not decays, own.rate, own.epsilon)
            groups.setdefault(key, []).append(parameter)
    made = []
    for depth, spared, share, epsilon in sorted(groups):
        group = {"params": groups[depth, spared, share, epsilon], "weight_decay": 0.0 if spared else decay / share}
        if rate != 1 or scaled:
            group["lr"] = optim["lr"] * rate**depth * share
        if scaled and "eps" in optim:
            group["eps"] = optim["eps"] * epsilon
        made.append(group)
    return made


def _own_groups(model: nn.Module, groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups that a model of the user's own made, which must hold each trained parameter once."""
    made = [{**group, "params": [held for held in group["params"] if held.requires_grad]} for group in groups]
    found = [id(held) for group in made for held in group["params"]]
    lost = [name for name, held in model.named_parameters() if held.requires_grad and id(held) not in found]
    if lost or len(found) != len(set(found)):
        what = f"{lost[0]} is in none" if lost else "one is in two"
        raise UsageError(f"`parameter_groups` of a model must hold each trained parameter once, but {what}.")
    return [group for group in made if group["params"]]


def layers_below(model: nn.Module) -> dict[str, int]:
    """For each parameter, how many layers below the readout of its stack it lies: 1 for a stack's last layer."""
    found = dict.fromkeys(readout_parameters(model), 0)
    counts = {name: len(stack.layers) for name, stack in stacks(model).items()}
    for name, _ in model.named_parameters():
        if name in found:
            continue
        stack = next((prefix for prefix in counts if name.startswith(f"{prefix}.")), None)
        if stack is None:
            found[name] = 1 + max(counts.values())
        elif name.startswith(f"{stack}.final_norm."):
            found[name] = 0
        elif name.startswith(f"{stack}.layers."):
            found[name] = counts[stack] - int(name.removeprefix(f"{stack}.layers.").partition(".")[0])
        else:
            found[name] = 1 + counts[stack]
    return found
