"""One agent in several processes: it learns what one process learns, also with split weights; ends and resumes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from tests.support.workers.processes import forked as forked
from tests.support.workers.tiny import WITHOUT_VLLM, make_agent, make_pair, make_spec, records, train
from workers.agents import multi_process
from workers.agents.messages import AgentLost
from workers.agents.multi_process import AgentFailed, RankedAgent
from workers.contract.spec.run import RunSpec
from workers.model.memory import OutOfMemory
from workers.model.process_group import ALONE, Ranks, RoundsDone

BETA = {"name": "hacpo", "beta": 0.01, "delta": 0.8}


def spec_of(root: Path, agents: list[dict], processes: int, sharding: str = "none", **changes) -> RunSpec:
    compute = {"processes_per_agent": processes, "sharding": sharding}
    training = {"learning_rate": 1e-3, "micro_batch_size": 3, **changes.pop("training", {})}
    evaluation = {"eval_interval": 0, "max_questions": 4}
    return make_spec(root, agents, algorithm=BETA, training=training, evaluation=evaluation, compute=compute, **changes)


def exported(run_dir: Path, step: int = 3) -> dict[str, torch.Tensor]:
    """All agents' weights of a checkpoint, and their adapters."""
    folder = run_dir / "checkpoints" / f"step-{step:06d}" / "agents"
    return {
        f"{file.parent.relative_to(folder)}/{name}": value
        for file in sorted(folder.rglob("*.safetensors"))
        for name, value in load_file(file).items()
    }


def largest_difference(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    assert left.keys() == right.keys()
    return max((left[name] - right[name]).abs().max().item() for name in left)


@pytest.mark.full
@pytest.mark.parametrize(("sharding", "lora_rank"), [("none", 0), ("fsdp2", 4)])
def test_two_processes_learn_what_one_learns(tmp_path, sharding, lora_rank):
    agents, few = make_pair(tmp_path), {"num_generations": 2}  # so that rescues are frequent
    agents[0] |= {"lora_rank": lora_rank}  # the other trains all its weights
    train(spec_of(tmp_path, agents, 1, rollout=few), tmp_path / "one")
    trainer = train(spec_of(tmp_path, agents, 2, sharding, rollout=few), tmp_path / "two")
    trainer.close()
    one, two = exported(tmp_path / "one"), exported(tmp_path / "two")
    start = {
        f"{index}-{agent['name'].lower()}/{name}": value
        for index, agent in enumerate(agents)
        for name, value in load_file(Path(agent["model"]) / "model.safetensors").items()
    }
    for index in ("0", "1"):  # they have learnt
        assert max((one[name] - start[name]).abs().max() for name in start if name.startswith(index)) > 1e-3
    assert any("lora_B" in name for name in one) == (lora_rank > 0)
    assert largest_difference(one, two) < 1e-5
    for left, right in zip(records(tmp_path / "one", "metrics"), records(tmp_path / "two", "metrics"), strict=True):
        assert left["values"] == pytest.approx(right["values"], rel=1e-3, abs=1e-5)
    kept = ("prompt", "source", "learner", "reward", "text", "drop_reason")
    of_one, of_two = (
        [{key: row[key] for key in kept if key in row} for row in records(tmp_path / name, "rollout")]
        for name in ("one", "two")
    )
    assert of_one == of_two


@pytest.mark.full
def test_split_weights_compute_in_bfloat16_and_step_in_float32(tmp_path):
    agents = [make_pair(tmp_path)[0]]
    runs = {}
    for processes, sharding in ((1, "none"), (2, "fsdp2")):
        spec = spec_of(tmp_path, agents, processes, sharding, training={"steps": 1, "learning_rate": 1e-5})
        spec = spec.model_copy(update={"compute": spec.compute.model_copy(update={"dtype": "bfloat16"})})
        train(spec, tmp_path / sharding).close()
        runs[sharding] = exported(tmp_path / sharding, step=1)
        (state,) = (tmp_path / sharding / "checkpoints" / "step-000001" / "state").glob("*qwen.safetensors")
        masters = {name: value for name, value in load_file(state).items() if name.startswith("master/")}
        assert {value.dtype for value in masters.values()} == {torch.float32}
    assert {value.dtype for value in runs["fsdp2"].values()} == {torch.bfloat16}
    # One step of 1e-5, the other way where the gradient is rounding: 2e-5, or one place of bfloat16, 2^-8 to 2^-7.
    assert all(
        torch.allclose(value.float(), runs["fsdp2"][name].float(), rtol=2**-7, atol=2.1e-5)
        for name, value in runs["none"].items()
    )


@pytest.mark.full
@pytest.mark.parametrize(("sharding", "lora_rank"), [("none", 0), ("fsdp2", 0), ("fsdp2", 4)])
def test_resumed_run_ends_bit_for_bit_as_the_undisturbed_one(tmp_path, sharding, lora_rank):
    agents = [{**make_pair(tmp_path)[0], "lora_rank": lora_rank}]
    saving = {"checkpoint": {"save_steps": 1, "keep": 3}}
    spec = spec_of(tmp_path, agents, 2, sharding, **saving)
    train(spec, tmp_path / "whole").close()
    state = tmp_path / "whole" / "checkpoints" / "step-000001" / "state"
    assert len(list(state.glob("*.safetensors"))) == (2 if sharding == "fsdp2" else 1)
    undisturbed = exported(tmp_path / "whole")
    for step in (2, 3):  # as if it had been killed in step 2
        shutil.rmtree(tmp_path / "whole" / "checkpoints" / f"step-{step:06d}")
    train(spec, tmp_path / "whole", attempt=2).close()
    assert largest_difference(exported(tmp_path / "whole"), undisturbed) == 0.0


@pytest.mark.full
@pytest.mark.skipif(find_spec("vllm") is None, reason=WITHOUT_VLLM)
@pytest.mark.parametrize(("sharding", "lora_rank"), [("none", 0), ("fsdp2", 0), ("fsdp2", 4)])
def test_engines_of_two_processes_sample_from_the_weights_that_learn(tmp_path, sharding, lora_rank, monkeypatch):
    cleared: list[bool] = []
    monkeypatch.setattr(multi_process, "remove_abandoned_weights", lambda: cleared.append(True))
    folder = make_agent(tmp_path / "model", "qwen3", seed=5, head_dim=32)  # the smallest that vLLM knows on a CPU
    agents = [{"name": "A", "model": str(folder), "lora_rank": lora_rank}]
    spec = spec_of(tmp_path, agents, 2, sharding, rollout={"engine": "vllm"}, training={"steps": 2})
    train(spec, tmp_path / "run").close()
    for record in records(tmp_path / "run", "metrics"):
        values = record["values"]
        assert values["sampling_logp_difference/mean"] < 1e-4  # of the rollouts, by the trainer's weights before
        assert values["engine_logp_difference"] < 1e-4  # after the updates, the worse of both engines
    start, end = load_file(folder / "model.safetensors"), exported(tmp_path / "run", step=2)
    assert max((end[f"0-a/{name}"] - value).abs().max() for name, value in start.items()) > 1e-3
    assert cleared  # their processes were killed with weights in memory


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_process_that_dies_ends_its_agent_with_a_reason(tmp_path):
    folder = make_agent(tmp_path / "model", "llama")
    spec = spec_of(tmp_path, [{"name": "A", "model": str(folder)}], 2)
    agent = RankedAgent(spec, 0, None)
    assert agent.describe()["architecture"] == "LlamaForCausalLM"
    processes = [process.pid for process in agent._processes]
    os.kill(processes[1], signal.SIGKILL)
    with pytest.raises(AgentLost, match="process 2 of 2 of A ended by signal 9 in take_notes"):
        agent.take_notes()
    ends = [process.poll() for process in agent._processes]
    assert (ends[0] is not None, ends[1]) == (True, -9)  # the other was killed too, or found its peer gone before
    with pytest.raises(AgentLost, match="A has ended"):
        agent.take_notes()


@pytest.mark.full
def test_processes_end_with_the_trainer_also_amid_a_call(tmp_path):
    folder = make_agent(tmp_path / "model", "llama")
    spec = spec_of(tmp_path, [{"name": "A", "model": str(folder)}], 2)
    (tmp_path / "spec.json").write_text(spec.to_json())
    code = (
        "import os, pathlib, time\n"
        "from workers.agents.multi_process import RankedAgent\n"
        "from workers.contract.spec.run import RunSpec\n"
        f"agent = RankedAgent(RunSpec.from_file(pathlib.Path({str(tmp_path / 'spec.json')!r})), 0, None)\n"
        "agent._connections[0].send(('save', (None,), {}))\n"  # fails, and nobody reads the answer
        "print(*[process.pid for process in agent._processes], flush=True)\n"
        "time.sleep(100)\n"
    )
    trainer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    found = [psutil.Process(int(pid)) for pid in trainer.stdout.readline().split()]
    assert len(found) == 2
    trainer.kill()
    trainer.wait()
    gone, alive = psutil.wait_procs(found, timeout=60)
    assert (len(gone), alive) == (2, [])


@pytest.mark.full
@pytest.mark.parametrize("sharding", ["none", "fsdp2"])
def test_checkpoint_that_cannot_be_written_leaves_the_agent_and_any_other_error_ends_all(tmp_path, sharding):
    folder = make_agent(tmp_path / "model", "llama")
    agent = RankedAgent(spec_of(tmp_path, [{"name": "A", "model": str(folder)}], 2, sharding), 0, None)
    (tmp_path / "file").touch()
    try:
        with pytest.raises(OSError, match="process 1 of 2 of A: NotADirectoryError"):
            agent.save(tmp_path / "file" / "0-a")
        with pytest.raises(OSError, match="process 1 of 2 of A: SafetensorError"):
            agent.save_state(tmp_path / "file" / "0-a")
        agent.save(tmp_path / "saved")
        assert load_file(tmp_path / "saved" / "model.safetensors")
        with pytest.raises(
            AgentFailed, match=r"process . of 2 of A failed in load_state: FileNotFoundError: .*missing"
        ):
            agent.load_state(tmp_path / "missing")
        assert all(process.poll() is not None for process in agent._processes)
    finally:
        agent.close()


def test_an_agent_alone_sends_nothing_and_splits_nothing():
    rows = list(range(7))
    assert ALONE.rounds(rows, 3) == [[[0, 1, 2]], [[3, 4, 5]], [[6]]]
    assert list(ALONE.block(7)) == rows
    assert (ALONE.sum(1.5), ALONE.all(False), ALONE.gather("x")) == (1.5, False, ["x"])


def test_ranks_share_rows_so_that_each_has_work():
    rows = list(range(7))
    ranks = [Ranks(rank, 3) for rank in range(3)]
    # At most 64 in a chunk, but 7 rows are 3 chunks of 3, 3 and 1 for three ranks.
    assert [[list(rank.mine(chunks)) for chunks in rank.rounds(rows, 64)] for rank in ranks] == [
        [[0, 1, 2]],
        [[3, 4, 5]],
        [[6]],
    ]
    assert [[list(rank.mine(chunks)) for chunks in rank.rounds(rows, 2)] for rank in ranks] == [
        [[0, 1], [6]],
        [[2, 3], []],
        [[4, 5], []],
    ]
    assert [list(rank.block(7)) for rank in ranks] == [[0, 1], [2, 3], [4, 5, 6]]


def test_chunks_keep_to_a_number_of_tokens():
    lengths = [2, 2, 3, 3, 5, 9, 4]

    def chunks(tokens: int, size: int = 64) -> list[list[int]]:
        return [
            list(chunk) for chunks in ALONE.rounds(lengths, size, lambda length: length, tokens) for chunk in chunks
        ]

    # Padded to the longest: 3 rows of 3 are 9 tokens, the fourth would make them 12.
    assert chunks(9) == [[2, 2, 3], [3], [5], [9], [4]]
    assert chunks(10) == [[2, 2, 3], [3, 5], [9], [4]]
    assert chunks(5) == [[2, 2], [3], [3], [5], [9], [4]]  # one row is always a chunk
    assert chunks(0) == [lengths]
    assert chunks(100, size=3) == [[2, 2, 3], [3, 5, 9], [4]]


def test_memory_that_runs_out_halves_the_round_in_which_it_does():
    seen: list[list[int]] = []

    def work(rounds, progress: RoundsDone) -> int:
        seen.append([len(chunk) for chunks in rounds for chunk in chunks])
        for progress.round, chunks in enumerate(rounds):
            if any(3 in chunk and len(chunk) > 1 for chunk in chunks):
                raise torch.OutOfMemoryError("full\nmore")
        return 7

    def never(rounds, progress: RoundsDone) -> int:
        raise torch.OutOfMemoryError("full")

    notes: list[str] = []
    result, rounds = ALONE.fit(work, ALONE.rounds(list(range(8)), 4), notes)
    assert result == 7
    assert seen == [[4, 4], [2, 2, 4], [2, 1, 1, 4]]
    assert [list(chunk) for chunks in rounds for chunk in chunks] == [[0, 1], [2], [3], [4, 5, 6, 7]]
    assert notes == [f"out of memory: a micro-batch of {size} sequences was halved (full)" for size in (4, 2)]
    with pytest.raises(OutOfMemory, match="one sequence at a time"):
        ALONE.fit(never, [[[3, 3]]], notes)


def test_settings_that_do_not_go_together_are_refused(tmp_path):
    agents = make_pair(tmp_path)
    with pytest.raises(ValueError, match="set processes_per_agent to 2 or more"):
        spec_of(tmp_path, agents, 1, "fsdp2")
    with pytest.raises(ValueError, match="fsdp2 already splits what offload moves away"):
        make_spec(tmp_path, agents, compute={"processes_per_agent": 2, "sharding": "fsdp2", "offload": "idle"})
