"""Tables of positions against definition loops in float64, and what happens when no rows are held out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from measure.conftest import TINY, measured, subject_of
from swapformer.errors import UsageError
from swapformer.measure.position_table import Affine, PositionTable, best_ridge, residual, ridge_map, rotation, table_of
from swapformer.results.shapes import Curve
from swapformer.study.config.compose import check, compose

TABLE = ("measure=position_table", "measure.rows=96", "measure.shifts=[1,8]")


def made(rows: int, *, held_out: float = 0.25, ridges: Sequence[float] = (1e-9,)) -> PositionTable:
    return PositionTable(rows=rows, shifts=[1, 4], held_out=held_out, ridges=ridges, base=10000.0, seed=0)


def sinusoid(position: int, width: int) -> list[float]:
    angles = [position / 10000 ** (2 * i / width) for i in range(width // 2)]
    return [function(angle) for angle in angles for function in (math.sin, math.cos)]


def test_the_table_and_its_exact_map_are_those_of_the_definition() -> None:
    """sin((p+k)ω) = sin pω cos kω + cos pω sin kω, and so for the cosine, in loops over numbers."""
    table = table_of(subject_of(compose([*TINY, *TABLE, "model/position=sinusoidal"])).model, 96)
    shifted = rotation(16, 8, 10000.0)
    for position in (0, 1, 50, 87):
        row, wanted = sinusoid(position, 16), sinusoid(position + 8, 16)
        assert table[position].tolist() == pytest.approx(row, abs=1e-12)
        for i in range(8):
            angle = 8 / 10000 ** (2 * i / 16)
            sine, cosine = row[2 * i], row[2 * i + 1]
            assert sine * math.cos(angle) + cosine * math.sin(angle) == pytest.approx(wanted[2 * i], abs=1e-12)
        product = [sum(row[a] * float(shifted[a, b]) for a in range(16)) for b in range(16)]
        assert product == pytest.approx(wanted, abs=1e-12)


def test_sinusoids_shift_by_a_rotation_at_positions_that_no_map_has_seen() -> None:
    found = measured(*TABLE, "model/position=sinusoidal").metrics
    assert all(found[f"shift/exact@{k}"] < 1e-12 for k in (1, 8))
    assert all(found[f"shift/{name}@{k}"] < 1e-2 for name in ("free", "orthogonal", "power") for k in (1, 8))


def test_the_likeness_of_two_sinusoids_depends_on_their_distance_alone() -> None:
    """PE(p)·PE(p+k) = Σ cos kω_i and ‖PE(p)‖² = D/2, whatever p is, so the mean over p is the cosine of every pair."""
    found = measured(*TABLE, "model/position=sinusoidal").metrics
    for k in (1, 8):
        assert found[f"shift/cosine@{k}"] == pytest.approx(sum(math.cos(k / 10000 ** (i / 8)) for i in range(8)) / 8)


def test_each_pair_of_sinusoids_is_drawn_as_the_circle_that_it_runs_through() -> None:
    """Pairs 2 and 3 of 8, at n (sin pω_i, cos pω_i) for the n-th, with gaps where another one is drawn."""
    drawn = measured(*TABLE, "model/position=sinusoidal").shapes["pairs"]
    assert isinstance(drawn, Curve)
    places = {"pair 2": range(64), "pair 3": range(64, 128)}
    assert {name: len(at) for name, at in places.items()} == dict.fromkeys(drawn.series, 64)
    for ring, (name, at) in enumerate(places.items(), 1):
        for p, index in enumerate(at):
            x, y = sinusoid(p, 16)[2 * ring : 2 * ring + 2]
            assert (drawn.xs[index], drawn.series[name][index]) == pytest.approx((ring * x, ring * y), abs=1e-9)
        assert [index for index, y in enumerate(drawn.series[name]) if y is not None] == list(at)


def test_residuals_are_those_of_a_loop_over_the_pairs_that_were_held_out() -> None:
    subject = subject_of(compose([*TINY, *TABLE, "model/position=learned", "model.max_len=96"]))
    found, table = made(96).measure(subject).metrics, table_of(subject.model, 96)
    held, fitted = made(96)._split(4)
    assert sorted([*held.tolist(), *fitted.tolist()]) == list(range(92)) and len(held) == 23
    x = torch.stack([table[p] for p in fitted])
    y = torch.stack([table[p + 4] for p in fitted])
    here, there = x.mean(0), y.mean(0)
    x, y = x - here, y - there
    weight = 1e-9 * float((x * x).sum()) / 16
    free = torch.linalg.inv(x.T @ x + weight * torch.eye(16, dtype=torch.float64)) @ x.T @ y  # the normal equations
    wrong = sum(float((((table[p] - here) @ free + there - table[p + 4]) ** 2).sum()) for p in held)
    size = sum(float(((table[p + 4] - there) ** 2).sum()) for p in held)
    assert found["shift/free@4"] == pytest.approx(math.sqrt(wrong / size), rel=1e-6)
    times = float((x * y).sum() / (x * x).sum())
    wrong = sum(float((((table[p] - here) * times + there - table[p + 4]) ** 2).sum()) for p in held)
    assert found["shift/scaled@4"] == pytest.approx(math.sqrt(wrong / size), rel=1e-9)
    _, axes = torch.linalg.eigh(x.T @ x)
    times = [float((x @ axis) @ (y @ axis) / ((x @ axis) @ (x @ axis))) for axis in axes.T]
    wrong = 0.0
    for p in held:
        along = [times[i] * float((table[p] - here) @ axes[:, i]) for i in range(16)]
        wrong += sum(float((sum(along[i] * axes[a, i] for i in range(16)) + there[a] - table[p + 4, a]) ** 2)
                     for a in range(16))  # fmt: skip
    assert found["shift/stretched@4"] == pytest.approx(math.sqrt(wrong / size), rel=1e-6)


def test_a_stretch_follows_directions_of_several_speeds_and_no_turn() -> None:
    """Turned columns that change by chance, ax + (1 − a²)^½ z with an a of their own, and a walk round a circle."""
    generator = torch.Generator().manual_seed(2)
    kept, sizes = torch.tensor([0.99, 0.9, 0.3, 0.0]).double(), torch.tensor([4.0, 3.0, 2.0, 1.0]).double()
    rows = [torch.randn(4, dtype=torch.float64, generator=generator)]
    for _ in range(3999):
        noise = torch.randn(4, dtype=torch.float64, generator=generator)
        rows.append(kept * rows[-1] + (1 - kept**2).sqrt() * noise)
    turn, _ = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=generator))
    angles = math.pi / 2 * torch.arange(80, dtype=torch.float64)
    found = {}
    for name, table in (
        ("speeds", torch.stack(rows) * sizes @ turn),
        ("circle", torch.stack([angles.sin(), angles.cos()], dim=1)),
    ):
        held, fitted = made(len(table))._split(1)
        mean, maps = table[fitted + 1].mean(0), made(len(table))._maps(table, 1)
        found[name] = {which: residual(table, maps[which], 1, held, mean) for which in ("stretched", "scaled", "free")}
    best = math.sqrt(float((sizes**2 * (1 - kept**2)).sum() / (sizes**2).sum()))
    assert found["speeds"]["stretched"] == pytest.approx(best, rel=0.05)
    assert found["speeds"]["stretched"] == pytest.approx(found["speeds"]["free"], rel=0.01)
    assert found["speeds"]["scaled"] > 1.1 * found["speeds"]["stretched"]
    assert found["circle"]["stretched"] > 0.9 and found["circle"]["free"] < 1e-6


def test_directions_that_hold_rounding_only_are_stretched_by_nothing() -> None:
    """Rows in four of six dimensions, but for one that is held out: a factor there would be 3 over a rounding error."""
    generator = torch.Generator().manual_seed(3)
    turn, _ = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=generator))
    plane = torch.randn(60, 4, dtype=torch.float64, generator=generator).cumsum(0) @ turn[:4]
    held, fitted = made(60)._split(1)
    plane[next(p for p in held.tolist() if p - 1 in fitted.tolist())] += 3 * turn[5]
    left = residual(plane, made(60)._maps(plane, 1)["stretched"], 1, held, plane[fitted + 1].mean(0))
    assert left < 1


def test_the_ridge_is_that_of_least_error_on_pairs_that_were_left_out() -> None:
    """Oracle: folds in a loop, of rows that share a slow component and of independent ones."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(120, 20, dtype=torch.float64, generator=generator)
    slow = noise + torch.linspace(-3, 3, 120, dtype=torch.float64)[:, None]
    ridges = [1e-9, 1e-3, 0.1, 10.0]
    for table in (slow, noise):
        x, y = table[:-1] - table[:-1].mean(0), table[1:] - table[1:].mean(0)
        errors = []
        for ridge in ridges:
            total = 0.0
            for fold in range(5):
                kept = [row for row in range(119) if row % 5 != fold]
                weight = ridge * float((x[kept] ** 2).sum()) / 20 * torch.eye(20, dtype=torch.float64)
                free = torch.linalg.inv(x[kept].T @ x[kept] + weight) @ x[kept].T @ y[kept]
                total += sum(float(((x[row] @ free - y[row]) ** 2).sum()) for row in range(fold, 119, 5))
            errors.append(total)
        assert best_ridge(x, y, ridges) == ridges[errors.index(min(errors))]
    assert best_ridge(x, y, ridges) == 10.0, "independent rows: the flattest map errs least"


def test_a_table_that_only_drifts_is_shifted_no_better_than_by_a_multiple_of_the_identity() -> None:
    """The planted fault of an untuned ridge: it fits the noise, and leaves more than the trivial control."""
    generator = torch.Generator().manual_seed(1)
    drift = torch.linspace(-1, 1, 128, dtype=torch.float64)[:, None]
    table = torch.randn(128, 48, dtype=torch.float64, generator=generator) + drift
    held, fitted = made(128)._split(4)
    mean = table[fitted + 4].mean(0)

    def left(ridges: Sequence[float], name: str) -> float:
        return residual(table, made(128, ridges=ridges)._maps(table, 4)[name], 4, held, mean)

    tuned, untuned = left([1e-9, 0.1, 1, 10], "free"), left([1e-9], "free")
    assert untuned > 1.1 > tuned and left([1e-9], "scaled") < untuned


def test_an_orthogonal_map_is_one_and_the_best_among_turns_of_it() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(40, 6, dtype=torch.float64, generator=generator)
    found = made(40)._maps(table, 1)["orthogonal"].linear
    assert torch.allclose(found @ found.T, torch.eye(6, dtype=torch.float64), atol=1e-12)
    _, fitted = made(40)._split(1)

    x, y = (rows - rows.mean(0) for rows in (table[fitted], table[fitted + 1]))

    def error(turn: torch.Tensor) -> float:
        return float((x @ turn - y).norm())

    for _ in range(5):
        skew = 0.1 * torch.randn(6, 6, dtype=torch.float64, generator=generator)
        assert error(found @ torch.linalg.matrix_exp(skew - skew.T)) > error(found)


def test_the_power_is_the_free_map_of_one_position_taken_so_often() -> None:
    """Of a table that a rotation by 0.3 makes, T₁⁴ is the rotation by 1.2."""
    angles = 0.3 * torch.arange(40, dtype=torch.float64)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1)
    offset = torch.tensor([2.0, -1.0], dtype=torch.float64)
    power = Affine(ridge_map(table[:-1], table[1:], 0.0), offset).power(4)
    expected = [[math.cos(1.2), -math.sin(1.2)], [math.sin(1.2), math.cos(1.2)]]
    assert power.linear.tolist() == [pytest.approx(row, abs=1e-9) for row in expected]
    rows = table
    for _ in range(4):
        rows = Affine(ridge_map(table[:-1], table[1:], 0.0), offset).of(rows)
    assert torch.allclose(power.of(table), rows, atol=1e-9)


def test_a_random_table_has_no_shift() -> None:
    """Independent rows: a fitted map predicts nothing, so the residual is 1 and a little more for the noise it fits."""
    found = measured(
        "measure=position_table", "measure.rows=1024", "measure.shifts=[8]", "model/position=learned",
        "model.max_len=1024",
    ).metrics  # fmt: skip
    assert 0.95 < found["shift/free@8"] < 1.1


def test_a_map_of_few_rows_shifts_anything_unless_rows_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: residuals on the pairs that a map was fitted to. 12 rows of 16 columns always have a map."""
    subject = subject_of(compose([*TINY, *TABLE, "model/position=learned", "model.max_len=96"]))
    honest = made(12).measure(subject).metrics["shift/free@4"]
    split = PositionTable._split
    monkeypatch.setattr(PositionTable, "_split", lambda self, shift: (split(self, shift)[1], split(self, shift)[1]))
    assert made(12).measure(subject).metrics["shift/free@4"] < 1e-6 < 0.5 < honest


def test_what_could_not_be_measured_is_refused() -> None:
    for overrides, why in (
        (["model/position=rope"], "this model adds none"),
        (["model/position=sinusoidal", "model.d_model=128"], "of 128 × 128, for which the pairs of rows must be more"),
        (["model/position=learned"], "asks for 96 positions, but the table of Learned has 65; set model.max_len=96"),
    ):
        with pytest.raises(UsageError, match=why):
            check(compose([*TINY, *TABLE, *overrides]))
