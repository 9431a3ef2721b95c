"""`torch`, loaded at its first use: the web reads settings and weights from files that also hold losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
else:

    class _Lazy:
        def __getattr__(self, name: str) -> Any:
            import torch as loaded

            return getattr(loaded, name)

    torch = _Lazy()

__all__ = ["torch"]
