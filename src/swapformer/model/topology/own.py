"""A whole model of the user's own instead of the slots: any module from token ids to logits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from swapformer.interface import MAIN
from swapformer.model.cache import Cache
from swapformer.model.init import Init
from swapformer.model.layers import Origin, Role, declare
from swapformer.model.plan import ModelPlan
from swapformer.model.taps import Site
from swapformer.model.tokens import Tokens
from swapformer.model.topology.base import Topology
from swapformer.random import stream, stream_seed


class NoLayers:
    """The stack of a model without layers that we know: none can be named, and nothing is cached."""

    layers: Sequence[nn.Module] = ()
    positions: Mapping[str, nn.Module] = MappingProxyType({})
    tags: frozenset[str] = frozenset()
    can_cache = False

    def __init__(self, limit: float) -> None:
        self.limit = limit


class Own(Topology):
    """Any module from token ids [B, T] to logits [B, T, V], or to an object with `.logits` or a mapping with `logits`.

    It is made by `module(**settings)`, which is given `vocab_size` and `max_len` where it takes arguments of these
    names. Its weights are those that its constructor draws, under the trial's seed. A forward that takes
    `attention_mask` is given one, 1 at tokens and 0 at padding; padding before a row's first token is moved behind its
    last, so that a model that counts positions from 0 needs no mask. Each of its modules is a place to watch, by its
    path.

    Args:
        plan: the sizes of the task; the slots' parts are not used.
        module: the class or function that makes the module.

    Raises:
        ValueError: if it makes no module, or one without parameters, and in a forward for another shape.
    """

    has_slots: ClassVar[bool] = False
    stack: NoLayers  # type: ignore[assignment]

    def __init__(self, plan: ModelPlan, *, module: Callable[..., Any]) -> None:
        nn.Module.__init__(self)
        self.dims, self.interface, self.depth = plan.dims, plan.interface, plan.depth(plan.dims)
        self._early: list[tuple[Tensor, Tokens]] = []
        self.layers_passed: Tensor | None = None
        self._constructor = module
        told = {"vocab_size": plan.interface.vocab_size, "max_len": plan.dims.max_len}
        self._told = {name: value for name, value in told.items() if name in _parameters(module)}
        object.__setattr__(self, "stack", NoLayers(plan.dims.max_len if "max_len" in self._told else float("inf")))
        self._make(0)

    def start(self, init: Init, seed: int, starts: Mapping[str, float] | None = None) -> None:
        """Have the constructor draw the weights under the trial's seed; no scheme redraws them."""
        self._make(seed)

    def _make(self, seed: int) -> None:
        """The module as its constructor makes it on the CPU under a seed, moved to where models are made now."""
        here, constructor = torch.empty(0).device, _name(self._constructor)
        given = getattr(self._constructor, "keywords", {})
        takes = _parameters(self._constructor)
        if unknown := [name for name in given if name not in takes and "**" not in takes]:
            raise ValueError(f"model.module has no setting {unknown[0]!r}: {constructor} takes {', '.join(takes)}.")
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(stream_seed("own model", seed))
            try:
                made = self._constructor(**{name: value for name, value in self._told.items() if name not in given})
            except ValueError:
                raise
            except Exception as error:
                line = f"{type(error).__name__}: {error}".splitlines()[0]
                raise ValueError(
                    f"model.module must be made of its settings, but {constructor} raised {line}"
                ) from error
        if not isinstance(made, nn.Module):
            raise ValueError(f"model.module must make a torch.nn.Module, but {constructor} gave {type(made).__name__}.")
        if not any(True for _ in made.parameters()):
            raise ValueError(f"model.module must have parameters to train, but {type(made).__name__} has none.")
        self._masked = "attention_mask" in _parameters(made.forward)
        self.module = made.to(here)
        self.notes = (
            f"the weights were drawn by the constructor of {type(made).__name__} under the seed: arms of other models "
            "do not share their start",
            *getattr(made, "notes", ()),
        )
        for parameter in self.module.parameters():
            declare(parameter, _origin(parameter))
        for name, part in self.module.named_modules():
            part.register_forward_hook(_Tap(self, f"module.{name}" if name else "module"))

    def forward(
        self,
        inputs: Tensor,
        tokens: Tokens | None = None,
        source: Tensor | None = None,
        source_tokens: Tokens | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        return self.tap("hook_logits", self._logits(inputs, None if tokens is None else tokens.padding))

    def answers(
        self,
        inputs: Tensor,
        tokens: Tokens | None = None,
        source: Tensor | None = None,
        source_tokens: Tokens | None = None,
    ) -> dict[str, Tensor]:
        return {MAIN: self(inputs, tokens)}

    def _logits(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        if padding is None:
            return self._call(inputs, None)
        rows, length = inputs.shape
        padding = padding.expand(rows, length)
        place = torch.arange(length, device=inputs.device)
        first = padding.long().cumprod(-1).sum(-1, keepdim=True)  # padding before the row's first token
        forth, back = (place + first) % length, (place - first) % length
        logits = self._call(inputs.gather(1, forth), padding.gather(1, forth))
        return logits.gather(1, back[..., None].expand_as(logits))

    def _call(self, inputs: Tensor, padding: Tensor | None) -> Tensor:
        given = {} if padding is None or not self._masked else {"attention_mask": (~padding).long()}
        found: Any = self.module(inputs, **given)
        if not isinstance(found, Tensor):
            found = found["logits"] if isinstance(found, Mapping) else getattr(found, "logits", found)
        expected = (*inputs.shape, self.interface.vocab_size)
        if not isinstance(found, Tensor) or found.shape != expected:
            what = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(
                f"model.module must give logits [B, T, V] = {list(expected)}, or an object with `.logits` of that "
                f"shape, but {type(self.module).__name__} gave {what}."
            )
        return found

    def complaint(self, length: int, *, looks_ahead: bool) -> str | None:
        """The fault that some forwards on the CPU show in the module; None if there is none.

        Args:
            length: of the sequences that are tried.
            looks_ahead: whether a place may be told of later ones.
        """
        name = type(self.module).__name__
        state = {key: held.clone() for key, held in self.module.state_dict().items()}
        self.eval()
        try:
            gap = self._told_of_later_tokens(length)
        except ValueError as error:
            return str(error)
        except Exception as error:
            line = f"{type(error).__name__}: {error}".splitlines()[0]
            return f"model.module must be called with token ids [B, T] and nothing else, but {name} raised {line}"
        if any(not torch.equal(held, state[key]) for key, held in self.module.state_dict().items()):
            return f"a forward in evaluation must leave the weights as they are, but {name} changes its own."
        if not looks_ahead:
            # At the start a branch or a head may be zero, and show nothing that it is told.
            generator = stream("own model", "moved")
            with torch.no_grad(), suppress(Exception):
                for weight in self.module.parameters():
                    if weight.is_floating_point():
                        weight.add_(0.1 * torch.randn(weight.shape, generator=generator).to(weight))
                gap = max(gap, self._told_of_later_tokens(length))
            for key, held in self.module.state_dict().items():
                held.copy_(state[key])
        if not looks_ahead and not gap < _SAME:
            return (
                f"the task predicts each next token, but in {name} later tokens change earlier logits by {gap:.2g} of "
                "the largest, so each place is shown its answer; mask what lies ahead, or add allow=[future] to study "
                "the leak."
            )
        return None

    def _told_of_later_tokens(self, length: int) -> float:
        """The largest change of a logit as all tokens from some place behind it on change, over the largest logit.

        Row t of one batch has other tokens from place t on, for every place t of `length`, so that a model that reads
        in both directions within blocks is found at any border.
        """
        length = max(length, 2)
        ids_T = torch.randint(self.interface.vocab_size, (length,), generator=stream("own model"))
        changed = torch.ones(length, length, dtype=torch.bool).triu()
        changed[0] = False
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = self((ids_T + changed.long()) % self.interface.vocab_size)
        apart = (logits - logits[:1]).abs().amax(-1).masked_fill(changed, 0)
        return float(apart.max() / logits[0].abs().max().clamp(min=1e-30))

    def sites(self) -> Iterator[Site]:
        for name, _ in self.module.named_modules():
            path = f"module.{name}" if name else "module"
            yield Site(path, self, path, "…")
        yield self._answer_site()

    def example(
        self, rows: int, length: int, device: torch.device | str
    ) -> tuple[Tensor, Tokens, Tensor | None, Tokens | None]:
        inputs = torch.zeros(rows, length, dtype=torch.int64, device=device)
        return inputs, Tokens.of(length, device=device), None, None


_SAME = 1e-4
"""The largest change of logits, as a share of the largest one, that rounding explains."""


class _Tap:
    """Shows what a module computes, if it is one tensor, to those who watch its path; copied with its model."""

    def __init__(self, owner: Own, path: str) -> None:
        self.owner, self.path = owner, path

    def __call__(self, module: nn.Module, given: Any, found: Any) -> Any:
        return self.owner.tap(self.path, found) if isinstance(found, Tensor) else found


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's arguments; ** where it takes any."""
    found = inspect.signature(getattr(function, "func", function)).parameters.values()
    return tuple("**" if each.kind is each.VAR_KEYWORD else each.name for each in found)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(getattr(function, "func", function), "__name__", function))


def _origin(parameter: nn.Parameter) -> Origin:
    """A matrix or table decays, a vector does not: nothing else is known of a parameter of another's."""
    if parameter.ndim < 2:
        return Origin(Role.VECTOR, 1, 1)
    return Origin(Role.MATRIX, parameter[0].numel(), parameter.shape[0])
