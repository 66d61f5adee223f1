"""Laws about numbers: shapes, finiteness, precision, gradients that are derivatives, and reproducible randomness."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from swapformer.conformance.subject import (
    LENGTH,
    VOCABULARY,
    Subject,
    gradients,
    ids,
    loss_of,
    require,
    require_finite,
    require_near,
    run,
)
from swapformer.model.topology import Topology
from swapformer.random import stream

STEP = 1e-7
"""Step of the difference quotients, by weight."""


def runs(subject: Subject) -> None:
    """A model with the part can be built, run and differentiated."""
    gradients(subject.perturbed(), ids())


def logits_are_finite(subject: Subject) -> None:
    """Logits have shape [B, T, V] and everything is finite, gradients too."""
    model, inputs = subject.perturbed(), ids()
    logits = run(model, inputs)
    require(
        logits.shape == (2, LENGTH, VOCABULARY),
        f"logits must be [B, T, V] = [2, {LENGTH}, {VOCABULARY}], but are {list(logits.shape)}.",
    )
    require(logits.isfinite().all(), "logits must be finite; look for a division or a logarithm without a floor.")
    _, grads = gradients(model, inputs)
    require_finite(grads, "gradients must be finite, but those of {names} are not.")


def low_precision_is_near(subject: Subject) -> None:
    """Logits in float32 are those in float64 to float32's precision, and those in bfloat16 are finite and near."""
    model, inputs = copy.deepcopy(subject.perturbed()), ids()
    exact = run(model, inputs)
    gap = ((run(model.float(), inputs) - exact).abs().max() / exact.abs().max()).item()
    require(gap < 1e-3, f"float32 must agree with float64, but logits differ by {gap:.2g} of the largest.")
    half = run(model.bfloat16(), inputs)
    require(half.dtype == torch.bfloat16, f"a bfloat16 model must give bfloat16 logits, but gives {half.dtype}.")
    _near("bfloat16", half, exact)


def autocast_is_near(subject: Subject) -> None:
    """Under autocast to bfloat16 logits are finite and near, and gradients are finite, in the weights' precision."""
    model, inputs = copy.deepcopy(subject.perturbed()).float(), ids()
    exact = run(model, inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _near("autocast", run(model, inputs), exact)
        _, grads = gradients(model, inputs)
    require_finite(grads, "gradients must be finite under autocast, but those of {names} are not.")
    narrow = [name for name, grad in grads.items() if grad.dtype != torch.float32]
    require(not narrow, f"gradients of float32 weights must be float32 under autocast, but those of {narrow} are not.")


def every_parameter_has_a_gradient(subject: Subject) -> None:
    """Every parameter gets a gradient that is not zero."""
    model = subject.perturbed()
    _, grads = gradients(model, ids())
    without = [name for name, _ in model.named_parameters() if name not in grads or not grads[name].any()]
    require(not without, f"every parameter must get a gradient, but {without} get none: they are unused.")


def gradients_are_derivatives(subject: Subject) -> None:
    """Along a random direction of all weights the training loss changes as its gradient says, to five digits.

    A second direction decides if the first one crosses a jump, such as another choice of the top k.
    """
    model, inputs = copy.deepcopy(subject.perturbed()).train(), ids()
    torch.manual_seed(0)
    _, grads = gradients(model, inputs)
    gaps = []
    for number in range(2):
        directions = {
            name: torch.randn(grad.shape, generator=stream("direction", number, name), dtype=torch.float64)
            for name, grad in grads.items()
        }
        expected = sum(float((grads[name] * direction).sum()) for name, direction in directions.items())
        size = sum(float(grad.square().sum()) for grad in grads.values()) ** 0.5
        found = _quotient(model, inputs, directions)
        if abs(found - expected) <= 1e-5 * size:
            return
        gaps.append((found, expected))
    found, expected = gaps[0]
    require(False, f"the loss must change as its gradient says, by {expected:.8g}, but it does by {found:.8g}.")


def evaluation_is_deterministic(subject: Subject) -> None:
    """In evaluation a model draws nothing: dropout is off, and two runs are bit-equal."""
    model, inputs = subject.perturbed(), ids()
    once = run(model, inputs)
    require(torch.equal(run(model, inputs), once), "two evaluations must be bit-equal: something draws at random.")
    dropped = run(subject.with_model(dropout=0.5).perturbed(), inputs)
    require_near(dropped, once, "dropout must be off in evaluation, but it changes logits by {gap}.")


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


def saved_weights_are_whole(subject: Subject) -> None:
    """A model of another seed that loads the saved weights gives the same logits: nothing it needs is left out."""
    model, inputs = subject.perturbed(), ids()
    other = Subject({**subject.config, "seed": subject.config["seed"] + 1}, subject.slot).build().eval()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    message = (
        "a model that loads another's weights must give its logits, but they differ by {gap}: register what it needs."
    )
    require_near(run(other, inputs), run(model, inputs), message)


def _quotient(model: Topology, inputs: Tensor, directions: dict[str, Tensor]) -> float:
    """(loss at w + STEP·d − loss at w − STEP·d) / (2·STEP), with the same randomness; the weights stay."""
    losses = []
    for sign in (1, -1):
        before = copy.deepcopy(model.state_dict())
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in directions:
                    parameter.add_(sign * STEP * directions[name])
        torch.manual_seed(0)
        with torch.no_grad():
            losses.append(float(loss_of(model, inputs)))
        model.load_state_dict(before)
    return (losses[0] - losses[1]) / (2 * STEP)


def _near(name: str, found: Tensor, exact: Tensor) -> None:
    require(found.isfinite().all(), f"logits must be finite in {name}.")
    gap = ((found.double() - exact).abs().mean() / exact.abs().mean()).item()
    require(gap < 0.3, f"{name} must be near full precision, but logits differ by {gap:.2g} of their mean size.")
