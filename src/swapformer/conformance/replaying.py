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
from swapformer.training.inputs import model_inputs
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
    computed, replayed = module_of(noisy_model(small, 0)), module_of(noisy_model(small, 0))
    graphs = StepGraphs(OperationRecording)
    for step in range(STEPS):
        share = share_of(computed.model, 0, step)
        torch.manual_seed(step)
        _, loss = computed.objective(share, model_inputs(share.batch))
        computed.model.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        update(computed.model)
        found = graphs.step(replayed, share, step)
        if found is None:
            torch.manual_seed(step)
            _, loss = replayed.objective(share, model_inputs(share.batch))
            replayed.model.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            graphs.hand_over()
        update(replayed.model)
        gap = _gap(computed.model, replayed.model)
        require(
            gap == 0,
            f"a replayed step must change the weights as one that Python computes, but after step {step + 1} they "
            f"differ by {gap:.2g}: keep what changes from step to step in tensors, not in numbers of Python.",
        )
    return replayed.notes[0] if graphs.gave_up else None


def _gap(one: nn.Module, other: nn.Module) -> float:
    """The largest difference between the weights and buffers of two models."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((mine.double() - theirs.double()).abs().max()) for mine, theirs in pairs if mine.numel())
