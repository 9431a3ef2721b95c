"""Log-probabilities by chunks of tokens where FSDP2 splits the weights over two processes: those of all logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support.workers.processes import PROCESSES
from tests.support.workers.tiny import make_agent, make_spec
from workers.model import chunked_logprobs
from workers.model.policy import Policy
from workers.model.process_group import Ranks

# Prompts and responses of each rank; the second has fewer rows.
ROWS = (([[1, 2, 3], [4, 5], [6]], [[7, 8], [9, 10, 11, 12], [3]]), ([[2, 4], [8]], [[1, 1, 5], [6]]))


def grads_of(policy: Policy, rank: int) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Log-probabilities by the policy and by its reference, and this rank's share of the gradients of both ranks."""
    reference = policy.reference_logps(*ROWS[rank])
    logps, mask = policy.token_logps(*ROWS[rank])
    assert mask.sum(dim=1).tolist() == [len(one) for one in ROWS[rank][1]]
    policy.optimizer.backward((logps * torch.linspace(0.5, 1.5, mask.shape[1])).sum())
    names = policy.optimizer.masters
    gradients = dict(zip(names, policy.optimizer.pop_gradients(), strict=True))
    return logps.detach(), reference, gradients


def relative_difference(gradients: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Norm of the difference over all weights, as a share of the norm."""
    norm = sum(one.square().sum().item() for one in expected.values()) ** 0.5
    assert norm > 0.1
    return sum((gradients[name] - one).square().sum().item() for name, one in expected.items()) ** 0.5 / norm


def compare(rank: int, root: Path, lora_rank: int, changes: dict[str, Any]) -> None:
    """In each process: the plain path, then the chunked one, whose output layer sees two tokens at a time."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{root}/meeting", rank=rank, world_size=2)
    agent = {"name": "A", "model": str(root / "model"), "lora_rank": lora_rank}
    compute = {"processes_per_agent": 2, "sharding": "fsdp2"}
    spec = make_spec(root / f"of {rank}", [agent], algorithm={"name": "gspo", "beta": 0.1}, compute=compute)
    policy = Policy(spec.agents[0], spec, torch.device("cpu"), ranks=Ranks(rank, 2, is_sharded=True))
    whole, reference, gradients = grads_of(policy, rank)
    chunked_logprobs.MIN_LOGITS, chunked_logprobs.CHUNK_BYTES = 0, 4 * policy.model.config.vocab_size * 2
    torch.nn.functional.cross_entropy = None  # type: ignore[assignment]  # the plain path fails now
    by_chunks, reference_by_chunks, chunked_gradients = grads_of(policy, rank)
    torch.testing.assert_close(by_chunks, whole, rtol=0, atol=1e-6)
    torch.testing.assert_close(reference_by_chunks, reference, rtol=0, atol=1e-6)
    assert relative_difference(chunked_gradients, gradients) < 1e-6
    if rank == 0:  # only this rank has many logits: both make the same collective calls all the same
        chunked_logprobs.MIN_LOGITS = 10**9
        torch.nn.functional.cross_entropy = CROSS_ENTROPY
    mixed, _, mixed_gradients = grads_of(policy, rank)
    torch.testing.assert_close(mixed, whole, rtol=0, atol=1e-6)
    assert relative_difference(mixed_gradients, gradients) < 1e-6
    dist.destroy_process_group()


CROSS_ENTROPY = torch.nn.functional.cross_entropy


@pytest.mark.parametrize(
    ("kind", "lora_rank", "changes"),
    [
        pytest.param("qwen3", 0, {}, marks=pytest.mark.slow, id="tied"),
        pytest.param("llama", 0, {"tie_word_embeddings": False}, marks=pytest.mark.full, id="untied"),
        pytest.param("qwen3", 4, {}, marks=pytest.mark.full, id="lora"),
    ],
)
def test_chunks_find_what_all_logits_say_where_weights_are_split(tmp_path, kind, lora_rank, changes):
    make_agent(tmp_path / "model", kind, **changes)
    for rank in (0, 1):
        (tmp_path / f"of {rank}").mkdir()
    ranks = [PROCESSES.Process(target=compare, args=(rank, tmp_path, lora_rank, changes)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
        process.kill()  # nothing, where it has ended
        process.join()
    assert [process.exitcode for process in ranks] == [0, 0], "the process that failed has written its reason"
