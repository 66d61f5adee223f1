"""Measures a table of positions: whether a linear map shifts it, at positions that the map was not fitted to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from swapformer.measure.base import MeasuredModel, Measurement, beyond_table
from swapformer.model.position import Position
from swapformer.model.tokens import Tokens
from swapformer.model.topology import Topology
from swapformer.random import stream
from swapformer.ranges import Count, Fraction, Natural, NonNegative, Positive
from swapformer.results.shapes import Curve, Finding, Matrix
from swapformer.task.base import Direction, Task

MAPS = ("exact", "free", "orthogonal", "power", "scaled", "stretched")
_FOLDS = 5
_SHOWN = 64
"""Rows and columns of a matrix in a figure at most."""


class PositionTable(Measurement):
    """The fit of affine maps that shift a position table by k: shift/exact@k, free@k, orthogonal@k and three more.

    The others are power@k, scaled@k and stretched@k. Beside them stands how alike two positions are, shift/cosine@k:
    the mean of cos(P[p], P[p+k]) over all p.

    The table P [rows, D] is what the model adds to embeddings at the positions 0 … rows − 1, in float64. A metric is
    ‖P[p] M + b − P[p+k]‖ / ‖P[p+k] − m‖ over pairs (p, p + k) that no map was fitted to, in Frobenius norms, where m is
    the mean of P[p+k] over the other pairs: 1 is what predicting this mean leaves (nan where all rows are alike).

    M is `exact`: the rotation of sin(pω_i), cos(pω_i) by kω_i, ω_i = base^(−2i/D) (Vaswani et al. 2017,
    arXiv:1706.03762, section 3.5), the same for every p, with b = 0; `free`: fitted by ridge regression; `orthogonal`:
    the best orthogonal one (Schönemann 1966); `power`: the free map of k = 1, k times; `scaled`: the best multiple c·I
    of the identity, which knows only how alike two rows are, so that a map which is no better shifts nothing;
    `stretched`: Σ c_i v_i v_iᵀ with the best c_i, v_i being the principal directions of the fitted P[p], which knows
    how slowly each direction changes, so that only a map that is better turns one direction into another. All but
    `exact` have the best b. On pairs that it was fitted to, any table with no more rows than columns has a map without
    residual, so pairs are held out and those that are left are more than D.

    Args:
        rows: positions of the table.
        shifts: k.
        held_out: share of the pairs that no map is fitted to, drawn at random.
        ridges: the λ that are tried in ‖XM − Y‖² + λ tr(XᵀX)/D ‖M‖², X and Y being centred; five-fold
            cross-validation on the fitted pairs chooses.
        base: of the exact map.
        seed: draws the pairs.
    """

    def __init__(
        self,
        *,
        rows: Count,
        shifts: Sequence[Count],
        held_out: Fraction,
        ridges: Sequence[NonNegative],
        base: Positive,
        seed: Natural,
    ) -> None:
        self.rows, self.shifts, self.held_out = rows, shifts, held_out
        self.ridges, self.base, self.seed = tuple(ridges), base, seed
        if not self.ridges:
            raise ValueError(
                "`ridges` of position_table must list at least one number to try, but is empty; give [1e-9, 1e-3, 1]."
            )

    def directions(self) -> Mapping[str, Direction]:
        residuals: dict[str, Direction] = {f"shift/{name}@{shift}": "lower" for name in MAPS for shift in self.shifts}
        return residuals | {f"shift/cosine@{shift}": "higher" for shift in self.shifts}

    def unsuited(self, model: Topology, task: Task) -> str | None:
        width = model.dims.d_model
        if not any(encoding.embeds for encoding in _encodings(model)):
            return (
                "position_table reads a table that is added to embeddings, but this model adds none; use "
                "model/position=sinusoidal, learned or learned_interpolated."
            )
        if width % 2:
            return f"position_table pairs sines with cosines, but model.d_model={width} is odd; make it even."
        fitted = self.rows - max(self.shifts) - self._count_held_out(max(self.shifts))
        if fitted <= width:
            return (
                f"position_table fits maps of {width} × {width}, for which the pairs of rows must be more, but "
                f"`rows`={self.rows} leaves {fitted}; raise `rows`, or lower model.d_model."
            )
        return beyond_table("position_table", self.rows, model)

    def _count_held_out(self, shift: int) -> int:
        return max(round(self.held_out * (self.rows - shift)), 1)

    def measure(self, subject: MeasuredModel) -> Finding:
        return self.of(subject.model)

    @torch.no_grad()
    def of(self, model: Topology) -> Finding:
        """The numbers and pictures of a model's table, which becomes float64."""
        table = table_of(model, self.rows)
        metrics: dict[str, float] = {}
        first = self._maps(table, 1)["free"]
        for shift in self.shifts:
            held, fitted = self._split(shift)
            maps = {**self._maps(table, shift), "power": first.power(shift)}
            mean = table[fitted + shift].mean(0)
            metrics |= {f"shift/{name}@{shift}": residual(table, maps[name], shift, held, mean) for name in MAPS}
            metrics[f"shift/cosine@{shift}"] = float(cosine_similarity(table[:-shift], table[shift:]).mean())
        return Finding(metrics, dict(self._shapes(table, metrics)))

    def _split(self, shift: int) -> tuple[Tensor, Tensor]:
        """Positions p of the pairs (p, p + shift) that are held out, and of those that maps are fitted to."""
        order = torch.randperm(self.rows - shift, generator=stream("position_table", self.seed, shift))
        count = self._count_held_out(shift)
        return order[:count], order[count:]

    def _maps(self, table: Tensor, shift: int) -> dict[str, Affine]:
        """The maps of a shift that are not powers of another one."""
        _, fitted = self._split(shift)
        x, y = table[fitted], table[fitted + shift]
        means = x.mean(0), y.mean(0)
        x, y = x - means[0], y - means[1]
        left, _, right = torch.linalg.svd(x.mT @ y)
        _, sizes, axes = torch.linalg.svd(x, full_matrices=False)
        axes = axes[sizes > sizes[0] * max(x.shape) * torch.finfo(x.dtype).eps].mT  # the others hold rounding only
        slow = ((x @ axes) * (y @ axes)).sum(0) / (x @ axes).square().sum(0)
        width = table.shape[1]
        linear = {
            "free": ridge_map(x, y, best_ridge(x, y, self.ridges)),
            "orthogonal": left @ right,
            "scaled": (x * y).sum() / x.square().sum().clamp(min=1e-300) * torch.eye(width, dtype=x.dtype),
            "stretched": axes * slow @ axes.mT,
        }
        exact = Affine(rotation(width, shift, self.base), torch.zeros(width, dtype=x.dtype))
        return {"exact": exact, **{name: Affine(m, means[1] - means[0] @ m) for name, m in linear.items()}}

    def _shapes(self, table: Tensor, metrics: Mapping[str, float]) -> Iterator[tuple[str, Matrix | Curve]]:
        series = {name: [metrics[f"shift/{name}@{shift}"] for shift in self.shifts] for name in MAPS}
        yield "residual", Curve(
            "Residual of a shift", "Relative residual at held-out positions of maps that shift the table by k.",
            "k", "relative residual", list(self.shifts), series, log_x=True, log_y=True,
        )  # fmt: skip
        shift, width = self.shifts[len(self.shifts) // 2], min(table.shape[1], _SHOWN)
        columns = [str(index) for index in range(width)]
        maps = self._maps(table, shift)
        for name in ("exact", "free"):
            yield f"map/{name}", Matrix(
                f"The {name} map of k = {shift}", f"What row p of the table is multiplied by to give row p + {shift}.",
                columns, columns, maps[name].linear[:width, :width].tolist(),
            )  # fmt: skip
        unit = torch.nn.functional.normalize(table[:: -(-self.rows // _SHOWN)], dim=1)
        positions = [str(index) for index in range(0, self.rows, -(-self.rows // _SHOWN))]
        yield "gram", Matrix(
            "Gram matrix of the table", "Cosines between the vectors of positions.", positions, positions,
            (unit @ unit.mT).tolist(), low=-1.0, high=1.0,
        )  # fmt: skip
        yield "pairs", _rings(table)


def _rings(table: Tensor) -> Curve:
    """Positions 0 … 63 in the planes of four pairs of columns, where a shift of sinusoids is a turn."""
    rows = table[:_SHOWN] / table[:_SHOWN].norm(dim=1).square().mean().sqrt() * (table.shape[1] / 2) ** 0.5
    pairs = list(dict.fromkeys(table.shape[1] // 2 * sixteenth // 16 for sixteenth in (2, 3, 4, 5)))
    turned = {pair: ring * rows[:, 2 * pair : 2 * pair + 2] for ring, pair in enumerate(pairs, 1)}
    return Curve(
        "Positions in the planes of pairs",
        f"The two columns of a pair at positions 0 to {len(rows) - 1}; the n-th pair shown is drawn n times as large.",
        "first column of the pair", "second column", [x for each in turned.values() for x in each[:, 0].tolist()],
        {f"pair {pair + 1}": [y if at == pair else None for at in pairs for y in turned[at][:, 1].tolist()]
         for pair in pairs},
        per_seed=True,
    )  # fmt: skip


def table_of(model: Topology, rows: int) -> Tensor:
    """The vectors that a model adds to the embeddings of positions 0 … rows − 1, float64 [rows, D] on the CPU."""
    model = model.double()
    device = next(model.parameters()).device
    zeros = torch.zeros(1, rows, model.dims.d_model, dtype=torch.float64, device=device)
    tokens, added = Tokens.of(rows, device=device), zeros
    for encoding in _encodings(model):
        added = encoding.embed(added, tokens)
    return added[0].detach().cpu()


def _encodings(model: Topology) -> list[Position]:
    """The position encodings of a model's layers, each once."""
    found = [part for part in model.stack.positions.values() if isinstance(part, Position)]
    return list(dict.fromkeys(encoding for position in found for encoding in position.encodings()))


def rotation(width: int, shift: int, base: float) -> Tensor:
    """T with [sin pω, cos pω] T = [sin (p+k)ω, cos (p+k)ω] for each pair of columns, float64 [D, D]."""
    angle = shift * base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    even = torch.arange(0, width, 2)
    found = torch.zeros(width, width, dtype=torch.float64)
    found[even, even] = found[even + 1, even + 1] = angle.cos()
    found[even + 1, even] = angle.sin()
    found[even, even + 1] = -angle.sin()
    return found


def ridge_map(x: Tensor, y: Tensor, ridge: float) -> Tensor:
    """M that minimises ‖XM − Y‖² + λ tr(XᵀX)/D ‖M‖², for X and Y [N, D]; solved without the normal equations."""
    width = x.shape[1]
    weight = (ridge * x.square().sum() / width).sqrt()
    stacked = torch.cat([x, weight * torch.eye(width, dtype=x.dtype)])
    wanted = torch.cat([y, torch.zeros(width, y.shape[1], dtype=y.dtype)])
    return torch.linalg.lstsq(stacked, wanted, driver="gelsd").solution


def best_ridge(x: Tensor, y: Tensor, ridges: Sequence[float]) -> float:
    """The λ of least squared error on the fifths of X and Y [N, D] that a map of the others has not seen."""
    if len(ridges) == 1:
        return ridges[0]
    fold = torch.arange(len(x)) % _FOLDS

    def error(ridge: float) -> float:
        maps = [ridge_map(x[fold != each], y[fold != each], ridge) for each in range(_FOLDS)]
        return sum(float((x[fold == each] @ m - y[fold == each]).square().sum()) for each, m in enumerate(maps))

    return min(ridges, key=error)


class Affine(NamedTuple):
    """Rows p of a table to p M + b."""

    linear: Tensor
    offset: Tensor

    def of(self, rows: Tensor) -> Tensor:
        """The rows that it makes of these."""
        return rows @ self.linear + self.offset

    def power(self, times: int) -> Affine:
        """This map, so often after itself."""
        width = len(self.offset)
        whole = torch.eye(width + 1, dtype=self.offset.dtype)
        whole[:width, :width], whole[width, :width] = self.linear, self.offset
        whole = torch.linalg.matrix_power(whole, times)
        return Affine(whole[:width, :width], whole[width, :width])


def residual(table: Tensor, shift_map: Affine, shift: int, positions: Tensor, mean: Tensor) -> float:
    """‖P[p] M + b − P[p+k]‖ / ‖P[p+k] − mean‖ over some positions p."""
    wanted = table[positions + shift]
    return float((shift_map.of(table[positions]) - wanted).norm() / (wanted - mean).norm())
