"""What was wrong with a request, field by field; shown beside the fields of a form or as the API's one error shape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class FieldError:
    """`field` is the dotted path of what was wrong, None where no single field is to blame."""

    code: str
    message: str
    field: str | None

    def as_dict(self) -> dict[str, str | None]:
        return asdict(self)


class FieldErrors(ValueError):
    """A request that is refused; nothing was written."""

    def __init__(self, errors: Iterable[FieldError], status: int = 422) -> None:
        self.errors = list(errors)
        self.status = status
        super().__init__("; ".join(f"{e.field}: {e.message}" if e.field else e.message for e in self.errors))
