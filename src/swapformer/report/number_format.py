"""Numbers as text: as many digits as their uncertainty allows, true minus signs, and open ends of intervals.

Everything that the page, the terminal, figures and `table.md` say of a number goes through here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

DASH = "–"


def decimals(scale: float) -> int:
    """The number of decimals that shows `scale` (usually half an interval) with two significant digits."""
    if not math.isfinite(scale) or scale <= 0:
        return 4
    return min(max(1 - math.floor(math.log10(scale)), 0), 8)


def number(value: float, digits: int, signed: bool = False) -> str:
    """A number with this many decimals; a dash for nan. Where few decimals matter, what is smaller than these is 0."""
    if math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and (abs(value) >= 1e7 or (abs(value) < 1e-5 and digits > 3)):
        text = f"{value:+.2e}" if signed else f"{value:.2e}"
    else:
        text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    if not text.strip("+-0."):
        text = text.lstrip("+-")  # a rounded zero has no sign
    return text.replace("-", "−")


def interval(lower: float, upper: float, digits: int, signed: bool = False) -> str:
    """`[lower, upper]`, with a round bracket at an open end; a dash where both ends are open."""
    if (math.isinf(lower) and math.isinf(upper)) or math.isnan(lower) or math.isnan(upper):
        return DASH
    left, right = "(" if math.isinf(lower) else "[", ")" if math.isinf(upper) else "]"
    return f"{left}{number(lower, digits, signed)}, {number(upper, digits, signed)}{right}"


def decimals_for(value: float, lower: float, upper: float) -> int:
    """Decimals for a value with this interval: by the wider half, by the value itself where both ends are open."""
    halves = [abs(edge - value) for edge in (lower, upper) if math.isfinite(edge) and edge != value]
    if halves:
        return decimals(max(halves))
    return decimals(abs(value) / 10) if math.isfinite(value) and value != 0 else 1


def value_text(value: float, lower: float, upper: float, signed: bool = False) -> str:
    """A value in as many digits as its interval allows."""
    return number(value, decimals_for(value, lower, upper), signed)


def limits_text(value: float, lower: float, upper: float, signed: bool = False) -> str:
    """The interval of a value, in the value's digits."""
    return interval(lower, upper, decimals_for(value, lower, upper), signed)


def difference_text(value: float, usual: tuple[float, float], limits: tuple[float, float] | None = None) -> str:
    """`+0.143 [+0.121, +0.165]`: a difference with some `limits`, by default its uncorrected 95 % ones, `usual`.

    The digits are always those that `usual` allows, so that a difference is shown alike in verdicts, whose limits are
    corrected for several claims, and in tables and figures, whose limits are not.
    """
    digits = decimals_for(value, *usual)
    return f"{number(value, digits, signed=True)} {interval(*(limits or usual), digits, signed=True)}"


def interval_text(value: float, lower: float, upper: float, signed: bool = False) -> str:
    """`1.234 [1.221, 1.247]`; four decimals and no brackets where neither end is finite."""
    if not (math.isfinite(lower) or math.isfinite(upper)):
        return number(value, 4, signed)
    return f"{value_text(value, lower, upper, signed)} {limits_text(value, lower, upper, signed)}"


def compact(value: float) -> str:
    """A finite number in at most three significant digits, or whole, without trailing zeros (axis values)."""
    text = f"{value:.3g}" if abs(value) < 1000 or abs(value) >= 1e7 else f"{value:.0f}"
    return text.replace("-", "−")


def stated(value: float) -> str:
    """A finite number that somebody wrote down, such as a margin, as it was written."""
    return f"{value:.10g}".replace("-", "−")


def p_value(p: float) -> str:
    """`< .001`, or three decimals, or a dash."""
    if math.isnan(p):
        return DASH
    return "< .001" if p < 0.001 else f"{p:.3f}".lstrip("0") if p < 1 else "1"


def percent(share: float) -> str:
    """A share in percent, with decimals only where they matter (corrected levels like 99.17 %)."""
    if 0 < share < 5e-5:
        return "less than 0.01 %"
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + " %"


def large(value: float) -> str:
    """A count with thin spaces between thousands."""
    return DASH if math.isnan(value) else f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def scaled(value: float, digits: int = 3) -> str:
    """A large number in so many significant digits (at least 3) with a prefix: `1.23 T`."""
    if math.isnan(value):
        return DASH
    for prefix in ("", " k", " M", " G", " T", " P"):
        if abs(value) < 999.5:
            return f"{value:.{digits}g}{prefix}"
        value /= 1000
    return f"{value:.{digits}g} E"


def signed_percent(share: float) -> str:
    """A share with its sign in percent, two significant digits: `+0.12 %`."""
    return f"{number(100 * share, min(decimals(abs(100 * share)), 3), signed=True)} %" if share else "0 %"


def duration(seconds: float) -> str:
    """Seconds in the two largest units."""
    if math.isnan(seconds):
        return DASH
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def digits_for(low: float, high: float) -> int:
    """Significant digits, at least three, that keep the ticks of an axis from `low` to `high` apart."""
    if not 0 < abs(high - low) < math.inf:
        return 3
    return max(3, 1 + math.ceil(math.log10(20 * max(abs(low), abs(high)) / abs(high - low))))


def size(count: float) -> str:
    """Bytes with a prefix: `1.23 MB`."""
    text = scaled(count)
    return text if text == DASH else f"{text}B" if text[-1].isalpha() else f"{text} B"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
