"""What a request to the API may hold: nothing that is not understood."""

from __future__ import annotations

from ninja import Schema
from pydantic import ConfigDict


class StrictBody(Schema):
    """A request body: unknown keys are refused, and true is no number."""

    model_config = ConfigDict(extra="forbid", strict=True)
