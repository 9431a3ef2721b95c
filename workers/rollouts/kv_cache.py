"""The KV cache of sampling: transformers' own, but a new token is written in place; nothing before it is copied.

Only layers that keep every token are changed; sliding windows and other kinds stay as the model's configuration says.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

# Tokens of free space at each growth. transformers' layer has none: every token copies the whole cache.
ROOM = 64


class RoomyLayer(DynamicLayer):
    """Keys and values are views of larger tensors, (r, heads, tokens + room, head_dim)."""

    def __init__(self) -> None:
        super().__init__()
        self._rooms: dict[str, Tensor] = {}

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the states of new tokens, (r, heads, new, head_dim); returns those of all tokens."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self._append("keys", self.keys, key_states)
        self.values = self._append("values", self.values, value_states)
        return self.keys, self.values

    def _append(self, name: str, held: Tensor | None, new: Tensor) -> Tensor:
        past = held if held is not None and held.numel() else None
        start = 0 if past is None else past.shape[-2]
        end = start + new.shape[-2]
        room = self._rooms.get(name)
        # Rows that were selected or repeated since then are another tensor, without room.
        if room is None or room.shape[-2] < end or (past is not None and past.data_ptr() != room.data_ptr()):
            room = self._rooms[name] = new.new_empty(*new.shape[:-2], end + ROOM, new.shape[-1])
            if past is not None:
                room[..., :start, :] = past
        room[..., start:end, :] = new
        return room[..., :end, :]


def sampling_cache(config: Any) -> DynamicCache:
    """An empty cache for a model's configuration."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
