"""What every rollout engine promises: the same tests on each of them, against the trainer's own numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import psutil
import pytest
import torch

from tests.support.workers.tiny import WITHOUT_VLLM, make_agent, make_spec
from workers.model.policy import Policy
from workers.randomness import derived_key
from workers.rollouts.engine import RolloutEngine, logp_difference, make_engine
from workers.rollouts.sampler import Sample, SampleRequest

NEEDS_VLLM = [pytest.mark.full, pytest.mark.skipif(find_spec("vllm") is None, reason=WITHOUT_VLLM)]
ENGINES = [  # and a LoRA rank
    pytest.param(("transformers", 0), id="transformers"),
    pytest.param(("vllm", 0), id="vllm", marks=NEEDS_VLLM),
    pytest.param(("vllm", 3), id="vllm and LoRA", marks=NEEDS_VLLM),
]
PROMPTS = ["1+2=", "12+34=", "7*8="]
# Longer than a block of any engine's cache, so that it is found there again.
LONG_PROMPT = "1+2*3-4=" * 40
TEMPERATURE, MAX_NEW_TOKENS = 0.7, 12


@dataclass
class Bench:
    """A policy, and an engine with its weights."""

    policy: Policy
    engine: RolloutEngine

    def draw(
        self,
        rows: list[int],
        keys: list[int],
        *,
        prompts: list[str] = PROMPTS,
        temperature: float = TEMPERATURE,
        max_new_tokens: int = MAX_NEW_TOKENS,
    ) -> list[Sample]:
        encoded = [self.policy.encode_prompt(prompt) for prompt in prompts]
        return self.engine.sample(SampleRequest(encoded, rows, keys, temperature, max_new_tokens, 64))

    @torch.no_grad()
    def change_weights(self, seed: int) -> None:
        """Another policy, its tied input and output embeddings included; the engine is not told."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


@pytest.fixture(scope="module", params=ENGINES)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    engine_name, lora_rank = request.param
    root = tmp_path_factory.mktemp(engine_name)
    # head_dim 32: the smallest that vLLM's CPU attention supports.
    folder = make_agent(root / "qwen", "qwen3", seed=5, head_dim=32, max_position_embeddings=512)
    limits = {"max_prompt_length": 400, "max_completion_length": 64}
    spec = make_spec(
        root,
        [{"name": "Qwen", "model": str(folder), "lora_rank": lora_rank}],
        rollout={"engine": engine_name, "temperature": TEMPERATURE, **limits},
    )
    policy = Policy(spec.agents[0], spec, torch.device("cpu"))
    before = children()
    engine = make_engine(policy, spec, torch.device("cpu"))
    yield Bench(policy, engine)
    engine.close()
    assert children() <= before, "the engine's processes outlive it"


def children() -> set[psutil.Process]:
    """This process's living descendants, but for Python's own helper, which stays."""
    found = set()
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):  # ended since, or not waited for
            if "resource_tracker" not in " ".join(one.cmdline()):
                found.add(one)
    return found


@torch.no_grad()
def greedy_by_hand(policy: Policy, prompt: str, count: int) -> list[int]:
    """The plain loop: the whole sequence through the model for every token, its most likely one taken."""
    ids = list(policy.encode_prompt(prompt))
    start = len(ids)
    while len(ids) - start < count and (len(ids) == start or ids[-1] not in policy.eos_ids):
        ids.append(int(policy.model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[start:]


@torch.no_grad()
def trainer_logps(policy: Policy, prompts: list[str], samples: list[Sample], temperature: float) -> list[list[float]]:
    ids = [policy.encode_prompt(prompt) for prompt in prompts]
    logps, _ = policy.token_logps(ids, [found.token_ids for found in samples], temperature=temperature)
    return [row[: len(found.token_ids)].tolist() for row, found in zip(logps, samples, strict=True)]


def test_greedy_tokens_are_those_of_a_plain_loop(bench: Bench) -> None:
    for index, found in enumerate(bench.draw([0, 1, 2], [1, 2, 3], temperature=0)):
        assert found.token_ids == greedy_by_hand(bench.policy, PROMPTS[index], MAX_NEW_TOKENS)


def test_log_probabilities_are_the_trainers_at_the_sampling_temperature(bench: Bench) -> None:
    rows = [index % 3 for index in range(24)]
    samples = bench.draw(rows, list(range(24)))
    expected = trainer_logps(bench.policy, [PROMPTS[row] for row in rows], samples, TEMPERATURE)
    for found, logps in zip(samples, expected, strict=True):
        assert found.logps == pytest.approx(logps, abs=1e-4)


def test_greedy_log_probabilities_are_at_temperature_one(bench: Bench) -> None:
    samples = bench.draw([0, 1, 2], [1, 2, 3], temperature=0)
    for found, logps in zip(samples, trainer_logps(bench.policy, PROMPTS, samples, 1.0), strict=True):
        assert found.logps == pytest.approx(logps, abs=1e-4)


def test_a_row_is_reproducible_and_depends_on_its_own_key_only(bench: Bench) -> None:
    keys = [derived_key("contract", number) for number in range(4)]
    among_others = bench.draw([0, 2, 1, 1], keys)
    assert bench.draw([1], [keys[2]])[0].token_ids == among_others[2].token_ids
    assert [found.token_ids for found in bench.draw([0, 2, 1, 1], keys)] == [found.token_ids for found in among_others]
    many = bench.draw([0] * 64, [derived_key("many", number) for number in range(64)])
    assert len({tuple(found.token_ids) for found in many}) > 32


def test_first_tokens_have_the_policys_probabilities(bench: Bench) -> None:
    count = 1000
    samples = bench.draw([0] * count, [derived_key("first", number) for number in range(count)], max_new_tokens=1)
    ids = torch.tensor([bench.policy.encode_prompt(PROMPTS[0])])
    with torch.no_grad():
        expected = torch.softmax(bench.policy.model(ids).logits[0, -1] / TEMPERATURE, -1)
    found = torch.bincount(torch.tensor([one.token_ids[0] for one in samples]), minlength=len(expected)) / count
    # Five standard errors of a share of `count`.
    assert torch.all((found - expected).abs() < 5 * (expected * (1 - expected) / count).sqrt() + 1e-4)


def test_a_row_ends_at_a_stop_id_which_it_keeps_or_at_the_limit(bench: Bench) -> None:
    samples = bench.draw([0] * 64, list(range(64)), temperature=2.0)
    assert {found.finished for found in samples} == {True, False}
    for found in samples:
        assert not set(found.token_ids[:-1]) & set(bench.policy.eos_ids)
        assert (found.token_ids[-1] in bench.policy.eos_ids) == found.finished
        assert found.finished or len(found.token_ids) == MAX_NEW_TOKENS
        assert len(found.logps) == len(found.token_ids)


def test_every_id_that_the_policy_calls_an_end_is_one(bench: Bench) -> None:
    equals = bench.policy.tokenizer.convert_tokens_to_ids("=")
    before, bench.policy.eos_ids = bench.policy.eos_ids, [*bench.policy.eos_ids, equals]
    try:
        samples = bench.draw([0] * 64, list(range(64)), temperature=2.0)
    finally:
        bench.policy.eos_ids = before
    ended = [found for found in samples if found.token_ids[-1] == equals]
    assert ended
    assert all(found.finished for found in ended)
    assert not any(equals in found.token_ids[:-1] for found in samples)


def test_entropy_is_near_the_distributions(bench: Bench) -> None:
    """Exact where the engine tells distributions, else a mean of -log p: over 400 tokens a few percent off."""
    samples = bench.draw([0] * 400, list(range(400)), max_new_tokens=1)
    ids = torch.tensor([bench.policy.encode_prompt(PROMPTS[0])])
    with torch.no_grad():
        logits = bench.policy.model(ids).logits[0, -1] / TEMPERATURE
    expected = torch.distributions.Categorical(logits=logits).entropy().item()
    assert sum(found.entropy for found in samples) / 400 == pytest.approx(expected, rel=0.15)


def test_an_empty_prompt_is_refused(bench: Bench) -> None:
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        bench.engine.sample(SampleRequest([[2], []], [0, 1], [1, 2], 1.0, 2, 2))


def test_new_weights_are_seen_once_they_are_taken(bench: Bench) -> None:
    prompt = bench.policy.encode_prompt(PROMPTS[1])
    difference = logp_difference(bench.engine, bench.policy, prompt, MAX_NEW_TOKENS)
    assert 0 <= difference.mean <= difference.largest < 1e-4
    for seed in (1, 2):  # twice: whatever the first update changed in the engine, the second finds its way
        bench.change_weights(seed)
        if bench.engine.has_own_weights:
            assert logp_difference(bench.engine, bench.policy, prompt, MAX_NEW_TOKENS).mean > 0.1
        bench.engine.take_weights()
        assert logp_difference(bench.engine, bench.policy, prompt, MAX_NEW_TOKENS).largest < 1e-4


def test_tied_output_embeddings_follow_the_input_embeddings(bench: Bench) -> None:
    assert bench.policy.model.config.tie_word_embeddings
    if bench.policy.uses_lora:
        pytest.skip("LoRA moves no embeddings")
    with torch.no_grad():
        bench.policy.model.get_input_embeddings().weight.mul_(1.5)
    bench.engine.take_weights()
    samples = bench.draw([0, 1, 2], [1, 2, 3], temperature=0)
    for found, logps in zip(samples, trainer_logps(bench.policy, PROMPTS, samples, 1.0), strict=True):
        assert found.logps == pytest.approx(logps, abs=1e-4)


def test_what_old_weights_left_in_the_cache_is_forgotten(bench: Bench) -> None:
    bench.draw([0], [1], prompts=[LONG_PROMPT])
    bench.change_weights(3)
    bench.engine.take_weights()
    [found] = bench.draw([0], [1], prompts=[LONG_PROMPT])
    assert found.logps == pytest.approx(trainer_logps(bench.policy, [LONG_PROMPT], [found], TEMPERATURE)[0], abs=1e-4)


def test_sleep_and_wake_change_nothing(bench: Bench) -> None:
    before = bench.draw([0, 1, 2], [7, 8, 9])
    bench.engine.sleep()
    bench.engine.wake()
    assert [found.token_ids for found in bench.draw([0, 1, 2], [7, 8, 9])] == [found.token_ids for found in before]
