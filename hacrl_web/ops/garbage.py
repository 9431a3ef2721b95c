"""Python's garbage collector in processes that answer requests."""

import gc

from django.urls import get_resolver


def spare_loaded_modules() -> None:
    """Load the pages and the API; full collections leave out all objects that live from now on.

    They are some 200,000, and a full collection that visits them holds every request for a tenth of a second.
    """
    get_resolver().url_patterns  # noqa: B018  which the first request would load
    gc.collect()
    gc.freeze()
