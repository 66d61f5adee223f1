"""A training step as a CUDA graph: the kernels of forward and backward are recorded once and then replayed.

A small model's step is mostly the time that Python takes to launch its kernels. A graph launches all of them at once.
It runs the same kernels on the same memory, so a replayed step has the bits of one that Python computes, and a trial's
id does not change. That is checked, not believed: the first replays are compared with the step as Python computes it.

What a recording cannot hold: a number of Python that changes from step to step, and a branch on what a tensor holds.
The latter is refused while recording. Where steps cannot be replayed Python computes them, and the trial's record says
why.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from swapformer.training.data import BatchShare, drawn_position_range
from swapformer.training.step_inputs import flatten, inputs_of, restore, signature

log = logging.getLogger(__name__)

COMPUTED_FIRST = 2
"""Steps of a shape that Python computes before it is recorded: what is made at its first use is then there."""
CHECKED = 2
"""Replays of a recording that are compared with the step as Python computes it."""
MOST_SHAPES = 16
"""Shapes of batches for which steps are recorded."""


class Recording(Protocol):
    """What a function computed on a device, to be computed again from what its tensors hold then."""

    def __init__(self, function: Callable[[], Any]) -> None: ...

    outputs: Any
    """What the function returned; every replay writes its tensors anew."""

    def replay(self) -> None:
        """Compute the outputs again."""


class CudaRecording:
    """A CUDA graph of what a function launches. Its draws go on from the state of CUDA's generator at each replay."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self.outputs = function()

    def replay(self) -> None:
        self._graph.replay()


RECORDINGS: dict[str, type[Recording]] = {"gpu": CudaRecording}
"""Accelerator → how its steps are recorded."""


class CannotRecord(Exception):
    """Raised by what a recording cannot hold."""


class RefuseReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises CannotRecord where Python reads what a tensor holds, or a shape follows from it."""

    _TAGS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_number = func is torch.ops.aten.index.Tensor and not any(_is_mask(held) for held in args[1])
        if not by_number and not self._TAGS.isdisjoint(func.tags):
            raise CannotRecord(f"{func.overloadpacket.__name__.strip('_')} reads what a tensor holds")
        return func(*args, **(kwargs or {}))


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


@dataclass(frozen=True, eq=False)
class StepResult:
    """The losses of a step, as `TrialModule.objective` gives them, and the gradients of what is trained."""

    part: Tensor
    loss: Tensor
    gradients: Sequence[Tensor | None]

    def tensors(self) -> list[Tensor]:
        """All of them."""
        return [self.part, self.loss, *(held for held in self.gradients if held is not None)]


class RecordedStep:
    """The step of a module for batches of one shape.

    Args:
        module: a TrialModule.
        share: a part of a batch; others of its shapes take its place.
        extents: one more than the largest position that any of them has.
        record: how a device records.
    """

    def __init__(self, module: Any, share: BatchShare, extents: Mapping[str, int], record: type[Recording]) -> None:
        (flat, self._form), _ = flatten(share)
        self._held = [tensor.clone() for tensor in flat]
        static = restore(self._held, self._form)
        self._recording = record(lambda: compute(module, static, extents))
        self.checked = 0

    def replay(self, share: BatchShare, seed: int) -> StepResult:
        """The step for a batch. The gradients lie in memory that the next replay writes again."""
        (flat, _), _ = flatten(share)
        for held, given in zip(self._held, flat, strict=True):
            held.copy_(given, non_blocking=True)
        torch.manual_seed(seed)
        self._recording.replay()
        found: StepResult = self._recording.outputs
        return StepResult(found.part.clone(), found.loss.clone(), found.gradients)


def compute(module: Any, share: BatchShare, extents: Mapping[str, int]) -> StepResult:
    """The step as Python computes it; nothing is read from a tensor but by the model's parts."""
    part, loss = module.objective(share, inputs_of(share.batch, extents))
    trained = [held for held in module.model.parameters() if held.requires_grad]
    with torch.autocast(loss.device.type, enabled=False):  # the backward pass runs outside of it
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    return StepResult(part, loss.detach(), gradients)


class StepGraphs:
    """Computes the steps of a training by replaying them, as far as that gives what Python computes.

    Args:
        record: how the device records.
    """

    def __init__(self, record: type[Recording]) -> None:
        self._record = record
        self._steps: dict[object, RecordedStep] = {}
        self._seen: Counter[object] = Counter()
        self._addresses: tuple[int, ...] = ()
        self._gradients: list[tuple[nn.Parameter, Tensor | None]] | None = None
        self.gave_up = False

    def step(self, module: Any, share: BatchShare, seed: int) -> tuple[Tensor, Tensor] | None:
        """What `TrialModule.objective` gives for a batch; `hand_over` then gives the gradients.

        None where Python has to compute it.
        """
        if self.gave_up:
            return None
        self._forget_what_moved(module.model)
        extents = _extents(module.model, share)
        key = signature(module, share), tuple(sorted(extents.items()))
        self._seen[key] += 1
        if self._seen[key] <= COMPUTED_FIRST:
            if len(self._seen) > MOST_SHAPES:
                self._give_up(module, f"its batches have more than {MOST_SHAPES} shapes")
            return None
        try:
            found = self._recorded(key, module, share, extents, seed)
        except Exception as error:
            self._give_up(module, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
            return None
        trained = [held for held in module.model.parameters() if held.requires_grad]
        self._gradients = list(zip(trained, found.gradients, strict=True))
        return found.part, found.loss

    def hand_over(self) -> bool:
        """Give each weight the gradient of the step that was replayed; False where none was."""
        if self._gradients is None:
            return False
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        self._gradients = None
        return True

    def _recorded(
        self, key: object, module: Any, share: BatchShare, extents: Mapping[str, int], seed: int
    ) -> StepResult:
        require_no_hooks(module.model)
        step = self._steps.get(key)
        if step is not None and step.checked == CHECKED:
            return step.replay(share, seed)
        before = _copies(module.model.buffers())
        try:
            torch.manual_seed(seed)
            with RefuseReads():  # type: ignore[no-untyped-call]
                expected = compute(module, share, extents)
            after = _copies(module.model.buffers())
            _restore(module.model, before)
            if step is None:
                step = self._steps[key] = RecordedStep(module, share, extents, self._record)
                _restore(module.model, before)  # a device that computes while it records has changed them
            found = step.replay(share, seed)
            if not _equal([*found.tensors(), *module.model.buffers()], [*expected.tensors(), *after]):
                raise CannotRecord("a replayed step differs from the same step as Python computes it")
        except Exception:
            _restore(module.model, before)
            raise
        step.checked += 1
        return expected

    def _forget_what_moved(self, model: nn.Module) -> None:
        """Start anew when weights lie in other memory than they did: a recording holds addresses."""
        addresses = tuple(held.data_ptr() for held in (*model.parameters(), *model.buffers()))
        if addresses != self._addresses:
            self._addresses = addresses
            self._steps.clear()
            self._seen.clear()

    def _give_up(self, module: Any, why: str) -> None:
        """From now on Python computes every step."""
        self.gave_up = True
        self._steps.clear()
        tell(module, why)


def _extents(model: nn.Module, share: BatchShare) -> dict[str, int]:
    """One more than the largest position that a batch may have; that of this one where an encoding depends on it."""
    _, own = flatten(share)
    drawn_from = drawn_position_range(model)
    if drawn_from is None or any(getattr(part, "depends_on_length", False) for part in model.modules()):
        return own
    return dict.fromkeys(own, drawn_from)


def require_no_hooks(model: nn.Module) -> None:
    """Raise CannotRecord for hooks on modules or weights: a replay would not call them."""
    of_modules = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    of_weights = ("_backward_hooks", "_post_accumulate_grad_hooks")
    places = [*((part, of_modules) for part in model.modules()), *((held, of_weights) for held in model.parameters())]
    if any(getattr(place, name, None) for place, names in places for name in names):
        raise CannotRecord("the model has hooks, which a replay would not call")


def _copies(tensors: Iterator[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


def _restore(model: nn.Module, buffers: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for held, value in zip(model.buffers(), buffers, strict=True):
            held.copy_(value)


def _equal(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Whether tensors are equal bit by bit; nan equals nan."""
    pairs = zip(found, expected, strict=True)
    return all(torch.equal(*pair) or torch.allclose(*pair, rtol=0, atol=0, equal_nan=True) for pair in pairs)


def step_graphs(module: Any) -> StepGraphs | None:
    """What replays the steps of a training; None where that is not asked for, or not possible, which a note says."""
    config = module.config["trainer"]
    record = RECORDINGS.get(config.get("accelerator"))
    if record is None or not config.get("graph", False):
        return None
    if reasons := [*_obstacles(config), *(["trials are folded"] if module.seat is not None else [])]:
        tell(module, ", ".join(reasons))
        return None
    return StepGraphs(record)


_WITHOUT: Mapping[str, Any] = {
    "devices": 1,
    "accumulate_grad_batches": 1,
    "gradient_checkpointing": False,
    "compile": False,
    "detect_anomaly": False,
}
"""Settings of the trainer with which alone steps are replayed."""


def _obstacles(trainer: Mapping[str, Any]) -> Iterator[str]:
    for key, value in _WITHOUT.items():
        if trainer.get(key, value) != value:
            yield f"trainer.{key}={str(trainer[key]).lower()}"
    if trainer["precision"] == "16-mixed":
        yield "trainer.precision=16-mixed scales the loss anew at each step"


def tell(module: Any, why: str) -> None:
    """Note in a trial's record that its steps are not replayed, once."""
    note = f"its steps were not replayed from a CUDA graph ({why})"
    if note not in module.notes:
        log.info("%s", note)
        module.notes = (*module.notes, note)
