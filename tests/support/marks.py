"""Parameters of tests that only `./hacrl test full` takes."""

from __future__ import annotations

from typing import Any

import pytest


def in_full(*values: Any) -> list[Any]:
    """A tuple is one set of parameters."""
    sets = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*one, marks=pytest.mark.full) for one in sets]
