"""Sampling: greedy text is transformers' own, log-probabilities are the trainer's, a row's noise is its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.support.workers.tiny import make_agent, make_spec
from workers.model.chunked_logprobs import Head
from workers.model.policy import Policy
from workers.randomness import derived_key, permutation, uniforms
from workers.rollouts import token_sampling
from workers.rollouts.sampler import SampleRequest, sample
from workers.rollouts.token_sampling import Buffers, choose_tokens

PROMPTS = ["1+2=", "12+34=", "7*8="]


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Policy:
    root = tmp_path_factory.mktemp("rollout")
    agent = {"name": "Qwen", "model": str(make_agent(root / "qwen", "qwen3", seed=5))}
    spec = make_spec(root, [agent], rollout={"temperature": 0.7})
    return Policy(spec.agents[0], spec, torch.device("cpu"))


def draw(policy: Policy, rows: list[int], keys: list[int], *, temperature: float = 0.7, batch_size: int = 64):
    prompts = [policy.encode_prompt(prompt) for prompt in PROMPTS]
    return sample(policy.model, SampleRequest(prompts, rows, keys, temperature, 12, batch_size), policy.eos_ids)


def test_greedy_text_is_that_of_transformers_generate(policy):
    for index, prompt in enumerate(PROMPTS):
        ids = torch.tensor([policy.encode_prompt(prompt)])
        expected = policy.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12)
        found = draw(policy, [0, 1, 2], [1, 2, 3], temperature=0)[index]  # all three together: padded
        assert found.token_ids == expected[0, ids.shape[1] :].tolist()


def test_sampling_logps_are_those_of_the_training_pass(policy):
    rows = [index % 3 for index in range(48)]
    samples = draw(policy, rows, list(range(48)))
    prompts = [policy.encode_prompt(PROMPTS[row]) for row in rows]
    with torch.no_grad():
        logps, mask = policy.token_logps(prompts, [found.token_ids for found in samples])
    assert len({len(found.token_ids) for found in samples}) > 3
    for found, row, counted in zip(samples, logps, mask, strict=True):
        assert int(counted.sum()) == len(found.token_ids)
        torch.testing.assert_close(row[counted], torch.tensor(found.logps), rtol=0, atol=5e-6)
        assert not row[~counted].any()


def test_rows_end_at_the_first_eos_and_nowhere_else(policy):
    samples = draw(policy, [0] * 64, list(range(64)))
    assert {found.finished for found in samples} == {True, False}
    for found in samples:
        assert policy.turn_eos not in found.token_ids[:-1]
        assert (found.token_ids[-1] == policy.turn_eos) == found.finished
        assert found.finished or len(found.token_ids) == 12
        assert len(found.logps) == len(found.token_ids)


def test_a_row_depends_on_its_own_key_only(policy):
    alone = draw(policy, [1], [77])[0]
    among_others = draw(policy, [0, 2, 1, 1], [1, 2, 77, 3])
    in_small_batches = draw(policy, [0, 2, 1, 1], [1, 2, 77, 3], batch_size=1)
    assert alone.token_ids == among_others[2].token_ids == in_small_batches[2].token_ids
    assert among_others[3].token_ids != alone.token_ids


def test_finished_neighbours_change_nothing(policy):
    rows, keys = [index % 3 for index in range(40)], list(range(100, 140))
    together = draw(policy, rows, keys, temperature=2.0)
    assert sum(len(found.token_ids) < 9 for found in together) > 10  # rows have left the batch on the way
    alone = draw(policy, rows, keys, temperature=2.0, batch_size=1)
    assert [found.token_ids for found in together] == [found.token_ids for found in alone]


def test_first_tokens_have_the_models_probabilities(policy):
    count = 4000
    samples = draw(policy, [0] * count, [derived_key("test", index) for index in range(count)], batch_size=count)
    ids = torch.tensor([policy.encode_prompt(PROMPTS[0])])
    with torch.no_grad():
        expected = torch.softmax(policy.model(ids).logits[0, -1] / 0.7, -1).numpy()
    found = np.bincount([found.token_ids[0] for found in samples], minlength=len(expected)) / count
    deviation = np.sqrt(expected * (1 - expected) / count)
    assert np.all(np.abs(found - expected) < 4.5 * deviation + 1e-4)


def test_entropy_is_that_of_the_distributions(policy):
    found = draw(policy, [0], [5])[0]
    ids = torch.tensor([policy.encode_prompt(PROMPTS[0]) + found.token_ids])
    with torch.no_grad():
        logits = policy.model(ids).logits[0, -len(found.token_ids) - 1 : -1] / 0.7
    assert found.entropy == pytest.approx(
        torch.distributions.Categorical(logits=logits).entropy().sum().item(), abs=1e-4
    )


def test_uniforms_are_uniform_and_belong_to_their_key():
    keys = np.array([derived_key("u", index) for index in range(2000)], dtype=np.uint64)
    numbers = uniforms(keys, 50)
    assert numbers.shape == (2000, 50)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    # 100,000 numbers: the mean's standard error is .2887 / 316 = .0009; ten equal bins hold 10,000 +- 95 each.
    assert abs(numbers.mean() - 0.5) < 4 * 0.0009
    assert np.all(np.abs(np.histogram(numbers, bins=10, range=(0, 1))[0] - 10_000) < 4.5 * 95)
    assert abs(np.corrcoef(numbers[:, 0], numbers[:, 1])[0, 1]) < 4 / np.sqrt(2000)
    assert np.array_equal(uniforms(keys[7:8], 50)[0], numbers[7])


def test_permutation_belongs_to_its_key():
    assert sorted(permutation(20, 1)) == list(range(20))
    assert permutation(20, 1) == permutation(20, 1) != permutation(20, 2)


def test_choice_by_blocks_is_the_choice_by_all_sums():
    generator = torch.Generator().manual_seed(0)
    vocabulary = 40 * token_sampling.BLOCK + 77  # the last block is not whole
    probabilities = torch.softmax(4 * torch.randn(200, vocabulary, generator=generator), dim=-1)
    noise = torch.rand(200, generator=generator, dtype=torch.float64)
    noise[:2] = torch.tensor([0.0, 1 - 1e-9])
    assert torch.equal(
        token_sampling._place_by_blocks(probabilities, noise), token_sampling._place(probabilities, noise)
    )


def test_choice_by_blocks_reaches_the_tail_and_nothing_without_probability():
    """Tokens of 1e-9 behind one of nearly 1, which float32 sums would lose; zeros before, between and after them."""
    vocabulary = 4 * token_sampling.BLOCK
    row = torch.zeros(vocabulary)
    row[5], row[700], row[2000] = 1.0, 1e-9, 2e-9
    total = row.double().sum().item()
    noise = torch.tensor([0.0, 0.5, (1 + 0.5e-9) / total, (1 + 2e-9) / total, 1 - 1e-16], dtype=torch.float64)
    places = token_sampling._place_by_blocks(row.expand(5, -1), noise)
    assert places.tolist() == [5, 5, 700, 2000, 2000]


def test_large_vocabularies_are_chosen_from_by_blocks(monkeypatch):
    monkeypatch.setattr(token_sampling, "_place_by_blocks", None)
    logits, noise = torch.zeros(1, token_sampling.SMALL_VOCABULARY + 1), torch.tensor([0.5], dtype=torch.float64)
    request = SampleRequest([[1]], [0], [0], 1.0, 1, 1)
    choose_tokens(logits[:, 1:], noise, request, Buffers(1, token_sampling.SMALL_VOCABULARY, logits.device))
    with pytest.raises(TypeError):
        choose_tokens(logits, noise, request, Buffers(*logits.shape, logits.device))


def test_entropy_and_log_probabilities_are_those_of_softmax():
    logits = torch.tensor([[0.0, 1.0, -float("inf")], [2.0, 2.0, 2.0]])
    request = SampleRequest([[1]], [0, 0], [0, 0], 0.5, 1, 2)
    noise = torch.tensor([0.0, 0.999], dtype=torch.float64)
    token, logp, entropy = choose_tokens(
        logits, noise, request, Buffers(3, 3, logits.device)
    )  # room for a row that has left
    e2 = np.exp(2)  # logits / temperature: 0, 2 and none
    assert token.tolist() == [0, 2]
    assert logp.tolist() == pytest.approx([-np.log(1 + e2), -np.log(3)])
    assert entropy.tolist() == pytest.approx([np.log(1 + e2) - 2 * e2 / (1 + e2), np.log(3)])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_output_layer_apart_from_the_model_samples_what_the_model_does(temperature):
    """Rows end at different lengths, so that 12, 8 and fewer are multiplied."""
    torch.manual_seed(3)
    config = Qwen3Config(
        vocab_size=token_sampling.SMALL_VOCABULARY + 500,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        initializer_range=0.5,
    )
    model = Qwen3ForCausalLM(config).eval()
    limits = [9, 8, 8, 8, 7, 7, 6, 5, 4, 3, 2, 1]
    request = SampleRequest([[5, 6], [7]], [0, 1] * 6, [*range(12)], temperature, 9, 12, limits=limits)
    calls = []
    model.lm_head.register_forward_hook(lambda *_: calls.append(1))
    apart = sample(model, request, [], head=Head.of(model))
    assert len(calls) == 1  # for the prompts
    whole = sample(model, request, [])
    assert [one.token_ids for one in apart] == [one.token_ids for one in whole]
    for one, other in zip(apart, whole, strict=True):
        assert one.logps == pytest.approx(other.logps, abs=1e-4)
        assert one.entropy == pytest.approx(other.entropy, abs=1e-3)


# Top-p, top-k and stop strings


def test_likeliest_tokens_by_hand():
    row = torch.tensor([[0.1, 0.4, 0.2, 0.3]])

    def kept(top_p: float, top_k: int) -> list[int]:
        return token_sampling.likeliest(row, top_p, top_k)[0].nonzero()[:, 0].tolist()

    assert token_sampling.likeliest(row, 1.0, 0) is row  # so that nothing changes bit for bit
    assert kept(1.0, 2) == [1, 3]
    assert kept(0.69, 0) == [1, 3]  # .4 + .3 = .7
    assert kept(0.71, 0) == [1, 2, 3]
    assert kept(1e-9, 0) == [1]
    assert kept(0.5, 2) == [1]  # of the two .4 is 4/7
    assert kept(0.6, 2) == [1, 3]
    assert kept(1.0, 9) == [0, 1, 2, 3]


@pytest.mark.parametrize("scale", [0.1, 6.0])
def test_tokens_are_ranked_as_far_as_the_share_reaches(scale):
    """By a full sort: nearly flat rows need more than RANKED tokens, others few."""
    generator = torch.Generator().manual_seed(2)
    rows = torch.softmax(scale * torch.randn(4, 3 * token_sampling.RANKED, generator=generator), dim=-1)
    ranked, order = rows.sort(dim=-1, descending=True)
    before = ranked.double().cumsum(dim=-1) - ranked
    expected = torch.zeros_like(rows).scatter(1, order, ranked.where(before < 0.9 * rows.double().sum(-1, True), 0.0))
    assert torch.equal(token_sampling.likeliest(rows, 0.9, 0), expected)
    assert ((expected > 0).sum(dim=-1) > token_sampling.RANKED).all() == (scale < 1)


def test_both_ways_of_choosing_draw_from_the_likeliest_alone():
    generator = torch.Generator().manual_seed(1)
    for vocabulary in (100, token_sampling.SMALL_VOCABULARY + token_sampling.BLOCK + 7):
        logits = (4 * torch.randn(1, vocabulary, generator=generator)).expand(2000, -1)
        noise = torch.rand(2000, generator=generator, dtype=torch.float64)
        request = SampleRequest([[1]], [0], [0], 1.0, 1, 1, top_p=0.8, top_k=5)
        tokens, logps, _ = choose_tokens(logits, noise, request, Buffers(*logits.shape, logits.device))
        whole = torch.log_softmax(logits[0], dim=-1)
        weights = token_sampling.likeliest(whole.exp()[None], 0.8, 5)[0]
        counts = torch.bincount(tokens, minlength=vocabulary)
        assert set(tokens.tolist()) == set(weights.nonzero()[:, 0].tolist())
        # 4.5 standard deviations of 2,000 draws
        assert (counts / 2000 - weights / weights.sum()).abs().max() < 4.5 * 0.5 / 2000**0.5
        assert torch.equal(logps, whole[tokens])  # of the whole distribution


def test_a_row_ends_with_the_token_that_completes_a_stop_string(policy):
    prompts = [policy.encode_prompt(prompt) for prompt in PROMPTS]
    plain = draw(policy, [0] * 64, list(range(64)))
    request = SampleRequest(prompts, [0] * 64, list(range(64)), 0.7, 12, 64, stop=("12", "+"))
    samples = sample(policy.model, request, policy.eos_ids, policy.decode)
    assert 0 < sum(found.has_stop for found in samples) < 64
    for found, before in zip(samples, plain, strict=True):
        length = len(found.token_ids)
        assert found.token_ids == before.token_ids[:length]  # the same draws until then
        assert found.logps == pytest.approx(before.logps[:length], abs=1e-6)
        texts = [policy.decode(found.token_ids[:count]) for count in range(1, length + 1)]
        holds = ["12" in text or "+" in text for text in texts]
        assert holds == [False] * (length - 1) + [found.has_stop]
        assert found.has_stop or length == len(before.token_ids)
        assert found.has_eos == (found.token_ids[-1] in policy.eos_ids)
