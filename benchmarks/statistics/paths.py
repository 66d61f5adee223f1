"""How often a verdict is wrong on the paths that people take: claims, arms, conditions and trials that come and go.

Every claim says that an arm is better by exactly what it truly is, so each support is false. `counted` follows the
rules of `swapformer.report.statistics.look_path`; `not counted` is the fault that each of them mends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from scipy import special

from benchmarks.statistics.laws import FloatArray
from swapformer.report.statistics.holm import holm_levels
from swapformer.report.statistics.look_path import next_error

Row = dict[str, float]
SEEDS = 5
"""Of each arm, where a path has no seeds of its own."""
CORRELATION = 0.9
"""Of numbers that are derived in several ways from the same trials."""


def paths() -> Iterator[tuple[str, Callable[[int, int], Row]]]:
    """Each path, with what simulates so many studies of it."""
    for arms in (4, 8):
        yield f"claims on one arm at a time, {arms} arms", partial(_one_arm_at_a_time, arms)
    yield "a claim on a; on a and c; then a is taken out", _deleted_claim
    yield "claims on 12 arms; only the best is left after a look at 3 of 5 seeds", partial(_left_alone, 12, 3)
    yield "claims on 12 arms; only the best is left after 4 of 5 seeds without a look", partial(_left_alone, 12, 4)
    yield "a number derived in ten ways, one after another", partial(_definitions, 10)
    for conditions in (2, 6):
        yield f"conditions added one after another, {conditions}", partial(_one_arm_at_a_time, conditions)
    yield "an arm added, with a report at 2, 3 … 8 of its seeds", _arm_that_trains
    yield "failed trials run again: 3, 4, then 5 of 5", _rerun
    yield "the folder deleted, an arm more: 5, 8, 12 seeds", _deleted_folder
    yield "a claim on a; four later claims with half of the error reserved", _reserved
    for arms in (3, 6, 20):
        yield f"a claim on the best of {arms} arms, written after the tables were read", partial(_best_of, arms)


def errors(looks: int, reserved: bool = False) -> list[float]:
    """The errors of so many looks, each at all that is stated."""
    spent: list[float] = []
    for _ in range(looks):
        spent.append(next_error(spent, all_stated=True, reserved=reserved))
    return spent


def _p(values: FloatArray, baseline: FloatArray) -> FloatArray:
    """P-values [studies, arms] that arms [studies, arms, n] are better than a baseline [studies, n]."""
    apart = values - baseline[:, None]
    n = apart.shape[2]
    t = apart.mean(axis=2) / (apart.std(axis=2, ddof=1) / np.sqrt(n))
    return np.asarray(special.stdtr(n - 1, -t))


def _draw(seed: int, studies: int, arms: int, n: int = SEEDS) -> tuple[FloatArray, FloatArray]:
    draw = np.random.default_rng([seed, studies, arms, n])
    return draw.normal(size=(studies, arms, n)), draw.normal(size=(studies, n))


def _any(p: FloatArray, levels: Sequence[float]) -> float:
    """The share of studies of which any p-value is at most its level."""
    return float((p <= np.asarray(levels)).any(axis=1).mean())


def _one_arm_at_a_time(arms: int, studies: int, seed: int) -> Row:
    p = _p(*_draw(seed, studies, arms))
    return {"counted": _any(p, errors(arms)), "not counted": _any(p, [0.04] * arms)}


def _deleted_claim(studies: int, seed: int) -> Row:
    """With the fault, a claim that is left alone is judged at the first look, which was before it was stated."""
    p = _p(*_draw(seed, studies, 2))
    first, second = errors(2)
    return {"counted": _any(p, [first, second]), "not counted": _any(p, [first, first])}


def _left_alone(arms: int, known: int, studies: int, seed: int) -> Row:
    """The best of so many arms at some of the seeds is judged at all of them; with the fault, as if it were alone.

    After a look both looks have half of the error; four seeds are read without one, as from files of single trials.
    """
    values, baseline = _draw(seed, studies, arms)
    best = (values[:, :, :known] - baseline[:, None, :known]).mean(axis=2).argmax(axis=1)
    chosen = _p(np.take_along_axis(values, best[:, None, None], axis=1), baseline)[:, 0]
    (share,) = errors(1)
    wrong = np.zeros(studies, dtype=bool)
    if known == 3:
        share /= 2
        wrong = _p(values[:, :, :known], baseline[:, :known]).min(axis=1) <= share / arms
    return {
        "counted": float((wrong | (chosen <= share / arms)).mean()),
        "not counted": float((wrong | (chosen <= share)).mean()),
    }


def _definitions(ways: int, studies: int, seed: int) -> Row:
    draw = np.random.default_rng([seed, ways])
    shared = draw.normal(size=(studies, 1, SEEDS))
    own = draw.normal(size=(studies, ways, SEEDS))
    values = np.sqrt(CORRELATION) * shared + np.sqrt(1 - CORRELATION) * own
    p = _p(values, np.zeros((studies, SEEDS)))
    return {"counted": _any(p, errors(ways)), "not counted": _any(p, [0.04] * ways)}


def _arm_that_trains(studies: int, seed: int) -> Row:
    """The first claim is judged with all its seeds; the added one at each number of seeds that has ended."""
    values, baseline = _draw(seed, studies, 2, 8)
    counts = range(2, 9)
    first = _p(values[:, :1], baseline)
    added = np.concatenate([_p(values[:, 1:, :n], baseline[:, :n]) for n in counts], axis=1)
    p, spent = np.concatenate([first, added], axis=1), errors(1 + len(counts))
    return {"counted": _any(p, spent), "not counted": _any(p, [spent[0], *[spent[1]] * len(counts)])}


def _rerun(studies: int, seed: int) -> Row:
    """A look keeps its data, and what was run again is judged at the next one."""
    values, baseline = _draw(seed, studies, 1)
    p = np.concatenate([_p(values[:, :, :n], baseline[:, :n]) for n in (3, 4, 5)], axis=1)
    return {"counted": _any(p, errors(3)), "not counted": _any(p, [0.04] * 3)}


def _deleted_folder(studies: int, seed: int) -> Row:
    """Each time the study is judged as if for the first time."""
    values, baseline = _draw(seed, studies, 1, 12)
    p = np.concatenate([_p(values[:, :, :n], baseline[:, :n]) for n in (5, 8, 12)], axis=1)
    return {"counted": _any(p, errors(3)), "not counted": _any(p, [0.04] * 3)}


def _reserved(studies: int, seed: int) -> Row:
    p = _p(*_draw(seed, studies, 5))
    return {"counted": _any(p, errors(5, reserved=True)), "not counted": _any(p, [0.04] * 5)}


def _best_of(arms: int, studies: int, seed: int) -> Row:
    """Counted are verdicts without the mark “stated after results were seen”: five seeds more decide alike alone."""
    values, baseline = _draw(seed, studies, arms, 2 * SEEDS)
    seen = _p(values[:, :, :SEEDS], baseline[:, :SEEDS])
    best = seen.argmin(axis=1)
    chosen = np.take_along_axis(values, best[:, None, None], axis=1)
    (level,) = holm_levels([0.0], errors(1)[0])
    of_all = _p(chosen, baseline)[:, 0] <= level
    later = _p(chosen[:, :, SEEDS:], baseline[:, SEEDS:])[:, 0] <= level
    return {"counted": float((of_all & later).mean()), "not counted": float((seen.min(axis=1) <= level).mean())}
