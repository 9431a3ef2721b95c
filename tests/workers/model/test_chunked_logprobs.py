"""Log-probabilities by chunks of tokens: equal to those of all logits at once, value and gradient."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.support.workers.tiny import make_agent, make_spec
from workers.model import chunked_logprobs
from workers.model.policy import Policy

ROWS = ([1, 2, 3], [4, 5], [6]), ([7, 8], [9, 10, 11, 12], [3])  # prompts, responses


@pytest.mark.parametrize("cap", [0.0, 5.0])
@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_values_and_gradients_are_those_of_plain_autograd(monkeypatch, cap, scale, has_bias, is_frozen):
    monkeypatch.setattr(chunked_logprobs, "CHUNK_BYTES", 4 * 50 * 3)  # three tokens
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    hidden, weight, bias = random(11, 6), random(50, 6), random(50) if has_bias else None
    targets = torch.randint(0, 50, (11,), generator=generator)
    inputs = [one for one in (hidden, weight, bias) if one is not None]
    if is_frozen:  # as with LoRA
        inputs = [hidden]
        for one in (weight, bias):
            if one is not None:
                one.requires_grad_(False)
    layer = chunked_logprobs.Head(weight, bias, scale, cap)
    found = chunked_logprobs.token_logps(layer, hidden, targets, 0.7)
    logits = nn.functional.linear(hidden, weight, bias) * scale
    logits = cap * torch.tanh(logits / cap) if cap else logits
    expected = torch.log_softmax(logits / 0.7, dim=1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    factor = torch.randn(11, generator=generator, dtype=torch.float64)
    ours = torch.autograd.grad((found * factor).sum(), inputs)
    theirs = torch.autograd.grad((expected * factor).sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def grads_of(policy: Policy) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    logps, mask = policy.token_logps(*ROWS)
    assert mask.sum(dim=1).tolist() == [2, 4, 1]
    (logps * torch.linspace(0.5, 1.5, 4)).sum().backward()
    gradients = {name: one.grad for name, one in policy.model.named_parameters() if one.grad is not None}
    for one in policy.model.parameters():
        one.grad = None
    return logps.detach(), gradients


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}], ids=["tied", "untied"])
@pytest.mark.parametrize("lora_rank", [0, 4])
def test_policy_by_chunks_is_the_policy_at_once(tmp_path, monkeypatch, kind, changes, lora_rank):
    model = str(make_agent(tmp_path / "model", kind, **changes))
    spec = make_spec(tmp_path, [{"name": "A", "model": model, "lora_rank": lora_rank}], rollout={"temperature": 0.8})
    policy = Policy(spec.agents[0], spec, torch.device("cpu"))
    policy.model.double()
    whole, gradients = grads_of(policy)
    monkeypatch.setattr(chunked_logprobs, "MIN_LOGITS", 0)
    monkeypatch.setattr(chunked_logprobs, "CHUNK_BYTES", 4 * policy.model.config.vocab_size * 2)  # two tokens
    monkeypatch.setattr(torch.nn.functional, "cross_entropy", None)  # the plain path fails now
    chunked, by_chunks = grads_of(policy)
    torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-10)
    assert gradients.keys() == by_chunks.keys() != set()
    for name, gradient in gradients.items():
        torch.testing.assert_close(by_chunks[name], gradient, rtol=0, atol=1e-10)


def test_model_whose_logits_are_computed_otherwise_keeps_the_plain_path():
    class Odd(nn.Module):
        """Its forward doubles the logits, which no setting says."""

        device = torch.device("cpu")
        config = SimpleNamespace(get_text_config=lambda: SimpleNamespace())

        def __init__(self, factor: float) -> None:
            super().__init__()
            self.embedding, self.head, self.factor = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False), factor

        def get_output_embeddings(self) -> nn.Linear:
            return self.head

        def base_model(self, input_ids, use_cache):
            return SimpleNamespace(last_hidden_state=self.embedding(input_ids))

        def forward(self, input_ids, use_cache):
            return SimpleNamespace(logits=self.factor * self.head(self.embedding(input_ids)))

    assert chunked_logprobs.is_linear_head(Odd(1.0))
    assert not chunked_logprobs.is_linear_head(Odd(2.0))


def test_only_a_head_without_cap_and_scale_is_replaced_within_the_models_own_pass(tmp_path):
    spec = make_spec(tmp_path, [{"name": "A", "model": str(make_agent(tmp_path / "model", "llama"))}])
    model = Policy(spec.agents[0], spec, torch.device("cpu")).model
    assert chunked_logprobs.is_replaceable_head(model)
    assert model(input_ids=torch.tensor([[1, 2]])).logits.shape == (1, 2, model.config.vocab_size)  # as before
    for name in ("final_logit_softcapping", "logit_scale"):
        setattr(model.config, name, 5.0)
        assert not chunked_logprobs.is_replaceable_head(model)
        setattr(model.config, name, None)
