"""Probe of what fires hidden units: classes of characters that they tell apart, and clusters of their activations."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

import torch
from torch import Tensor

from swapformer.interface import MAIN
from swapformer.model.taps import missing, record
from swapformer.model.topology import Topology
from swapformer.probes.activation_sparsity import HIDDEN, one_row_of_units
from swapformer.probes.base import Finding, Probe, validation
from swapformer.probes.hidden_units import (
    CLASSES,
    area_under_curve,
    classes_of,
    clusters,
    mutual_information,
)
from swapformer.random import stream
from swapformer.ranges import Count, Share
from swapformer.results.moments import BY_LAYER
from swapformer.results.shapes import Matrix, Shape, Table
from swapformer.task.base import Task, target_mask
from swapformer.training.inputs import model_inputs

UNITS, CLUSTERS = "probe/units/", "probe/clusters/"
_STREAM, _EMBEDDINGS = "*.hook_resid_mid", "blocks.0.hook_resid_pre"
_FEWEST = 20
"""Tokens that a class needs, and others beside it, to count."""
_SHOWN = 5


class UnitClasses(Probe):
    """Whether hidden units tell classes of characters apart, and whether their clusters are such classes.

    A token's class is newline, space, digit, upper or lower case, bracket, quote or other, by its first character. A
    unit's AUC for a class is the chance that it is larger at a token of it than at another; a unit is *specialised* if
    that is at least `area` for some class. At the tokens of validation batches that are scored, and as means over the
    layers, the metrics under `probe/units/` are

        specialised            share of units that are specialised in a class of the token that is read
        specialised_next       likewise of the next token
        specialised_shuffled   the former after the classes were dealt out to the tokens again: what chance gives
        specialised_stream     share of the coordinates of the stream before the layer that are: what directions have
                               that no activation has made
        classes, classes_next  share of the classes for which some unit of the model is specialised

    the first three with `_by_layer@L`; and under `probe/clusters/`, with k-means in as many clusters as there are
    classes, their normalised mutual information with the classes:

        read, next             of the last layer's hidden activations with the class of the token read and of the next
        stream_read, stream_next         the same of the stream before that layer's hidden units
        embedding_read, embedding_next   the same of the embeddings

    A class that fewer than 20 of the tokens have does not count. The shapes are the best AUC for each class by layer,
    and a table of the most specialised units of one seed.

    Args:
        batches: validation batches.
        area: in [0, 1].

    Raises:
        ValueError: if the model has no such units, or the task does not ask for the next symbol at each place.
    """

    def __init__(self, *, batches: Count, area: Share) -> None:
        self.batches, self.area = batches, area

    def unsuited(self, model: Topology, task: Task) -> str | None:
        if problem := one_row_of_units("unit_classes", model):
            return problem
        if problem := missing(model, _STREAM, _EMBEDDINGS):
            return f"unit_classes looks at a decoder's stream: {problem}"
        if task.interface.readouts[MAIN].kind == "values" or not task.predicts_next:
            return "unit_classes needs a task whose answers are next symbols; leave out probes=unit_classes."
        return None

    def measure(self, model: Topology, task: Task) -> Finding:
        values, read, following = self._observed(model, task)
        dealt = read[torch.randperm(len(read), generator=stream("unit_classes", len(read)))]
        hidden = [each for name, each in values.items() if name.endswith(HIDDEN[1:])]
        streams = [each for name, each in values.items() if name.endswith(_STREAM[1:])]
        areas = {
            "specialised": [_areas(each, read) for each in hidden],
            "specialised_next": [_areas(each, following) for each in hidden],
            "specialised_shuffled": [_areas(each, dealt) for each in hidden],
            "specialised_stream": [_areas(each, read) for each in streams],
        }
        metrics: dict[str, float] = {}
        for name, layers in areas.items():
            shares = [float((each.nan_to_num(0.0).amax(0) >= self.area).double().mean()) for each in layers]
            metrics[f"{UNITS}{name}"] = fmean(shares)
            if name != "specialised_stream":
                metrics |= {f"{UNITS}{name}{BY_LAYER}@{layer}": share for layer, share in enumerate(shares, 1)}
        for name, key in (("classes", "specialised"), ("classes_next", "specialised_next")):
            best = torch.stack([each.amax(1) for each in areas[key]]).amax(0)
            best = best[~best.isnan()]
            metrics[f"{UNITS}{name}"] = float((best >= self.area).double().mean())
        clustered = {"": hidden[-1], "stream_": streams[-1], "embedding_": values[_EMBEDDINGS]}
        metrics |= _cluster_metrics(clustered, read, following)
        named = {"best/read": "specialised", "best/next": "specialised_next", "best/shuffled": "specialised_shuffled"}
        shapes: dict[str, Shape] = {name: _matrix(name, areas[key]) for name, key in named.items()}
        shapes["units"] = _table(areas["specialised"], hidden)
        return Finding(metrics, shapes)

    def _observed(self, model: Topology, task: Task) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """The values at each place [N, F], and the classes of the tokens there and of the next ones, [N]."""
        classes_V = classes_of([*task.tokens, *[""] * (task.vocab_size - len(task.tokens))])
        values: dict[str, list[Tensor]] = {}
        read, following = [], []
        for batch in validation(model, task, self.batches):
            with record(model, HIDDEN, _STREAM, _EMBEDDINGS) as seen:
                model(*model_inputs(batch))
            scored = target_mask(batch.targets)
            for name, value in seen.items():
                values.setdefault(name, []).append(value[scored])
            read.append(classes_V[batch.inputs[scored]])
            following.append(classes_V[batch.targets[scored]])
        return {name: torch.cat(each) for name, each in values.items()}, torch.cat(read), torch.cat(following)


def _areas(values_NF: Tensor, classes_N: Tensor) -> Tensor:
    """AUC for each class and unit, NaN of classes that too few tokens have."""
    areas = area_under_curve(values_NF, classes_N, len(CLASSES))
    counts = torch.bincount(classes_N, minlength=len(CLASSES))
    few = (counts < _FEWEST) | (len(classes_N) - counts < _FEWEST)
    return areas.masked_fill(few[:, None], torch.nan)


def _cluster_metrics(clustered: Mapping[str, Tensor], read: Tensor, following: Tensor) -> dict[str, float]:
    found = {}
    for prefix, values_NF in clustered.items():
        labels = clusters(values_NF, len(CLASSES), seed=0)
        found[f"{CLUSTERS}{prefix}read"] = mutual_information(labels, read)
        found[f"{CLUSTERS}{prefix}next"] = mutual_information(labels, following)
    return found


_TITLES: Mapping[str, tuple[str, str]] = {
    "best/read": ("Class of the token read", "Largest AUC of a layer's hidden units for each class of the token read."),
    "best/next": ("Class of the next token", "Largest AUC of a layer's hidden units for each class of the next token."),
    "best/shuffled": ("Classes dealt out anew", "Largest AUC of a layer's hidden units for classes given by chance."),
}


def _matrix(name: str, areas: list[Tensor]) -> Matrix:
    title, caption = _TITLES[name]
    best = torch.stack([each.amax(1) for each in areas], dim=1)
    columns = [f"layer {layer}" for layer in range(1, len(areas) + 1)]
    return Matrix(title, caption, list(CLASSES), columns, best.tolist(), low=0.5, high=1.0)


def _table(areas: list[Tensor], hidden: list[Tensor]) -> Table:
    """The units that tell a class apart best."""
    rows: list[list[str | float | None]] = []
    for layer, (area_CF, value_NF) in enumerate(zip(areas, hidden, strict=True), 1):
        best, which = area_CF.nan_to_num(0.0).max(0)
        for unit in best.topk(min(_SHOWN, len(best))).indices.tolist():
            fires = float((value_NF[:, unit] > 0).double().mean())
            rows.append([f"layer {layer}, unit {unit + 1}", CLASSES[int(which[unit])], float(best[unit]), fires])
    return Table(
        "Most specialised hidden units",
        "The units with the largest AUC for a class of the token that is read, and how often they are above 0.",
        ["unit", "class", "AUC", "share of tokens above 0"], rows, per_seed=True,
    )  # fmt: skip
