"""Template filters: how numbers, durations, sizes and times are written."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

MISSING = "–"


@register.filter
def significant(value: Any, digits: int = 3) -> str | SafeString:
    """Three significant digits, the full value on hover; an en dash if there is no number."""
    if value is None or value == "" or isinstance(value, bool):
        return MISSING
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if not math.isfinite(number):
        return str(number)
    short = _short(number, digits)
    return format_html('<span title="{}">{}</span>', value, short) if short != str(value) else short


@register.filter
def plain_significant(value: Any, digits: int = 3) -> str:
    """Three significant digits without the full value on hover: where the cell has a title of its own, and in files."""
    return MISSING if value is None else _short(float(value), digits)


@register.filter
def signed(value: float) -> str:
    """A difference with its sign: `+0.216`, `−0.011`."""
    return f"{'−' if value < 0 else '+'}{_short(abs(value), 3)}"


@register.filter
def signed_fixed(value: float) -> str:
    """A difference of shares with its sign and three decimals, which align: `+0.216`, `−0.011`, `0.000`."""
    text = f"{abs(value):.3f}"
    return text if float(text) == 0 else f"{'−' if value < 0 else '+'}{text}"


def _short(number: float, digits: int) -> str:
    if number == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(number)))
    if -4 <= magnitude < 6:
        text = f"{number:.{max(0, digits - 1 - magnitude)}f}"
        return _grouped(text)
    return f"{number:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e")


def _grouped(text: str) -> str:
    whole, point, rest = text.partition(".")
    return f"{int(whole):,}".replace(",", "\u202f") + point + rest if abs(int(whole)) >= 10_000 else text


@register.filter
def plain(value: Any) -> str:
    """A setting or a number in words, without markup: yes and no, an en dash for nothing, lists and objects as JSON."""
    if value is None or value == "" or value == {} or value == [] or value == ():
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


@register.filter
def size(num_bytes: Any) -> str:
    """`512 B`, `9.8 KiB`, `982 KiB`, `1.0 MiB`."""
    if num_bytes is None or num_bytes == "":
        return MISSING
    amount = float(num_bytes)
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if round(amount) < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.95 else f"{amount:.1f} {unit}"


@register.filter
def count(value: Any) -> str:
    """A whole number with thin spaces between thousands."""
    return MISSING if value is None or value == "" else f"{int(value):,}".replace(",", "\u202f")


@register.filter
def duration(seconds: Any) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`."""
    if seconds is None or seconds == "":
        return MISSING
    total = float(seconds)
    if not math.isfinite(total) or total < 0:
        return MISSING
    if total < 10:
        return f"{total:.1f} s"
    whole = round(total)
    if whole < 60:
        return f"{whole} s"
    minutes, second = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {second:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


@register.filter
def when(moment: datetime | None) -> str | SafeString:
    """Relative time with the absolute on hover."""
    if moment is None:
        return MISSING
    seconds = (timezone.now() - moment).total_seconds()
    words = (
        "just now" if abs(seconds) < 5 else f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}"
    )
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        moment.isoformat(timespec="seconds"),
        moment.strftime("%Y-%m-%d %H:%M:%S UTC"),
        words,
    )


@register.filter
def percent(value: Any) -> str:
    """`63.2 %` of a share from 0 to 1."""
    return MISSING if value is None or value == "" else f"{100 * float(value):.1f} %"


@register.filter
def middle(text: Any) -> str:
    """A long id, cut in the middle."""
    text = str(text)
    return text if len(text) <= 13 else f"{text[:6]}…{text[-4:]}"
