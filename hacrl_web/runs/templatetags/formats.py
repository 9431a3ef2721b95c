"""Template filters: numbers by the rules of `workers.contract.number_format`, and times."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from workers.contract import number_format
from workers.contract.number_format import MISSING

register = template.Library()
_DOC = re.compile(r"\bdocs/([A-Za-z-]+)\.md\b")


@register.filter
def significant(value: Any, digits: int = 3) -> str | SafeString:
    """Three significant digits, the full value on hover; an en dash if there is no number."""
    return with_full_value(value, lambda number: number_format.format_significant(number, digits))


@register.filter
def score(value: Any) -> str | SafeString:
    """An accuracy or a reward with three decimals, the full value on hover; an en dash if there is none."""
    return with_full_value(value, number_format.format_score)


@register.filter(name="learning_rate")
def learning_rate_text(value: Any) -> str | SafeString:
    """A learning rate as one types it."""
    return with_full_value(value, number_format.format_learning_rate)


@register.filter
def metric_value(value: Any, metric: str) -> str | SafeString:
    """A value of a recorded metric by the rule of its kind, the full value on hover."""
    return with_full_value(value, lambda number: number_format.format_metric(metric, number))


@register.filter
def signed_metric_value(value: float | None, metric: str) -> str:
    """A difference of two values of a recorded metric."""
    return MISSING if value is None else number_format.format_metric_difference(metric, value)


@register.filter
def doc_links(text: str) -> SafeString:
    """The text, in which `docs/NAME.md` is a link to that page, by its name in words."""
    parts = _DOC.split(text)  # text, name, text, ...
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    links = ((reverse("docs:page", args=[name.lower()]), name.replace("-", " "), after) for name, after in pairs)
    return format_html("{}{}", parts[0], format_html_join("", '<a href="{}">Docs: {}</a>{}', links))


def with_full_value(value: Any, written: Callable[[float], str]) -> str | SafeString:
    if value is None or value == "" or isinstance(value, bool):
        return MISSING
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if not math.isfinite(number):
        return str(number)
    short = written(number)
    return format_html('<span title="{}">{}</span>', value, short) if short != str(value) else short


@register.filter
def plain_significant(value: Any, digits: int = 3) -> str:
    """Three significant digits without the full value on hover: where the cell has a title of its own, and in files."""
    return MISSING if value is None else number_format.format_significant(float(value), digits)


@register.filter
def plain_score(value: Any) -> str:
    """A score without the full value on hover: where the cell has a title of its own, and in files."""
    return MISSING if value is None else number_format.format_score(float(value))


@register.filter
def signed(value: float) -> str:
    """A difference with its sign: `+0.216`, `−0.011`."""
    return f"{'−' if value < 0 else '+'}{number_format.format_significant(abs(value))}"


@register.filter
def signed_fixed(value: float) -> str:
    """A difference of scores with its sign and three decimals, which align: `+0.216`, `−0.011`, `0.000`."""
    return number_format.format_signed_score(value)


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
def with_breaks(path: str) -> SafeString:
    """A dotted path that may be broken after its dots and underscores, and nowhere else."""
    return format_html_join(SafeString("<wbr>"), "{}", ((part,) for part in re.findall(r"[^._]*[._]?", path) if part))


@register.filter
def size(num_bytes: Any) -> str:
    """`512 B`, `9.8 KiB`, `982 KiB`, `1.0 MiB`."""
    return MISSING if num_bytes is None or num_bytes == "" else number_format.format_size(float(num_bytes))


@register.filter
def count(value: Any) -> str:
    """A whole number with commas between thousands."""
    return MISSING if value is None or value == "" else number_format.format_count(int(value))


@register.filter
def amount(value: Any) -> str:
    """A sum of verdicts, a whole number: `12`; of rewards between 0 and 1 with three significant digits: `12.5`."""
    number = float(value)
    return number_format.format_count(number) if number.is_integer() else number_format.format_significant(number)


@register.filter
def duration(seconds: Any) -> str:
    """`42 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`."""
    return MISSING if seconds is None or seconds == "" else number_format.format_duration(float(seconds))


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
