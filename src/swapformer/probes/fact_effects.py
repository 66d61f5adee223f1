"""The causes of answers to questions of facts: scaled units, silenced heads, restored updates, edited matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from swapformer.interface import MAIN
from swapformer.model import taps
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.probes.head_pruning import OUTPUTS, silence
from swapformer.task.recall import FactRecall
from swapformer.training.data import positions_of

Functions = Mapping[str, taps.Function]


def answer_logits(model: Topology, inputs_NT: Tensor, functions: Functions | None = None) -> Tensor:
    """The logits of what follows the last token of each question, float64 [N, V], with some values replaced."""
    with taps.replace(model, dict(functions or {})):
        length = inputs_NT.shape[1]
        places = positions_of(model, length, "facts")
        tokens = Tokens.of(length, position=None if places is None else places[None])
        logits: Tensor = model.answers(inputs_NT, tokens)[MAIN]
    return logits[:, -1].double()


def probability(logits_NV: Tensor, answers_N: Tensor) -> Tensor:
    """The probability of each answer, [N]."""
    return logits_NV.softmax(-1).gather(1, answers_N[:, None]).squeeze(1)


def log_odds(logits_NV: Tensor, answers_N: Tensor) -> Tensor:
    """ln p − ln (1 − p) of each answer, [N]."""
    right = logits_NV.gather(1, answers_N[:, None])
    others = logits_NV.scatter(1, answers_N[:, None], -torch.inf)
    return right.squeeze(1) - others.logsumexp(-1)


def attributions(
    model: Topology, inputs_NT: Tensor, answers_N: Tensor, sites: Sequence[str], steps: int
) -> dict[str, Tensor]:
    """The part of each hidden unit in the probability of the answer: for each layer's place [N, F].

    Σ_t a_t ∫₀¹ ∂p/∂a_t(α) dα along a · α for the layer's units together, all other layers computing on from them: the
    integrated gradients of knowledge neurons (Dai et al. 2022, arXiv:2104.08696, equation 2). Summed over the units
    they are p − p without the layer's units, up to the error of the sum over α.

    Args:
        sites: places of hidden units.
        steps: of the sum over α, by the midpoint rule.
    """
    with taps.record(model, *sites) as seen:
        answer_logits(model, inputs_NT)
        hidden = {site: seen[site].detach() for site in sites}
    found = {}
    for site, value_NTF in hidden.items():
        total = torch.zeros_like(value_NTF)
        for step in range(steps):
            with torch.enable_grad():
                scaled = (value_NTF * (step + 0.5) / steps).requires_grad_()
                p = probability(answer_logits(model, inputs_NT, {site: partial(_instead, scaled)}), answers_N)
                total += torch.autograd.grad(p.sum(), scaled)[0]
        found[site] = (value_NTF * total / steps).double().sum(1)
    return found


def scaled_units(factors: Mapping[str, Tensor]) -> dict[str, taps.Function]:
    """Functions that multiply the hidden units at each place, [B|1, F], at every token."""
    return {site: partial(_scale, by) for site, by in factors.items()}


def _scale(by_BF: Tensor, a_BTF: Tensor) -> Tensor:
    return a_BTF * by_BF[:, None, :].to(a_BTF.dtype)


def _instead(value: Tensor, _: Tensor) -> Tensor:
    return value


def fixed(values: Mapping[str, Tensor]) -> dict[str, taps.Function]:
    """Functions that put values of another forward instead of those of this one."""
    return {site: partial(_instead, value) for site, value in values.items()}


def rank_one(hidden: str, out: str, keys_BF: Tensor, values_BD: Tensor) -> dict[str, taps.Function]:
    """The layer whose matrix W₂ becomes W₂ + v kᵀ, one for each row or one for all: its update gains v (k·a).

    Nothing may stand between W₂ and `out`: no norm inside the branch.

    Args:
        hidden, out: the places of the hidden units a and of the layer's update.
        keys_BF: k, [B|1, F].
        values_BD: v, [B|1, D].
    """
    held: list[Tensor] = []

    def keep(a_BTF: Tensor) -> Tensor:
        held[:] = [a_BTF]
        return a_BTF

    def add(update_BTD: Tensor) -> Tensor:
        along_BT = (held[0] * keys_BF[:, None, :].to(held[0].dtype)).sum(-1)
        return update_BTD + along_BT[:, :, None] * values_BD[:, None, :].to(update_BTD.dtype)

    return {hidden: keep, out: add}


def selective_keys(keys_NF: Tensor, others_MF: Tensor, ridge: float) -> Tensor:
    """C⁻¹k / (kᵀC⁻¹k), with C = E[a aᵀ] over other activations: 1 along k, and as little as can be elsewhere, [N, F].

    The left factor of a rank-one edit that leaves what the layer gives elsewhere as it is in the least squares' sense
    (ROME, Meng et al. 2022, arXiv:2202.05262, equation 2).

    Args:
        keys_NF: k.
        others_MF: activations whose outputs should stay.
        ridge: added to the diagonal of C, as a share of its mean.
    """
    a = others_MF.double()
    covariance = a.T @ a / len(a)
    covariance += ridge * covariance.diagonal().mean() * torch.eye(a.shape[1], dtype=a.dtype)
    directions = torch.linalg.solve(covariance, keys_NF.double().T).T
    return directions / (directions * keys_NF.double()).sum(-1, keepdim=True)


def wanted_updates(
    model: Topology, inputs_NT: Tensor, wanted_N: Tensor, out: str, reached: float, steps: int, rate: float
) -> Tensor:
    """The change of a layer's update at the last token that gives an answer, [N, D].

    By Adam from 0 on ln p(answer), for each question until p is at least `reached`.
    """
    with taps.record(model, out) as seen:
        answer_logits(model, inputs_NT)
        width = seen[out].shape[-1]
    added = torch.zeros(len(inputs_NT), width, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([added], lr=rate)

    def add(update_BTD: Tensor) -> Tensor:
        last = torch.zeros_like(update_BTD[..., :1])
        last[:, -1] = 1.0
        return update_BTD + last * added[:, None, :].to(update_BTD.dtype)

    for _ in range(steps):
        with torch.enable_grad():
            p = probability(answer_logits(model, inputs_NT, {out: add}), wanted_N)
            done = (p >= reached).detach()
            if done.all():
                break
            (gradient,) = torch.autograd.grad(-(p.clamp(min=1e-30).log()).sum(), added)
        before = added.detach().clone()
        added.grad = gradient
        optimiser.step()
        with torch.no_grad():
            added[done] = before[done]
    return added.detach()


class Facts:
    """Every fact in every form, with what the model answers unwatched.

    Attributes:
        inputs: questions [N, 4] by form; `answers`: the right ones, [N].
        p: probability of the right answer, `odds` its log-odds in form 0, `right` whether it is given, [N] by form.
    """

    def __init__(self, model: Topology, task: FactRecall) -> None:
        self.model, self.task = model, task
        self.inputs = [task.every_fact(form)[0] for form in range(task.forms)]
        self.answers = task.every_fact(0)[1]
        logits = [answer_logits(model, inputs) for inputs in self.inputs]
        self.p = [probability(each, self.answers) for each in logits]
        self.right = [each.argmax(-1) == self.answers for each in logits]
        self.odds = log_odds(logits[0], self.answers)

    def accuracy(self, form: int) -> float:
        return float(self.right[form].double().mean())

    def fall(self, form: int, facts: Tensor, functions: Functions) -> float:
        """The mean loss in p of facts."""
        logits = answer_logits(self.model, self.inputs[form][facts], functions)
        return float((self.p[form][facts] - probability(logits, self.answers[facts])).mean())

    def gain(self, facts: Tensor, functions: Functions) -> float:
        """The mean gain in the log-odds of facts."""
        logits = answer_logits(self.model, self.inputs[0][facts], functions)
        return float((log_odds(logits, self.answers[facts]) - self.odds[facts]).mean())


def head_effects(facts: Facts, known: Tensor, drawn: Tensor) -> dict[str, float]:
    """The cost of losing the most important head of each drawn fact, to it and to the other known facts."""
    falls = []
    for site in taps.names(facts.model, OUTPUTS):
        with taps.record(facts.model, site) as seen:
            answer_logits(facts.model, facts.inputs[0][:1])
            heads = seen[site].shape[2]
        for head in range(heads):
            logits = answer_logits(facts.model, facts.inputs[0], {site: partial(silence, heads=[head])})
            falls.append(facts.p[0] - probability(logits, facts.answers))
    by_head = torch.stack(falls, dim=1)  # [N, heads of all layers]
    own, which = by_head[drawn].max(1)
    others = (by_head[known].sum(0)[which] - own) / (len(known) - 1)
    return {"heads/own": float(own.mean()), "heads/others": float(others.mean())}


def shared_units(own_KS: Tensor, known: Tensor, task: FactRecall) -> dict[str, float]:
    """The mean share of own units that pairs of known facts have in common, by what they share."""
    used = torch.zeros(len(own_KS), int(own_KS.max()) + 1, dtype=torch.float64).scatter(1, own_KS, 1.0)
    common = used @ used.T / own_KS.shape[1]
    entity, relation = known // task.relations, known % task.relations
    same_entity = (entity[:, None] == entity[None]) & (relation[:, None] != relation[None])
    same_relation = (entity[:, None] != entity[None]) & (relation[:, None] == relation[None])
    neither = (entity[:, None] != entity[None]) & (relation[:, None] != relation[None])
    pairs = {"shared_entity": same_entity, "shared_relation": same_relation, "shared_neither": neither}
    return {name: float(common[chosen].mean()) for name, chosen in pairs.items() if chosen.any()}
