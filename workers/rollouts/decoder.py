"""Step 2 of Algorithm 1, the fixed way: a token for all rows is one replay of a CUDA graph.

Where the cache of sampler.py grows, Python starts hundreds of kernels for each token. Here all that a token reads and
writes lies in tensors that stay where they are: the cache, the place of the next token in it, the random numbers, the
limits and what was chosen. So the kernels of one token, the choice of the next one included, are captured once for each
number of rows and of tokens to attend to, and replayed. Nothing waits for the device but a look at the rows after every
LOOK_EVERY tokens. On a CPU the same code runs without graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from workers import heartbeat
from workers.contract.memory.footprint import KV_ROOM
from workers.model.chunked_logprobs import Head
from workers.rollouts.sampler import (
    ReadPrompts,
    RoomyLayer,
    Sample,
    SampleRequest,
    next_logits,
    read_prompts,
    sample_growing,
    samples_of,
)
from workers.rollouts.token_sampling import Buffers, choose_tokens

LOOK_EVERY = 8  # tokens
ATTENDED = 128  # a step attends to a multiple of this many places
FEWEST_ROWS = 8
WARM_UPS = 2  # of a step before its capture: libraries prepare themselves for its shapes
GROUPED = "hacrl_grouped"  # attention of one new token, by its name in transformers
# Largest difference of log-probabilities from the growing way in the check of a model: bfloat16 rounds to .4 percent.
MOST_DIFFERENCE = 0.2


class NotFixed(Exception):
    """Why a model cannot be sampled from in the fixed way."""


class GraphKey(NamedTuple):
    """All that is written into the kernels of a captured step, apart from its rows and places."""

    model: int
    addresses: tuple[int, ...]  # of weights and buffers: loading or offloading moves them, an update does not
    device: torch.device
    dtype: torch.dtype
    attention: str
    vocabulary: int
    adapters: tuple[Any, ...]  # of each layer with LoRA: whether it is off, and its factors
    temperature: float
    top_p: float
    top_k: int
    stops: tuple[int, ...]
    textless: tuple[int, ...]
    has_head: bool


def graph_key(model: Any, request: SampleRequest, eos_ids: Sequence[int], head: Head | None) -> GraphKey:
    layers: list[Any] = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    config = model.config.get_text_config()
    return GraphKey(
        model=id(model),
        addresses=tuple(tensor.data_ptr() for tensor in chain(model.parameters(), model.buffers())),
        device=model.device,
        dtype=model.dtype,
        attention=config._attn_implementation,
        vocabulary=config.vocab_size,
        adapters=tuple((layer._disable_adapters, *layer.scaling.values()) for layer in layers),
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        stops=tuple(sorted(eos_ids)),
        textless=request.textless,
        has_head=head is not None,
    )


class Size(NamedTuple):
    """Room for rows of `places` tokens, `new` of them new."""

    rows: int
    places: int
    new: int

    def holding(self, other: Size) -> Size:
        return Size(*map(max, self, other))


class FixedDecoder:
    """Samples from one model. It keeps its tensors and graphs until `release`, or until they do not fit any more."""

    def __init__(self, *, graphs: bool = True) -> None:
        """graphs: on a GPU."""
        self._graphs = graphs
        self._is_checked = False
        self._steps: _Steps | None = None
        self._least = Size(0, 0, 0)

    def expect(self, request: SampleRequest) -> None:
        """A request that will come in batches: the first one gets room for all of them."""
        places = max(map(len, request.prompts)) + request.longest
        self._least = Size(min(request.batch_size, len(request.rows)), -(-places // KV_ROOM) * KV_ROOM, request.longest)

    def sample_batch(
        self,
        model: Any,
        request: SampleRequest,
        eos_ids: Sequence[int],
        decode: Callable[[Sequence[int]], str] | None,
        head: Head | None,
    ) -> list[Sample]:
        """As `sample`, in one batch. Error: NotFixed."""
        if not self._is_checked:
            check(model, head)
            self._is_checked = True
        prompts = read_prompts(model, request.prompts)
        places = -(-(prompts.width + request.longest) // KV_ROOM) * KV_ROOM
        size = self._least.holding(Size(len(request.rows), places, request.longest))
        key = graph_key(model, request, eos_ids, head)
        if self._steps is None or self._steps.key != key or self._steps.size != self._steps.size.holding(size):
            size = size if self._steps is None else self._steps.size.holding(size)
            self.release()
            self._steps = _Steps(model, request, head, prompts, key, size, has_graphs=self._graphs)
        return self._steps.sample(request, prompts, decode)

    def release(self) -> None:
        """Free all memory."""
        if self._steps is not None and self._steps.device.type == "cuda":
            self._steps = None
            torch.cuda.empty_cache()
        self._steps = None


def check(model: Any, head: Head | None) -> None:
    """Try both ways on five tokens. Error: NotFixed."""
    request = SampleRequest([[0, 1, 2], [1]], [0, 1, 1], [0, 1, 2], 0.0, 3, 3)
    decoder = FixedDecoder(graphs=False)
    decoder._is_checked = True
    fixed, growing = (
        decoder.sample_batch(model, request, [], None, head),
        sample_growing(model, request, [], None, head),
    )
    for one, other in zip(fixed, growing, strict=True):
        for token, logp, expected, expected_logp in zip(
            one.token_ids, one.logps, other.token_ids, other.logps, strict=True
        ):
            if abs(logp - expected_logp) > MOST_DIFFERENCE:
                raise NotFixed("its model computes something else with a cache of fixed size")
            if token != expected:  # a tie; from here on the texts differ
                break


def windows_of(model: Any, cache: Any) -> dict[str, int | None]:
    """The sliding window of each kind of layer, None without one. Error: NotFixed."""
    config = model.config.get_text_config()
    if other := {type(layer).__name__ for layer in cache.layers if type(layer) not in _GROWING}:
        raise NotFixed(f"its model's cache has layers of the kind {min(other)}")
    windows = [getattr(layer, "sliding_window", None) for layer in cache.layers]
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        kinds = ["chunked" if getattr(config, "attention_chunk_size", None) else f"{size}" for size in windows]
    elif len(kinds) != len(windows):
        raise NotFixed("layers of its model share their caches")
    found = dict(zip(kinds, windows, strict=True))
    if [found[kind] for kind in kinds] != windows or any("chunked" in kind for kind in kinds):
        raise NotFixed("its model's layers attend in other ways than with one sliding window")
    if config._attn_implementation not in ("sdpa", "eager"):
        raise NotFixed(f"its attention {config._attn_implementation} takes no mask of its own")
    return found


_GROWING = (RoomyLayer, DynamicLayer, DynamicSlidingWindowLayer)


class FixedLayer(DynamicLayer):
    """The first rows and places of one layer's cache, (a, heads, L, head_dim). slot: of a new token, (1,)."""

    def __init__(self, keys: Tensor, values: Tensor, slot: Tensor) -> None:
        super().__init__()
        self.keys, self.values, self._slot = keys, values, slot
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the states of one token, (a, heads, 1, head_dim); returns those of all places."""
        assert self.keys is not None
        assert self.values is not None
        self.keys.index_copy_(2, self._slot, key_states)
        self.values.index_copy_(2, self._slot, value_states)
        return self.keys, self.values


def grouped_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of one token in each row: query (a, heads, 1, d), key and value (a, groups, L, d), mask (a, 1, 1, L).

    The heads of a group take the place of tokens, so that its keys and values are read once, and not copied for each.
    """
    if kwargs.get("position_bias") is not None:
        raise NotFixed("its attention adds a bias by position")
    rows, heads, _, size = query.shape
    groups = key.shape[1]
    query = query.reshape(rows, groups, heads // groups, size)
    output = scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling)
    return output.reshape(rows, 1, heads, value.shape[-1]), None


ALL_ATTENTION_FUNCTIONS.register(GROUPED, grouped_attention)


@contextmanager
def _attention(model: Any) -> Iterator[None]:
    """Within: layers that use PyTorch's attention use `grouped_attention`."""
    config = model.config.get_text_config()
    before = config._attn_implementation_internal
    if before == "sdpa":
        config._attn_implementation_internal = GROUPED
    try:
        # cuDNN's attention would be compiled for each shape; only these take a mask.
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
            yield
    finally:
        config._attn_implementation_internal = before


class _Steps:
    """The tensors of fixed size, and a graph for each number of rows and of places.

    Outputs are by the row of a request, and one more that nobody reads; what goes through the model is by place in the
    batch, of which the first are in use. `alive` says which row is there.
    """

    def __init__(
        self,
        model: Any,
        request: SampleRequest,
        head: Head | None,
        prompts: ReadPrompts,
        key: GraphKey,
        size: Size,
        *,
        has_graphs: bool,
    ) -> None:
        """Error: NotFixed."""
        self.key, self.size, self.device = key, size, model.device
        self._model, self._head, self._choice = model, head, request
        self._windows = windows_of(model, prompts.cache)
        device, rows = model.device, size.rows
        # Keys and values of unused places have no weight, but would not be 0 times a number that is none: zeros.
        self._layers = [
            tuple(states.new_zeros(rows, states.shape[1], size.places, states.shape[3]) for states in pair)
            for pair in ((layer.keys, layer.values) for layer in prompts.cache.layers)
        ]
        self._buffers = Buffers(rows, prompts.logits.shape[-1], device, request.textless)
        self._place = torch.arange(size.places, device=device)  # (L,)
        self._stops = torch.tensor(key.stops, dtype=torch.long, device=device)

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        self._alive, self._padding = zeros(rows), zeros(rows)
        self._token, self._position = zeros(rows, 1), zeros(rows, 1)  # the last one of each row
        self._slot, self._step = zeros(1), zeros(1)  # of the last token in the cache; of the next one in the outputs
        self._noise = zeros(rows + 1, size.new, dtype=torch.float64)
        self._tokens = zeros(rows + 1, size.new)
        self._logps, self._entropies = zeros(2, rows + 1, size.new, dtype=torch.float32)
        self._limits, self._lengths = zeros(rows + 1), zeros(rows + 1)
        self._finished = zeros(rows + 1, dtype=torch.bool)
        self._has_graphs = has_graphs and device.type == "cuda"
        self._graphs: dict[tuple[int, int], Any] = {}
        if self._has_graphs:
            self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)

    def sample(
        self, request: SampleRequest, prompts: ReadPrompts, decode: Callable[[Sequence[int]], str] | None
    ) -> list[Sample]:
        num_rows, total = len(request.rows), request.longest
        rows = self._bucket(num_rows)
        has_stop = [False] * num_rows
        self._choose(self._begin(request, prompts, rows), rows)
        looked, written = 0, 1
        while written < total:
            count = min(LOOK_EVERY, total - written)
            decode_token = self._ready(rows, prompts.width + written + count - 1)
            for _ in range(count):
                heartbeat.send_heartbeat()
                decode_token()
            written += count
            if request.stop and decode is not None:
                self._find_stops(request, decode, has_stop, looked, written)
            looked = written
            unfinished = self._is_open(self._alive[:rows]).nonzero()[:, 0]
            if not len(unfinished):
                break
            if self._bucket(len(unfinished)) <= rows // 2:
                rows = self._select(unfinished, prompts.width + written)
        if looked < written and request.stop and decode is not None:
            self._find_stops(request, decode, has_stop, looked, written)
        columns = [column[:num_rows, :total] for column in (self._tokens, self._logps, self._entropies)]
        return samples_of(columns, self._lengths[:num_rows], self._finished[:num_rows], has_stop)

    def _bucket(self, num_rows: int) -> int:
        """Places of the batch for so many rows: 8, 12, 16, 24, 32, 48 and so on, or all."""
        size = FEWEST_ROWS
        while size < num_rows:
            size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
        return min(size, self.size.rows)

    def _begin(self, request: SampleRequest, prompts: ReadPrompts, rows: int) -> Tensor:
        """Fill everything for a batch; returns the logits of its first tokens, (a, V)."""
        num_rows, total = len(request.rows), request.longest
        unused = [request.rows[0]] * (rows - num_rows)
        prompt = torch.tensor([*request.rows, *unused], device=self.device)  # (a,)
        while prompts.cache.layers:
            layer = prompts.cache.layers.pop()  # a layer at a time: its copy lies beside it
            for room, states in zip(self._layers[len(prompts.cache.layers)], (layer.keys, layer.values), strict=True):
                room.zero_()
                room[:rows, :, prompts.width - states.shape[2] : prompts.width] = states[prompt]
        self._alive.fill_(self.size.rows)
        self._alive[:num_rows] = torch.arange(num_rows, device=self.device)
        self._padding[:rows] = prompts.width - prompts.lengths[prompt]
        self._position[:rows, 0] = prompts.lengths[prompt] - 1
        self._slot.fill_(prompts.width - 1)
        self._noise[:num_rows, :total] = request.noise.to(self.device)
        limits = torch.tensor(request.limits or [total] * num_rows, device=self.device)
        self._limits.zero_()[:num_rows] = limits
        for tensor in (self._step, self._lengths, self._finished):
            tensor.zero_()
        return prompts.logits[prompt]

    def _is_open(self, alive: Tensor) -> Tensor:
        """Whether rows go on, (a,)."""
        return ~self._finished[alive] & (self._lengths[alive] < self._limits[alive])

    def _ready(self, rows: int, places: int) -> Callable[[], None]:
        """A function that writes the next token of `rows` rows, with at least `places` places."""
        places = min(-(-places // ATTENDED) * ATTENDED, self.size.places)
        if not self._has_graphs:
            return lambda: self._decode(rows, places)
        if (rows, places) not in self._graphs:
            self._graphs[rows, places] = self._captured(rows, places)
        replay: Callable[[], None] = self._graphs[rows, places].replay
        return replay

    def _captured(self, rows: int, places: int) -> torch.cuda.CUDAGraph:
        """The graph of `_decode`. It is tried before, on rows that nobody reads; what it changes is put back."""
        state = [self._alive, self._token, self._position, self._slot, self._step]
        saved = [tensor.clone() for tensor in state]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    self._alive.fill_(self.size.rows)
                    self._decode(rows, places)
                    for tensor, before in zip(state, saved, strict=True):
                        tensor.copy_(before)
                # Other threads may use the GPU meanwhile.
                with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                    self._decode(rows, places)
            torch.cuda.current_stream().wait_stream(self._stream)
        return graph

    def _decode(self, rows: int, places: int) -> None:
        """One more token in each row."""
        with _attention(self._model):
            logits = self._logits(rows, places)
        self._choose(logits, rows)

    def _logits(self, rows: int, places: int) -> Tensor:
        """The logits of each row's next token, (a, V), from the row's last token."""
        layers: list[Any] = [
            FixedLayer(keys[:rows, :, :places], values[:rows, :, :places], self._slot) for keys, values in self._layers
        ]
        place, masks = self._place[:places], {}
        visible = (place <= self._slot) & (place >= self._padding[:rows, None])  # (a, L)
        for kind, window in self._windows.items():
            inside = visible if window is None else visible & (place > self._slot - window)
            # Of numbers, to be added: PyTorch would convert one of truth values in every layer.
            mask = torch.zeros(rows, 1, 1, places, dtype=self._layers[0][0].dtype, device=self.device)
            masks[kind] = mask.masked_fill_(~inside[:, None, None], torch.finfo(mask.dtype).min)
        inputs = {
            "input_ids": self._token[:rows],
            "attention_mask": masks if len(masks) > 1 else next(iter(masks.values())),
            "position_ids": self._position[:rows],
            "past_key_values": Cache(layers=layers),
            "use_cache": True,
        }
        return next_logits(self._model, self._head, inputs)

    def _choose(self, logits: Tensor, rows: int) -> None:
        """Write down the next token of each row, chosen from logits (a, V)."""
        alive, step = self._alive[:rows], self._step
        noise = self._noise[alive, step]  # (a,)
        token, logp, entropy = choose_tokens(logits, noise, self._choice, self._buffers, logits.shape[-1])
        for column, value in ((self._tokens, token), (self._logps, logp), (self._entropies, entropy)):
            column.index_put_((alive, step), value.to(column.dtype))
        is_open = self._is_open(alive)
        ends = (token[:, None] == self._stops).any(dim=1) & is_open
        self._lengths.index_put_((alive,), self._lengths[alive] + is_open)
        self._finished.index_put_((alive,), self._finished[alive] | ends)
        self._token[:rows].copy_(token[:, None])
        # A row that has ended stays at its last place: behind it may be the end of the model's context.
        self._position[:rows].add_(is_open[:, None])
        self._slot.add_(1)
        self._step.add_(1)

    def _select(self, unfinished: Tensor, used: int) -> int:
        """Keep those places of the batch; returns how many it has then. used: places of the cache that are written."""
        rows = self._bucket(len(unfinished))
        kept = torch.cat([unfinished, unfinished[:1].expand(rows - len(unfinished))])  # (a,)
        for states in chain.from_iterable(self._layers):
            states[:rows, :, :used] = states[kept, :, :used]
        for tensor in (self._alive, self._padding, self._token, self._position):
            tensor[:rows] = tensor[kept]
        self._alive[len(unfinished) : rows] = self.size.rows
        return rows

    def _find_stops(
        self,
        request: SampleRequest,
        decode: Callable[[Sequence[int]], str],
        has_stop: list[bool],
        looked: int,
        written: int,
    ) -> None:
        """End rows at the first token since `looked` that completes a stop string."""
        first = max(0, looked + 1 - request.stop_tail)
        num_rows = len(has_stop)
        texts = self._tokens[:num_rows, first:written].tolist()
        ends = zip(self._lengths[:num_rows].tolist(), self._finished[:num_rows].tolist(), strict=True)
        found = []
        for row, (ids, (length, is_finished)) in enumerate(zip(texts, ends, strict=True)):
            if has_stop[row]:
                continue
            for end in range(looked + 1, length + (not is_finished)):  # an EOS is no text
                text = decode(ids[max(0, end - request.stop_tail - first) : end - first])
                if any(stop in text for stop in request.stop):
                    has_stop[row] = True
                    found.append((row, end))
                    break
        if found:
            rows, lengths = torch.tensor(found, device=self.device).T
            self._lengths[rows] = lengths
            self._finished[rows] = True
