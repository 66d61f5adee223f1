"""Laws of loss over size: known laws are found again, and what is no law is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from swapformer.report.statistics.scaling_law import Unfit, fit, misfit

C = 1e12 * 4.0 ** np.arange(5)


def test_the_law_of_a_line_is_found_again() -> None:
    """Oracle: L = 1.5 + 2 (C / 10¹²)^−.12 without noise, and scipy's curve_fit with some."""
    losses = 1.5 + 2 * (C / 1e12) ** -0.12
    law = fit(losses, C)
    assert law.floor == pytest.approx(1.5, abs=1e-3) and law.exponent == pytest.approx(0.12, abs=1e-3)
    assert law.loss(C) == pytest.approx(losses, abs=1e-6)
    assert law.log_computation(float(law.loss(C[2]))) == pytest.approx(math.log(C[2]))
    assert law.log_computation(law.floor - 0.1) == math.inf
    noisy = losses + np.random.default_rng(1).normal(0, 0.004, len(C))
    found, _ = optimize.curve_fit(lambda c, e, a, x: e + a * c**-x, C / 1e12, noisy, p0=[1.5, 2, 0.12], maxfev=20000)
    assert fit(noisy, C).loss(C) == pytest.approx(found[0] + found[1] * (C / 1e12) ** -found[2], abs=1e-4)


def test_what_is_no_law_is_refused() -> None:
    with pytest.raises(Unfit, match="at least 4 sizes, but has 3"):
        fit(np.array([3.0, 2.0, 1.0]), C[:3])
    with pytest.raises(Unfit, match="does not fall with size"):
        fit(np.array([1.0, 1.1, 1.2, 1.3, 1.4]), C)


def test_the_residuals_tell_a_wrong_form_and_keep_their_level_for_a_right_one() -> None:
    """A step between sizes is no power; of true laws 1 % are refused at 1 %."""
    generator = np.random.default_rng(0)
    true = 1.5 + 2 * (C / 1e12) ** -0.12
    step = np.array([3.5, 3.4, 2.2, 2.15, 2.1])
    p_values = []
    for losses, refused in ((true, False), (step, True)):
        for _ in range(150 if not refused else 5):
            seeds = losses[:, None] + generator.normal(0, 0.01, (5, 5))
            p = misfit(fit(seeds.mean(axis=1), C), seeds, C)
            if refused:
                assert p < 1e-6
            else:
                p_values.append(p)
    assert np.mean(np.array(p_values) < 0.05) <= 0.12 and 0.3 < np.median(p_values) < 0.7
    assert math.isnan(misfit(fit(true[:4], C[:4]), true[:4, None], C[:4]))
