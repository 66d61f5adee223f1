"""Laws of a step on a device, held where there is none: on torch's meta device, which stands for CUDA.

On CUDA a copy from the host waits for the device, and so does reading a value from it; some operations raise where
algorithms are deterministic, which is the default. What a step leaves alive is memory until the collector runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from swapformer.conformance.subject import (
    LENGTH,
    BrokenLaw,
    Subject,
    ids,
    loss_from,
    loss_of,
    make_tokens,
    require,
    require_near,
    source_of,
)
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology

_RAISES = frozenset(
    (
        *("adaptive_avg_pool2d_backward", "adaptive_avg_pool3d_backward", "adaptive_max_pool2d_backward"),
        *("avg_pool3d_backward", "bincount", "cdist_backward", "embedding_bag", "fractional_max_pool2d_backward"),
        *("fractional_max_pool3d_backward", "grid_sampler_2d_backward", "grid_sampler_3d_backward", "histc"),
        *("kthvalue", "logcumsumexp", "max_pool3d_with_indices_backward", "max_unpool2d", "max_unpool3d", "median"),
        *("nanmedian", "nll_loss2d_forward", "put", "reflection_pad1d_backward", "reflection_pad2d_backward"),
        *("reflection_pad3d_backward", "replication_pad1d_backward", "replication_pad2d_backward"),
        *("replication_pad3d_backward", "scatter_reduce", "upsample_bicubic2d_backward"),
        *("upsample_bilinear2d_backward", "upsample_linear1d_backward", "upsample_trilinear3d_backward"),
    )
)
"""Operations that raise on CUDA under `torch.use_deterministic_algorithms(True)` (its documentation, torch 2.13)."""
_FLOATS_RAISE = frozenset({"cumsum"})
"""Those that do so for floating point."""
_FROM_HOST = (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy)


def _name(func: Any) -> str:
    return str(func.overloadpacket.__name__).strip("_")


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among arguments, and in lists of them."""
    for each in values:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from _tensors(each)


class _Copies(TorchFunctionMode):
    """Notes tensors that are made of numbers of the host, and indices that the host holds."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _FROM_HOST and str(kwargs.get("device") or "cpu").startswith("meta"):
            self.found[f"torch.{func.__name__} of numbers"] = None
        if func is Tensor.new_tensor and args[0].is_meta and not kwargs.get("device"):
            self.found["new_tensor of numbers"] = None
        if func in (Tensor.__getitem__, Tensor.__setitem__) and args[0].is_meta:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(each, list | range) or (isinstance(each, Tensor) and not each.is_meta) for each in index):
                self.found["an index by a list, a range or a tensor of the host"] = None
        return func(*args, **kwargs)


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operations that raise where algorithms are deterministic, copies of tensors of the host, and waiting."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.raising: dict[str, None] = {}
        self.copied: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        given, name = list(_tensors((*args, *kwargs.values()))), _name(func)
        if name in _RAISES or (name in _FLOATS_RAISE and any(each.is_floating_point() for each in given)):
            self.raising[name] = None
        made = func(*args, **kwargs)
        host = [each for each in given if not each.is_meta]
        moved = name in ("to_copy", "copy")  # a number without axes is an argument of a kernel, unless it is moved
        on_device = host and any(each.is_meta for each in (*given, *_tensors([made])))
        if on_device and any(each.dim() or moved for each in host):
            self.copied[f"{name} of a tensor of the host"] = None
        if name == "isin" and len(args) > 1 and args[1].numel() >= 10 * args[0].numel() ** 0.145:
            self.copied["isin of so many values that it sorts them"] = None
        return made


def _inputs(model: Topology) -> tuple[Tensor, Tokens]:
    """A batch on the meta device."""
    tokens = make_tokens(LENGTH)
    tags = {name: torch.zeros(1, LENGTH, dtype=torch.int64, device="meta") for name in model.stack.tags}
    moved = tokens.channels(lambda values: values.to("meta"))
    moved["position"] = moved["order"]  # they are one tensor in a batch too
    return ids().to("meta"), replace(tokens, **moved, tags=tags)


def _watched(subject: Subject) -> tuple[_Copies, _Operations]:
    """Notes of a step on the meta device, of the second where a constant was copied in the first."""

    def watch() -> tuple[_Copies, _Operations]:
        model = subject.build().to("meta").train()
        given = _inputs(model)
        for _ in range(2):
            copies, operations = _Copies(), _Operations()
            with copies, operations:
                loss_of(model, *given).backward()  # type: ignore[no-untyped-call]
            if not (copies.found or operations.copied):
                break
        return copies, operations

    return subject.once("a step on the meta device", watch)


def _reads(subject: Subject) -> str | None:
    """The reason why some part of the model must read the device, as it states."""
    model = subject.perturbed()
    return next((str(why) for part in model.modules() if (why := getattr(part, "reads_device", ""))), None)


def nothing_waits_for_the_device(subject: Subject) -> str | None:
    """In a step nothing is copied from the host, and nothing is read from the device, unless the part says why."""
    if (why := subject.unavailable or _reads(subject)) is not None:
        return why
    try:
        copies, operations = _watched(subject)
    except (NotImplementedError, RuntimeError) as error:
        text = str(error).split("\n")[0]
        require(False, f"a step must not read values from the device, as .item() and sizes by content do ({text}).")
        raise
    found = [*copies.found, *operations.copied]
    require(not found, f"a step must wait for nothing and copy nothing from the host, but there is {', '.join(found)}.")
    return None


def deterministic_on_cuda(subject: Subject) -> str | None:
    """No operation raises on CUDA where algorithms are deterministic, forward and backward."""
    if subject.unavailable:
        return subject.unavailable
    operations = None
    if _reads(subject) is None:
        with suppress(NotImplementedError, RuntimeError):  # of a step that reads the device
            _, operations = _watched(subject)
    if operations is None:
        with (operations := _Operations()):
            loss_of(subject.build().train(), ids()).backward()  # type: ignore[no-untyped-call]
    found = ", ".join(operations.raising)
    require(not found, f"{found} raises on CUDA under deterministic algorithms; see `swapformer.model.ops`.")
    return None


def nothing_outlives_a_step(subject: Subject) -> str | None:
    """Once a step is over, its graph is gone without the collector: nothing that holds it is in a circle."""
    if subject.unavailable:
        return subject.unavailable
    model = subject.build().train()
    enabled = gc.isenabled()
    gc.disable()
    try:
        nodes = {name: _accumulator(held) for name, held in model.named_parameters() if held.requires_grad}
        for node in nodes.values():
            node.metadata["step"] = "this"
        loss_of(model, ids()).backward()  # type: ignore[no-untyped-call]
        nodes.clear()
        del node
        alive = [
            name
            for name, held in model.named_parameters()
            if held.requires_grad and _accumulator(held).metadata.get("step") == "this"
        ]
    finally:
        if enabled:
            gc.enable()
    require(not alive, f"the graph of a step must die with it, but that of {', '.join(alive[:4])} is kept.")
    return None


def compiles_to_one_graph(subject: Subject) -> str | None:
    """`torch.compile` takes a step as one graph, which gives the same loss.

    It takes seconds, so it is none of the laws that every examination holds. A residual that states `recomputes` has a
    backward of its own, and is refused beside `trainer.compile`.
    """
    if subject.unavailable:
        return subject.unavailable
    if getattr(subject.part, "recomputes", False):
        return "its backward is its own"
    torch._dynamo.reset()
    model, inputs = subject.build().train(), ids()
    tags = {name: torch.zeros(1, LENGTH, dtype=torch.int64) for name in model.stack.tags}
    tokens, source = replace(make_tokens(LENGTH), tags=tags), source_of(model, inputs)

    def step() -> Tensor:
        return loss_from(model, model(inputs, tokens, *source), inputs)

    losses = []
    try:
        for each in (torch.compile(step, backend="eager", fullgraph=True), step):
            torch.manual_seed(0)
            losses.append(each())
            losses[-1].backward()  # type: ignore[no-untyped-call]
    except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.TorchDynamoException) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise BrokenLaw(f"a step must compile to one graph, but torch says: {why}.") from error
    require_near(losses[0], losses[1], "the loss of a compiled step must be the same, but differs by {gap}.")
    return None


def _accumulator(parameter: nn.Parameter) -> Any:
    """The node of autograd that adds up a parameter's gradient; there is one as long as some graph holds it."""
    view = parameter.view_as(parameter)
    assert view.grad_fn is not None, "a parameter that is trained has a gradient"
    return view.grad_fn.next_functions[0][0]
