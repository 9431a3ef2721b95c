"""Who may see which rows: the one rule that every list, page, socket and export goes through."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models

RowT = TypeVar("RowT", bound=models.Model)


class OwnedQuerySet(models.QuerySet[RowT]):
    """Rows with an `owner`."""

    def visible_to(self, user: Any) -> OwnedQuerySet[RowT]:
        """The user's own rows, all rows for staff, none for a visitor who is not logged in."""
        if not user.is_authenticated:
            return self.none()
        if user.is_staff:
            return self.all()
        return self.filter(owner=user)
