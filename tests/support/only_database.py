"""A pytest plugin (`-p tests.support.only_database`): leaves out what touches no database, for it tells nothing of
another."""

from __future__ import annotations

import pytest

FIXTURES = frozenset({"db", "transactional_db", "django_db_reset_sequences", "django_db_serialized_rollback"})


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if not _uses_database(item)]
    items[:] = [item for item in items if _uses_database(item)]
    config.hook.pytest_deselected(items=left_out)


def _uses_database(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return item.get_closest_marker("django_db") is not None or not FIXTURES.isdisjoint(fixtures)
