"""How numbers are written on pages, in charts, on the command line and in messages: one rule for each kind.

`frontend/static/js/lib/format.js` is the same in the browser; `tests/data/numbers.json` has the cases that both meet.
"""

from __future__ import annotations

import math
import re

MISSING = "–"
# Metrics from 0 to 1 that are read in columns; all others have three significant digits.
_SCORE = re.compile(r"(accuracy|capability|reward|clip_ratio|frac_\w+)(/|$)|\w+@|.*(_frac|clipped_ratio)(/|$)")


def format_score(value: float) -> str:
    """An accuracy, a reward or another number from 0 to 1: three decimals, which align in a column. `0.020`."""
    text = f"{value:.3f}"
    return text.lstrip("-") if float(text) == 0 else text


def format_signed_score(value: float) -> str:
    """A difference of scores: `+0.216`, `−0.011`, `0.000`."""
    text = format_score(abs(value))
    return text if float(text) == 0 else f"{'−' if value < 0 else '+'}{text}"


def format_significant(value: float, digits: int = 3) -> str:
    """A measurement: three significant digits, thousands separated. `0.0200`, `12.3`, `1,234`, `1.23e-7`."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    magnitude = math.floor(math.log10(abs(value)))
    if -4 <= magnitude < 6:
        return f"{value:,.{max(0, digits - 1 - magnitude)}f}"
    return _scientific(f"{value:.{digits - 1}e}")


def format_learning_rate(value: float) -> str:
    """A learning rate or another small setting, as one types it: `4e-4`, `1.5e-6`, `0.05`."""
    if value == 0 or abs(value) >= 0.01:
        return f"{value:g}"
    mantissa, _, exponent = f"{value:.5e}".partition("e")
    return _scientific(f"{mantissa.rstrip('0').rstrip('.')}e{exponent}")


def _scientific(text: str) -> str:
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}"


def format_count(value: float) -> str:
    """A whole number with its thousands separated: `100,224`."""
    return f"{round(value):,}"


def format_size(num_bytes: float) -> str:
    """`512 B`, `9.8 KiB`, `982 KiB`, `1.0 MiB`."""
    amount, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if round(amount) < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.95 else f"{amount:.1f} {unit}"


def format_duration(seconds: float) -> str:
    """`4.2 s`, `42 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`; a dash for what is no duration."""
    if not math.isfinite(seconds) or seconds < 0:
        return MISSING
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, second = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {second:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def is_score(metric: str) -> bool:
    """Whether a metric is a number from 0 to 1, by its name."""
    return _SCORE.match(metric) is not None


def format_metric(metric: str, value: float) -> str:
    """A value of a recorded metric, by the rule of its kind."""
    if metric == "learning_rate":
        return format_learning_rate(value)
    return format_score(value) if is_score(metric) else format_significant(value)


def format_metric_difference(metric: str, value: float) -> str:
    """A difference of two values of a recorded metric: `+0.216`, `−1.20`."""
    if is_score(metric):
        return format_signed_score(value)
    return f"{'−' if value < 0 else '+'}{format_metric(metric, abs(value))}"
