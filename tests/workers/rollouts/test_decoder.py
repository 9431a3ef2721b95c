"""The cache of fixed size: its rollouts are those of the growing one, with every way to choose and to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.support.marks import in_full
from tests.support.workers.tiny import make_pair, make_spec, records, train, weights
from workers.contract.spec.agent import AgentSpec
from workers.model import lora
from workers.model.chunked_logprobs import Head
from workers.rollouts import decoder, token_sampling
from workers.rollouts.decoder import FixedDecoder, GraphKey, NotFixed, graph_key, windows_of
from workers.rollouts.engine import TransformersEngine
from workers.rollouts.sampler import Sample, SampleRequest, sample, sampling_cache

WINDOW = 6
EOS = [3, 12]
SHAPES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "qwen3 with windows": (
        Qwen3Config,
        Qwen3ForCausalLM,
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": WINDOW}),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM, {"sliding_window": WINDOW, "query_pre_attn_scalar": 16}),
}


def make_model(kind: str, **changes: Any) -> Any:
    config, model, settings = SHAPES[kind]
    torch.manual_seed(2)
    sizes = {
        "vocab_size": 20,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
    }
    return model(config(**{**sizes, **settings, **changes})).eval()


@pytest.fixture(autouse=True)
def _small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short text passes from one to the next."""
    monkeypatch.setattr(decoder, "ATTENDED", 16)
    monkeypatch.setattr(decoder, "FEWEST_ROWS", 2)


def request(**changes: Any) -> SampleRequest:
    """24 rows of three prompts of different lengths, of which one is longer than the windows."""
    prompts = [[4, 5, 6], [7, 8, 9, 10, 11, 12, 13, 14, 15], [16, 17, 18, 19, 4]]
    return replace(SampleRequest(prompts, [0, 1, 2] * 8, [*range(24)], 1.0, 40, 64), **changes)


def text_of(ids: Sequence[int]) -> str:
    return "".join(chr(ord("a") + token) for token in ids)


def both(model: Any, wanted: SampleRequest, head: Head | None = None) -> tuple[list[Sample], list[Sample]]:
    return (
        sample(model, wanted, EOS, text_of, head, FixedDecoder()),
        sample(model, wanted, EOS, text_of, head),
    )


def assert_same(fixed: Sequence[Sample], growing: Sequence[Sample]) -> None:
    """The tokens and ends. Log-probabilities: to some roundings, as kernels sum over another number of places."""
    for one, other in zip(fixed, growing, strict=True):
        assert one.token_ids == other.token_ids
        assert (one.finished, one.has_stop) == (other.finished, other.has_stop)
        assert one.logps == pytest.approx(other.logps, abs=2e-5)
        assert one.entropy == pytest.approx(other.entropy, abs=1e-3)


@pytest.mark.parametrize("kind", SHAPES)
def test_rollouts_of_both_caches_are_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []
    plain = decoder._Steps._decode
    monkeypatch.setattr(
        decoder._Steps, "_decode", lambda self, rows, places: (steps.append((rows, places)), plain(self, rows, places))
    )
    fixed, growing = both(make_model(kind), request(temperature=2.0))
    assert_same(fixed, growing)
    assert len({len(one.token_ids) for one in fixed}) > 3
    assert len({rows for rows, _ in steps if rows > 3}) > 1  # rows have left; the check has three
    assert len({places for _, places in steps}) > 2  # and more is attended to


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("is_padded", [False, True])
def test_both_caches_give_the_same_bits_where_kernels_have_the_same_shapes(
    kind: str, is_padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows and places, and as many heads of keys as of queries. Else sums have another order.

    Windows are wider than the texts: of narrower ones the growing cache keeps fewer places.
    """
    monkeypatch.setattr(decoder, "LOOK_EVERY", 1)
    monkeypatch.setattr(decoder, "ATTENDED", 1)
    prompts = [[4, 5, 6], [7, 8, 9, 10, 11] if is_padded else [7, 8, 9], [10, 11, 12]]
    wanted = request(prompts=prompts)
    window = {"sliding_window": 64} if "sliding_window" in SHAPES[kind][2] else {}
    model = make_model(kind, num_key_value_heads=4, **window)
    assert sample(model, wanted, [], decoder=FixedDecoder()) == sample(model, wanted, [])


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.0},
        {"temperature": 1.6, "top_p": 0.8},
        {"top_k": 4},
        {"top_k": 6, "top_p": 0.7},
        {"stop": ("ab", "k", "h")},
        {"limits": [1, 2, 9, 16, 17, 40] * 4},
        {"limits": [1] * 24},
        {"prompts": [[4, 5, 6]] * 3},  # without padding
        {"rows": [0, 1, 2], "keys": [5, 6, 7]},
        {"batch_size": 7},
        {"stop": ("ab", "k", "h"), "limits": [1, 2, 9, 16, 17, 40] * 4, "top_p": 0.9, "batch_size": 5},
    ],
    ids=str,
)
def test_every_way_to_choose_and_to_end_is_that_of_the_growing_cache(changes: dict[str, Any]) -> None:
    fixed, growing = both(make_model("gemma2"), request(**changes))
    assert_same(fixed, growing)
    if "stop" in changes:
        assert 0 < sum(one.has_stop for one in fixed) < 24


class FakeGraphs:
    """Stands in for CUDA graphs: within a capture a step is written down and not carried out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captured: list[tuple[int, int]] = []
        self._step: Callable[[], None] | None = None
        plain_init, plain = decoder._Steps.__init__, decoder._Steps._decode
        stream = SimpleNamespace(wait_stream=lambda other: None)

        def init(steps: Any, *args: Any, **options: Any) -> None:
            plain_init(steps, *args, **options)
            steps._has_graphs, steps._pool, steps._stream = options["has_graphs"], None, stream

        def decode(steps: Any, rows: int, places: int) -> None:
            if self._is_capturing:
                self.captured.append((rows, places))
                self._step = lambda: plain(steps, rows, places)
            else:
                plain(steps, rows, places)

        self._is_capturing = False
        monkeypatch.setattr(decoder._Steps, "__init__", init)
        monkeypatch.setattr(decoder._Steps, "_decode", decode)
        for name in ("device", "stream"):
            monkeypatch.setattr(torch.cuda, name, lambda _: nullcontext())
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
        monkeypatch.setattr(torch.cuda, "graph", self.capture)

    @contextmanager
    def capture(self, graph: Any, pool: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
        self._is_capturing = True
        yield
        self._is_capturing, graph.replay = False, self._step


def test_a_capture_leaves_no_trace_and_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, wanted = make_model("qwen3"), request(temperature=2.0, stop=("ab",), limits=[*range(17, 41)])
    expected = sample(model, wanted, EOS, text_of, decoder=FixedDecoder())
    graphs, one = FakeGraphs(monkeypatch), FixedDecoder()
    for _ in range(2):
        assert sample(model, wanted, EOS, text_of, decoder=one) == expected
    assert len(graphs.captured) == len(set(graphs.captured)) > 2


def test_adapters_and_a_head_apart_change_nothing() -> None:
    model = make_model("qwen3", vocab_size=token_sampling.SMALL_VOCABULARY + 100)
    lora.add_adapter(model, AgentSpec(name="A", model="m", lora_rank=2), 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    assert_same(*both(model, request(max_new_tokens=9)))
    assert_same(*both(model, request(max_new_tokens=9), Head.of(model)))


def test_a_decoder_is_used_again_as_long_as_its_tensors_fit() -> None:
    model, one = make_model("llama"), FixedDecoder()
    made: list[Any] = []

    def draw(wanted: SampleRequest) -> None:
        assert_same(sample(model, wanted, EOS, text_of, decoder=one), sample(model, wanted, EOS, text_of))
        if not any(one._steps is other for other in made):
            made.append(one._steps)

    draw(request(batch_size=9))  # the batches of one request, of which the last one has the longest prompts
    assert len(made) == 1
    with torch.no_grad():
        model.model.norm.weight.mul_(1.1)  # in place, as an update does
    draw(request(rows=[0, 0], keys=[1, 2], max_new_tokens=5))
    assert len(made) == 1
    draw(request())  # more rows at once
    draw(request(temperature=0.5))
    model.model.norm.weight = torch.nn.Parameter(model.model.norm.weight.clone())
    draw(request(temperature=0.5))
    assert len(made) == 4
    one.release()
    assert one._steps is None


CHANGES: dict[str, Callable[[Any], Any]] = {
    "addresses": lambda model: setattr(model.model.norm, "weight", torch.nn.Parameter(torch.ones(32))),
    "dtype": lambda model: model.to(torch.bfloat16),
    "attention": lambda model: model.set_attn_implementation("eager"),
    "vocabulary": lambda model: model.resize_token_embeddings(24),
    "adapters": lambda model: setattr(model.model.layers[0].mlp.up_proj, "_disable_adapters", True),
    "temperature": lambda model: {"temperature": 0.5},
    "top_p": lambda model: {"top_p": 0.5},
    "top_k": lambda model: {"top_k": 2},
    "textless": lambda model: {"textless": (5,)},
}


@pytest.mark.parametrize("name", GraphKey._fields)
def test_all_that_a_captured_step_bakes_in_changes_its_key(name: str) -> None:
    model = make_model("llama")
    lora.add_adapter(model, AgentSpec(name="A", model="m", lora_rank=2), 1)
    before = graph_key(model, request(), EOS, None)
    assert graph_key(model, request(keys=[*range(24, 48)]), EOS, None) == before  # tensors hold them
    stops, head = EOS, None
    if name == "model":
        other = make_model("llama")
        assert graph_key(other, request(), stops, head).model != before.model
        return
    if name == "device":  # the key holds it; a model of this test has only one
        assert before.device == model.device
        return
    if name == "stops":
        stops = [*EOS, 4]
    elif name == "has_head":
        head = Head.of(model)
    changes = CHANGES.get(name, lambda model: None)(model)
    after = graph_key(model, request(**(changes if isinstance(changes, dict) else {})), stops, head)
    assert getattr(after, name) != getattr(before, name)
    assert after != before


def test_models_that_no_fixed_cache_serves_say_why() -> None:
    sizes = {"vocab_size": 20, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2}
    layers = {"num_hidden_layers": 2, "num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]}
    recurrent = Lfm2ForCausalLM(Lfm2Config(**sizes, **layers, pad_token_id=0)).eval()
    with pytest.raises(NotFixed, match="its model's cache has layers of the kind LinearAttentionLayer"):
        sample(recurrent, request(), EOS, decoder=FixedDecoder())
    other = make_model("llama")
    other.config._attn_implementation_internal = "flex_attention"
    with pytest.raises(NotFixed, match="its attention flex_attention takes no mask of its own"):
        windows_of(other, sampling_cache(other.config))


def test_a_model_that_computes_something_else_with_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = decoder._Steps._logits
    monkeypatch.setattr(decoder._Steps, "_logits", lambda self, *sizes: plain(self, *sizes).mul(3))
    with pytest.raises(NotFixed, match="computes something else with a cache of fixed size"):
        sample(make_model("llama"), request(), EOS, decoder=FixedDecoder())


# In a run

FAILURES = {
    "one of fixed size failed (RuntimeError: operation not permitted when stream is capturing)": RuntimeError(
        "operation not permitted\nwhen stream is capturing"
    ),
    "memory ran out with one of fixed size (CUDA out of memory)": torch.OutOfMemoryError("CUDA out of memory"),
    "layers of its model share their caches": NotFixed("layers of its model share their caches"),
}


def run(root: Path, name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[str]]:
    """A run with stop strings: the weights of both agents at its end, and its log."""
    monkeypatch.setattr(TransformersEngine, "way", way)
    # Models of its own: a model that is loaded reads its file until it is trained.
    (root / name).mkdir()
    spec = make_spec(root, make_pair(root / name), rollout={"max_completion_length": 20, "stop": ["11", "-"]})
    trainer = train(spec, root / name)
    assert trainer.step == 3
    return [weights(trainer, agent) for agent in range(2)], [
        record["message"] for record in records(root / name, "log")
    ]


def test_a_run_with_it_is_the_run_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    plain = FixedDecoder.sample_batch
    monkeypatch.setattr(FixedDecoder, "sample_batch", lambda *args: drawn.append(1) or plain(*args))
    ends, log = run(tmp_path, "static", "static", monkeypatch)
    assert len(drawn) > 6
    assert not any("cache" in line for line in log)
    expected, _ = run(tmp_path, "growing", "auto", monkeypatch)  # on a CPU
    texts = [
        [(row["agent"], row["completion"]) for row in records(tmp_path / name, "rollout")]
        for name in ("static", "growing")
    ]
    assert texts[0] == texts[1]
    assert texts[0]
    for agent in range(2):
        for name, value in ends[agent].items():
            torch.testing.assert_close(value, expected[agent][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reason", [*list(FAILURES)[:1], *in_full(*list(FAILURES)[1:])])
def test_a_run_goes_on_with_a_growing_cache_and_says_why_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def fail(*_: Any) -> None:
        raise FAILURES[reason]

    monkeypatch.setattr(decoder._Steps, "_ready", fail)
    _, log = run(tmp_path, "run", "static", monkeypatch)
    assert [line for line in log if "cache" in line] == [
        f"{name}: samples with a cache that grows: {reason}" for name in ("Qwen", "Llama")
    ]
