"""Nested settings as dotted paths."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of each setting; agents are numbered from 0, as in the API. An empty list is a value."""
    children: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        children = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        children = [(str(place), item) for place, item in enumerate(value)]
    if not children:
        yield path, value
    for name, item in children:
        yield from flat(item, f"{path}.{name}" if path else name)
