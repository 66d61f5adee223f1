"""The law of replaying: steps that are recorded once and then replayed train as those that Python computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from swapformer.conformance.folding import module_of, noisy_model, share_of, update
from swapformer.conformance.subject import Subject, require
from swapformer.training.averaging import Weights
from swapformer.training.data import BatchShare
from swapformer.training.inputs import model_inputs
from swapformer.training.module import TrialModule
from swapformer.training.step_graph import CHECKED, COMPUTED_FIRST, StepGraphs

STEPS = COMPUTED_FIRST + CHECKED + 2
"""Steps of the trainings that are compared: the last two are replays that nothing checks."""


class OperationRecording:
    """What a CUDA graph is to a GPU, of torch's operations on any device: each is called again on the same tensors.

    Nothing of Python runs in a replay: numbers, branches and shapes are those of the recording.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        with _Operations() as held:
            self.outputs = function()
        self._calls = held.calls

    def replay(self) -> None:
        device = self.outputs.loss.device.type
        with torch.no_grad(), torch.autocast(device, enabled=False):
            for func, args, kwargs, results in self._calls:
                for result, held in zip(tree_iter(func(*args, **kwargs)), results, strict=True):
                    if isinstance(held, Tensor) and result.data_ptr() != held.data_ptr():
                        held.copy_(result)


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation with its arguments and results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, Any, Any, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        alone = tree_map_only(Tensor, Tensor.detach, (args, kwargs, found))
        self.calls.append((func, *alone[:2], list(tree_iter(alone[2]))))
        return found


def replaying_changes_nothing(subject: Subject) -> str | None:
    """A training whose steps are replayed has the weights of one whose steps Python computes, bit by bit."""
    if subject.slot == "init":
        return "weights are drawn before anything is recorded"
    small = subject.with_model(num_layers=min(2, subject.config["model"]["num_layers"]), dropout=0.1)
    small = small.with_model(dropout=0.0) if small.refused else small
    start = noisy_model(small, 0).state_dict()
    computed, replayed = _module(small, start), _module(small, start)
    graphs = StepGraphs(OperationRecording)
    for step in range(STEPS):
        share = share_of(computed.model, 0, step)
        _compute(computed, share, step)
        if graphs.step(replayed, share, step) is None:
            _compute(replayed, share, step)
        else:
            graphs.hand_over()
            update(replayed.model)
        gap = _gap(computed.model, replayed.model)
        if gap and not _repeats(small, start, computed.model, step + 1):
            return "its steps do not repeat themselves, replayed or not: see training_steps_are_repeatable"
        require(
            gap == 0,
            f"a replayed step must change the weights as one that Python computes, but after step {step + 1} they "
            f"differ by {gap:.2g}: keep what changes from step to step in tensors, not in numbers of Python.",
        )
    return replayed.notes[0] if graphs.gave_up else None


def _module(subject: Subject, start: Weights) -> TrialModule:
    model = noisy_model(subject, 0)
    model.load_state_dict(start)
    return module_of(model)


def _compute(module: TrialModule, share: BatchShare, step: int) -> None:
    """A step as Python computes it."""
    torch.manual_seed(step)
    _, loss = module.objective(share, model_inputs(share.batch))
    module.model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    update(module.model)


def _repeats(subject: Subject, start: Weights, model: nn.Module, steps: int) -> bool:
    """Whether another training of as many steps, all of which Python computes, comes to the weights of `model`."""
    again = _module(subject, start)
    for step in range(steps):
        _compute(again, share_of(again.model, 0, step), step)
    return _gap(model, again.model) == 0


def _gap(one: nn.Module, other: nn.Module) -> float:
    """The largest difference between the weights and buffers of two models."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((mine.double() - theirs.double()).abs().max()) for mine, theirs in pairs if mine.numel())
