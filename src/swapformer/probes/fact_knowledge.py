"""Probe of knowledge: which hidden units and heads a memorised fact rests on, and what editing them changes."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Annotated

import torch
from torch import Tensor

from swapformer.model import taps
from swapformer.model.block import Sublayer
from swapformer.model.topology import Topology
from swapformer.probes.activation_sparsity import HIDDEN, one_row_of_units
from swapformer.probes.base import Finding, Probe
from swapformer.probes.fact_effects import (
    Facts,
    answer_logits,
    attributions,
    fixed,
    head_effects,
    probability,
    rank_one,
    scaled_units,
    selective_keys,
    shared_units,
    wanted_updates,
)
from swapformer.probes.head_pruning import OUTPUTS
from swapformer.random import stream
from swapformer.ranges import Count, Positive, Within
from swapformer.results.moments import BY_LAYER
from swapformer.results.shapes import Profile, Shape, Table
from swapformer.task.base import Task
from swapformer.task.recall import FactRecall

KNOWLEDGE = "probe/knowledge/"
_UPDATES = {"mlp": "*.hook_mlp_out", "attention": "*.hook_attn_out"}
_RIDGE, _REACHED, _RATE, _STEPS = 1e-2, 0.95, 0.1, 200


class FactKnowledge(Probe):
    """What the facts that a model has memorised rest on, and whether an edit moves one alone (task=fact_recall).

    Of the facts that the model answers right in form 0 some are drawn. For each, the `units` hidden units of all layers
    that add most to the probability p of its answer are its own (integrated gradients: Dai et al. 2022,
    arXiv:2104.08696). All numbers are means over the drawn facts; under `probe/knowledge/` they are

        known, known_paraphrase        share of all facts answered right in form 0, and in the other forms
        units/own, units/paraphrase    fall of p when its own units are taken as zero, asked in form 0, in other forms
        units/others                   fall of p of all other known facts
        random/own                     fall of p without as many other units that fire at it, drawn at random
        amplify/own, amplify/others    rise of ln p/(1 − p) when its own units are multiplied by `factor`
        heads/own, heads/others        fall of p without the one head whose absence costs it most, and of others
        shared_entity, shared_relation, shared_neither   share of own units that two facts have in common: two about the
                                       same entity, in the same relation, in neither

    and by layer, `…_by_layer@L`,

        edit/success, edit/paraphrase  share of facts for which a rank-one edit of W₂ (ROME, Meng et al. 2022,
                                       arXiv:2202.05262) makes the model answer with another value, in form 0, in others
        edit/others, edit/entity       share of other known facts, and of those of the same entity, whose answer changes
        traced/mlp, traced/attention   share of what p loses when another entity is named that returns with the layer's
                                       update of the right question at all places (in ROME's words, causal tracing)

    A model without feed-forward layers has no numbers of units, edits and `mlp`, one that knows fewer than two facts
    only `known`. The shapes are profiles by layer of edits and of
    traces, and a table of what is taken away.

    Args:
        facts: how many are drawn, of those that are known.
        units: own units of a fact.
        path: steps of the integrated gradients.
        factor: by which own units are amplified.
        seed: draws facts, units and values.

    Raises:
        ValueError: for another task than fact_recall without a source, or a model with experts.
    """

    def __init__(
        self, *, facts: Count, units: Count, path: Count, factor: Positive, seed: Annotated[int, Within("[0, inf)")]
    ) -> None:
        self.facts, self.units, self.path, self.factor, self.seed = facts, units, path, factor, seed

    def unsuited(self, model: Topology, task: Task) -> str | None:
        if not isinstance(task, FactRecall) or task.as_source:
            return "fact_knowledge asks for facts of a table; choose task=fact_recall with task.as_source=false."
        if problem := taps.missing(model, OUTPUTS, _UPDATES["attention"], replacing=True):
            return f"fact_knowledge overwrites heads and updates: {problem}"
        if any(isinstance(part, Sublayer) and part.inside is not None for part in model.modules()):
            return (
                "fact_knowledge edits a matrix by what its layer adds, which a norm behind it would change; use "
                "model/placement=pre or post."
            )
        return one_row_of_units("fact_knowledge", model) if taps.missing(model, HIDDEN) is None else None

    def measure(self, model: Topology, task: Task) -> Finding:
        assert isinstance(task, FactRecall)
        facts = Facts(model, task)
        generator = stream("fact_knowledge", self.seed)
        known = facts.right[0].nonzero().squeeze(1)
        metrics = {"known": facts.accuracy(0)}
        if task.forms > 1:
            metrics["known_paraphrase"] = fmean(facts.accuracy(form) for form in range(1, task.forms))
        if len(known) < 2:
            return Finding({f"{KNOWLEDGE}{name}": value for name, value in metrics.items()})
        drawn = known[torch.randperm(len(known), generator=generator)[: self.facts]]
        traces = _traced(facts, drawn, generator)
        metrics |= head_effects(facts, known, drawn)
        for name, values in traces.items():
            metrics |= {f"traced/{name}{BY_LAYER}@{layer}": value for layer, value in enumerate(values, 1)}
        shapes: dict[str, Shape] = {f"traced {name}": _profile(f"traced/{name}", each) for name, each in traces.items()}
        if sites := list(taps.names(model, HIDDEN)):
            metrics |= self._units(facts, sites, known, drawn, generator)
            layers = [_edited(facts, site, known, drawn, generator) for site in sites]
            for layer, found in enumerate(layers, 1):
                metrics |= {f"edit/{name}{BY_LAYER}@{layer}": value for name, value in found.items()}
            shapes |= {f"edit {name}": _profile(f"edit/{name}", [each[name] for each in layers]) for name in layers[0]}
        shapes["effects"] = _table(metrics)
        return Finding({f"{KNOWLEDGE}{name}": value for name, value in metrics.items()}, shapes)

    def _units(
        self, facts: Facts, sites: list[str], known: Tensor, drawn: Tensor, generator: torch.Generator
    ) -> dict[str, float]:
        """The effect on the drawn facts and on others when their own units, or others, are scaled."""
        own_NS, widths = self._own_units(facts, sites)
        random_NS = self._random_units(facts, sites, own_NS, drawn, generator)
        own, random = (_factors(units, sites, widths, 0.0) for units in (own_NS[drawn], random_NS))
        amplified = _factors(own_NS[drawn], sites, widths, self.factor)
        others = [(index, known[known != fact]) for index, fact in enumerate(drawn.tolist())]
        metrics = {
            "units/own": facts.fall(0, drawn, scaled_units(own)),
            "units/others": fmean(facts.fall(0, rest, scaled_units(_row(own, index))) for index, rest in others),
            "random/own": facts.fall(0, drawn, scaled_units(random)),
            "amplify/own": facts.gain(drawn, scaled_units(amplified)),
            "amplify/others": fmean(facts.gain(rest, scaled_units(_row(amplified, index))) for index, rest in others),
        }
        if facts.task.forms > 1:
            metrics["units/paraphrase"] = fmean(
                facts.fall(form, drawn, scaled_units(own)) for form in range(1, facts.task.forms)
            )
        return metrics | shared_units(own_NS[known], known, facts.task)

    def _own_units(self, facts: Facts, sites: list[str]) -> tuple[Tensor, list[int]]:
        """For each fact the numbers of its units among those of all layers, [N, S], and the units of each layer."""
        found = attributions(facts.model, facts.inputs[0], facts.answers, sites, self.path)
        every = torch.cat([found[site] for site in sites], dim=1)
        return every.topk(min(self.units, every.shape[1])).indices, [found[site].shape[1] for site in sites]

    def _random_units(
        self, facts: Facts, sites: list[str], own_NS: Tensor, drawn: Tensor, generator: torch.Generator
    ) -> Tensor:
        """As many units for each drawn fact that fire at its question and are not its own, [facts, S]."""
        with taps.record(facts.model, *sites) as seen:
            answer_logits(facts.model, facts.inputs[0][drawn])
            fires = torch.cat([(seen[site] != 0).any(1) for site in sites], dim=1)
        lots = torch.rand(fires.shape, generator=generator) + fires
        return lots.scatter(1, own_NS[drawn], -1.0).topk(own_NS.shape[1]).indices


def _factors(units_NS: Tensor, sites: list[str], widths: list[int], factor: float) -> dict[str, Tensor]:
    """The factor of each unit by place, [N, F]: `factor` for those that are named, 1 for others."""
    every = torch.ones(len(units_NS), sum(widths), dtype=torch.float64).scatter(1, units_NS, factor)
    return dict(zip(sites, torch.split(every, widths, dim=1), strict=True))


def _row(factors: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    return {site: each[index : index + 1] for site, each in factors.items()}


def _edited(facts: Facts, site: str, known: Tensor, drawn: Tensor, generator: torch.Generator) -> dict[str, float]:
    """The effect of a rank-one edit of one layer, an edit for each drawn fact."""
    model, task = facts.model, facts.task
    out = f"{site.rpartition('.mlp.')[0]}.hook_mlp_out"
    first = task.separator_token + 1
    other = torch.randint(1, task.values, (len(drawn),), generator=generator)
    wanted = first + (facts.answers[drawn] - first + other) % task.values
    inputs = facts.inputs[0]
    with taps.record(model, site) as seen:
        answer_logits(model, inputs)
        hidden = seen[site]
    keys = selective_keys(hidden[drawn, -1], hidden.flatten(0, 1), _RIDGE)
    values = wanted_updates(model, inputs[drawn], wanted, out, _REACHED, _STEPS, _RATE)
    edits = rank_one(site, out, keys, values)
    found = {"success": float((answer_logits(model, inputs[drawn], edits).argmax(-1) == wanted).double().mean())}
    if task.forms > 1:
        found["paraphrase"] = fmean(
            float((answer_logits(model, asked[drawn], edits).argmax(-1) == wanted).double().mean())
            for asked in facts.inputs[1:]
        )
    changed, related = [], []
    for index, fact in enumerate(drawn.tolist()):
        edit = rank_one(site, out, keys[index : index + 1], values[index : index + 1])
        others = known[known != fact]
        wrong = answer_logits(model, inputs[others], edit).argmax(-1) != facts.answers[others]
        changed.append(float(wrong.double().mean()))
        same = others // task.relations == fact // task.relations
        related += wrong[same].double().tolist()
    found["others"] = fmean(changed)
    if related:
        found["entity"] = fmean(related)
    return found


def _traced(facts: Facts, drawn: Tensor, generator: torch.Generator) -> dict[str, list[float]]:
    """The share of p that returns with each layer's update of the right question when another entity is named."""
    model, task = facts.model, facts.task
    inputs, answers = facts.inputs[0][drawn], facts.answers[drawn]
    shift = torch.randint(1, task.entities, (len(drawn),), generator=generator) * task.relations
    wrong = facts.inputs[0][(drawn + shift) % len(facts.answers)]
    lost = probability(answer_logits(model, wrong), answers).mean()
    whole = facts.p[0][drawn].mean()
    found: dict[str, list[float]] = {}
    for name, pattern in _UPDATES.items():
        if taps.missing(model, pattern):
            continue
        with taps.record(model, pattern) as seen:
            answer_logits(model, inputs)
            clean = dict(seen)
        back = [probability(answer_logits(model, wrong, fixed({site: clean[site]})), answers).mean() for site in clean]
        found[name] = [float((p - lost) / (whole - lost)) for p in back]
    return found


def _table(metrics: Mapping[str, float]) -> Table:
    names = {
        "own units zero": ("units/own", "units/others"),
        "random units zero": ("random/own", None),
        "dearest head zero": ("heads/own", "heads/others"),
    }
    return Table(
        "What a fact rests on",
        "Fall of the probability of the right answer: of the fact, and of the other facts that the model knows.",
        ["intervention", "own fact", "other facts"],
        [
            [name, metrics[own], None if others is None else metrics[others]]
            for name, (own, others) in names.items()
            if own in metrics
        ],
    )


_TITLES = {
    "edit/success": ("Facts that a rank-one edit changes", "share of edited facts"),
    "edit/paraphrase": ("Edited facts in other forms", "share of edited facts"),
    "edit/others": ("Other facts that an edit changes", "share of other facts"),
    "edit/entity": ("Facts of the same entity that an edit changes", "share of its other facts"),
    "traced/mlp": ("Restored by a feed-forward layer", "share of the probability"),
    "traced/attention": ("Restored by an attention layer", "share of the probability"),
}  # fmt: skip


def _profile(name: str, values: list[float]) -> Profile:
    title, axis = _TITLES[name]
    layers = [str(layer) for layer in range(1, len(values) + 1)]
    return Profile(title, f"{title}, by layer.", axis, "", layers, ["end"], [values])
