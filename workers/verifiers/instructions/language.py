"""The language of a text, by py3langid where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

LIBRARY = "py3langid"
MAX_CHARACTERS = 5000


def is_available() -> bool:
    """Whether the library is installed."""
    return find_spec(LIBRARY) is not None


def language_of(text: str) -> str:
    """The code of ISO 639-1, such as `de`. Capitals throughout count as small letters."""
    from py3langid import classify  # its model takes a second to load

    text = text[:MAX_CHARACTERS]
    return str(classify(text.lower() if text.isupper() else text)[0])
