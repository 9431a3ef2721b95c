"""The outside of a vLLM engine, without vLLM: its commands, its weights, and an engine that fails or dies."""

from __future__ import annotations

import os
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.support.workers.tiny import make_agent, make_spec
from workers import heartbeat
from workers.model.policy import Policy
from workers.model.process_group import Ranks
from workers.rollouts import vllm_engine
from workers.rollouts.engine import EngineMissing, check_engine
from workers.rollouts.sampler import SampleRequest
from workers.rollouts.vllm_engine import EngineFailed, VllmEngine, WeightFolder
from workers.rollouts.vllm_process import (
    EngineSettings,
    GenerateCommand,
    llm_arguments,
    prepare_environment,
    sampling_arguments,
    sleep_level,
)

CPU = torch.device("cpu")


class Answering:
    """The trainer's end of the pipe to an engine that does everything at once, and notes the commands."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, Any]] = []
        self.answers: list[tuple[str, Any]] = []
        self.start_answer: tuple[str, Any] = ("done", None)
        self.settings: EngineSettings | None = None
        self.has_started = False

    def start(self, *, args: Any, **_: Any) -> SimpleNamespace:
        self.settings = args[1]
        return SimpleNamespace(start=lambda: None, join=lambda *_: None, kill=lambda: None)

    def send(self, command: tuple[str, Any]) -> None:
        name, argument = command
        if name == "start":
            self.has_started = True
            self.answers.append(self.start_answer)
            return
        self.commands.append(command)
        result = [([4, 1], [-0.5, -0.25], False) for _ in argument.rows] if name == "generate" else None
        self.answers += [("heartbeat", None), ("done", result)]

    def recv(self) -> tuple[str, Any]:
        return self.answers.pop(0)

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of the host's memory files."""
    found = tmp_path / "memory"
    found.mkdir()
    monkeypatch.setattr(vllm_engine, "MEMORY_FILES", found)
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "cache"))
    return found


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """In place of a process: VllmEngine talks to this."""
    found = Answering()
    context = SimpleNamespace(
        Pipe=lambda: (found, SimpleNamespace(close=lambda: None)),
        Process=lambda **options: found.start(args=options["args"]),
    )
    monkeypatch.setattr(vllm_engine, "get_context", lambda method: context)
    return found


def spec_and_policy(root: Path, **agent: Any) -> tuple[Any, Policy]:
    root.mkdir(exist_ok=True)
    folder = make_agent(root / "qwen", "qwen3", seed=1)
    spec = make_spec(root, [{"name": "Qwen", "model": str(folder), **agent}], rollout={"engine": "vllm"})
    return spec, Policy(spec.agents[0], spec, torch.device("cpu"))


def sample(engine: VllmEngine) -> list[Any]:
    return engine.sample(SampleRequest([[2, 3]], [0, 0], [2**64 - 1, 2], 0.5, 3, 8))


def names(connection: Answering) -> list[str]:
    return [f"{name} {argument}" if name == "wake" else name for name, argument in connection.commands]


def test_on_a_gpu_a_model_of_the_same_shape_has_the_same_folder_without_weights(tmp_path, connection):
    """vLLM's compiled code is found by the folder's name; the weights go over before the first sample."""
    folders = []
    for number in range(3):
        spec, policy = spec_and_policy(tmp_path / str(number // 2))
        with torch.no_grad():
            policy.model.get_input_embeddings().weight.add_(number)
        if number == 2:
            policy.model.config.rope_parameters["rope_theta"] = 5000.0
        connection.answers = [("done", None)]
        VllmEngine(policy, spec, torch.device("cuda"))
        settings = connection.settings
        assert settings is not None
        assert llm_arguments(settings)["load_format"] == "dummy"
        folders.append(Path(settings.folder))
    assert folders[0] == folders[1] != folders[2]
    assert (folders[0] / "config.json").exists()
    assert not list(folders[0].glob("*.safetensors*"))


def test_samples_carry_tokens_log_probabilities_and_an_estimate_of_the_entropy(tmp_path, connection):
    spec, policy = spec_and_policy(tmp_path)
    found = sample(VllmEngine(policy, spec, CPU))
    assert [(one.token_ids, one.logps, one.finished, one.entropy) for one in found] == [
        ([4, 1], [-0.5, -0.25], True, 0.75)
    ] * 2  # 1 is <eos>; .5 + .25
    [(_, command)] = connection.commands
    assert command == GenerateCommand(
        [[2, 3]], [0, 0], [2**63 - 1, 1], 0.5, 3, [1], num_rows=18
    )  # seeds are 63 bits of the keys


def test_on_a_cpu_new_weights_go_over_at_once_as_copies(tmp_path, connection):
    spec, policy = spec_and_policy(tmp_path)
    engine = VllmEngine(policy, spec, CPU)
    engine.take_weights()
    [(name, weights)] = connection.commands
    assert name == "take_tensors"
    own = dict(policy.model.named_parameters())
    assert {key: value.shape for key, value in weights} == {key: value.shape for key, value in own.items()}
    assert all(value.data_ptr() != own[key].data_ptr() and torch.equal(value, own[key]) for key, value in weights)
    assert not any(value.is_shared() for value in own.values())


def test_on_a_gpu_the_engine_sleeps_but_for_its_samples_and_wakes_in_order(tmp_path, connection):
    spec, policy = spec_and_policy(tmp_path)
    engine = VllmEngine(policy, spec, torch.device("cuda"))
    engine.take_weights()
    assert not connection.has_started  # it would measure memory while other agents load their weights
    sample(engine)
    assert connection.has_started
    assert names(connection) == ["take_tensors", "generate", "sleep"]  # it began awake, with random weights
    connection.commands.clear()
    sample(engine)
    expected = ["wake weights", "take_tensors", "wake kv_cache", "generate", "sleep"]
    assert names(connection) == expected
    own = dict(policy.model.named_parameters())
    assert all(value.data_ptr() == own[key].data_ptr() for key, value in connection.commands[1][1])  # no copy
    connection.commands.clear()
    sample(engine)  # its weights were discarded while it slept
    assert names(connection) == expected


def test_with_lora_the_engine_has_the_starting_model_and_only_matrices_go_over(tmp_path, connection, monkeypatch):
    spec, policy = spec_and_policy(tmp_path, lora_rank=2)
    monkeypatch.setattr(Policy, "save", None)  # nothing is loaded or merged
    engine = VllmEngine(policy, spec, CPU)
    settings = connection.settings
    assert settings is not None
    assert (settings.folder, settings.max_lora_rank) == (spec.agents[0].model, 8)  # the least that vLLM has above 2
    assert {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8}.items() <= llm_arguments(settings).items()
    for _ in range(2):
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter += parameter.requires_grad
        engine.take_weights()
        name, folder = connection.commands[-1]
        assert name == "take_adapter"
        assert {path.name for path in Path(folder).iterdir()} == {
            "adapter_config.json",
            "adapter_model.safetensors",
            "in-use",
        }
        sent = load_file(Path(folder) / "adapter_model.safetensors")
        own = policy.model.get_submodule("model.layers.1.mlp.up_proj").lora_B["default"].weight
        assert torch.equal(sent["base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"], own)
    engine.close()
    assert not Path(folder).exists()


def test_with_lora_the_matrices_are_sent_once_however_often_the_engine_sleeps(tmp_path, connection):
    spec, policy = spec_and_policy(tmp_path, lora_rank=2)
    engine = VllmEngine(policy, spec, torch.device("cuda"))
    sample(engine)
    assert names(connection) == ["take_adapter", "generate", "sleep"]
    connection.commands.clear()
    sample(engine)  # vLLM kept the starting model and the matrices in the machine's memory
    assert names(connection) == ["wake weights", "wake kv_cache", "generate", "sleep"]
    settings = connection.settings
    assert settings is not None
    assert (sleep_level(settings), sleep_level(replace(settings, max_lora_rank=0))) == (1, 2)


def test_engines_of_further_processes_read_the_folder_of_the_first(tmp_path, connection, memory, monkeypatch):
    spec, policy = spec_and_policy(tmp_path)
    policy.ranks = Ranks(1, 2)
    monkeypatch.setattr(Ranks, "gather", lambda self, value: [tmp_path / "of the first", value])
    engine = VllmEngine(policy, spec, CPU)
    engine.take_weights()
    assert connection.commands == [("take_folder", str(tmp_path / "of the first"))]
    assert not (tmp_path / "of the first").exists()  # the first writes it
    assert engine.sample(SampleRequest([[2, 3]], [], [], 0.5, 3, 8)) == []  # no rows for this rank
    assert names(connection) == ["take_folder"]
    assert list(memory.iterdir()) == []


def test_weights_do_not_stay_in_memory_once_they_are_read(tmp_path, connection, memory):
    spec, policy = spec_and_policy(tmp_path)
    engine = VllmEngine(policy, spec, CPU)
    assert [path.name for path in memory.glob("*/*.safetensors")] == ["model.safetensors"]
    sample(engine)
    assert list(memory.iterdir()) == []
    engine.close()


def test_what_a_killed_trainer_left_in_memory_is_removed_and_nothing_else(memory):
    mine = WeightFolder(0)
    ours, theirs = get_context("fork").Pipe()
    trainer = get_context("fork").Process(target=lambda: theirs.send(WeightFolder(0).path.name))
    trainer.start()
    killed = ours.recv()
    trainer.join()
    (memory / "other").mkdir()
    assert {path.name for path in memory.iterdir()} == {mine.path.name, killed, "other"}
    WeightFolder(0).remove()
    assert {path.name for path in memory.iterdir()} == {mine.path.name, "other"}
    mine.remove()


def test_work_of_the_engine_is_a_sign_of_life(tmp_path, connection, monkeypatch):
    spec, policy = spec_and_policy(tmp_path)
    engine = VllmEngine(policy, spec, CPU)
    beats: list[None] = []
    monkeypatch.setattr(heartbeat, "send_heartbeat", lambda: beats.append(None))
    sample(engine)
    assert len(beats) == 1


def test_an_error_in_the_engine_is_raised(tmp_path, connection):
    spec, policy = spec_and_policy(tmp_path)
    connection.start_answer = ("failed", "ValueError: no room")
    engine = VllmEngine(policy, spec, CPU)
    with pytest.raises(EngineFailed, match="the vLLM engine of Qwen failed: ValueError: no room"):
        sample(engine)


def die(connection: Any, settings: Any) -> None:
    """In place of `serve`: an engine whose process is gone at once."""
    os._exit(7)


def test_an_engine_that_dies_is_no_hanging_trainer(tmp_path, monkeypatch):
    spec, policy = spec_and_policy(tmp_path)
    monkeypatch.setattr(vllm_engine, "serve_engine", die)
    monkeypatch.setattr(vllm_engine, "get_context", lambda method: get_context("fork"))
    engine = VllmEngine(policy, spec, CPU)
    with pytest.raises(EngineFailed, match="ended with exit status 7"):
        sample(engine)
    engine.close()


def test_a_run_whose_host_has_no_vllm_is_refused_with_advice(tmp_path, monkeypatch):
    spec, _ = spec_and_policy(tmp_path)
    monkeypatch.setattr("workers.rollouts.engine.find_spec", lambda name: None)
    with pytest.raises(EngineMissing, match=r"not installed on this host.*workers\.rollouts\.install_vllm"):
        check_engine(spec)


def test_only_a_gpu_engine_sleeps_and_shares_memory():
    settings = EngineSettings("/m", "cpu", 0, "float32", 64, 8, 0.3, 1)
    assert "gpu_memory_utilization" not in llm_arguments(settings)
    assert llm_arguments(settings)["enforce_eager"]
    arguments = llm_arguments(EngineSettings("/m", "cuda", 0, "bfloat16", 64, 8, 0.3, 1))
    assert (arguments["enable_sleep_mode"], arguments["gpu_memory_utilization"]) == (True, 0.3)
    assert arguments["logprobs_mode"] == "processed_logprobs"


def test_an_engine_on_a_further_gpu_sees_that_one_alone(monkeypatch):
    settings = EngineSettings("/m", "cuda", 1, "bfloat16", 64, 8, 0.3, 1)
    for before, after in (("", "1"), ("4,6", "6")):
        monkeypatch.setattr("os.environ", {"CUDA_VISIBLE_DEVICES": before, "RANK": "1", "WORLD_SIZE": "2"})
        prepare_environment(settings)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == after
        assert not {"RANK", "WORLD_SIZE"} & os.environ.keys()  # vLLM would wait for its other rank


def test_stop_strings_and_shares_of_the_distribution_reach_vllm():
    """Stop strings are found in text, so vLLM then needs the tokenizer; a greedy request has no share."""
    plain = GenerateCommand([[2]], [0], [1], 0.5, 3, [1])
    assert sampling_arguments(plain) == {
        "temperature": 0.5,
        "max_tokens": 3,
        "stop_token_ids": [1],
        "logprobs": 0,
        "detokenize": False,
        "top_p": 1.0,
        "top_k": 0,
    }
    full = replace(plain, top_p=0.9, top_k=20, stop=("\n\n",))
    changed = {"top_p": 0.9, "top_k": 20, "stop": ["\n\n"], "detokenize": True}
    assert sampling_arguments(full) == sampling_arguments(plain) | changed
    assert sampling_arguments(replace(plain, temperature=0.0)).keys().isdisjoint({"top_p", "top_k"})
    settings = EngineSettings("folder", "cuda", 0, "bfloat16", 100, 8, 0.3, 0)
    assert llm_arguments(settings)["skip_tokenizer_init"] is True
    assert llm_arguments(replace(settings, reads_text=True))["skip_tokenizer_init"] is False


def test_a_row_that_vllm_ended_at_a_stop_string_is_finished_without_an_eos(tmp_path, connection):
    spec, policy = spec_and_policy(tmp_path)
    engine = VllmEngine(policy, spec, CPU)
    connection.answers += [("done", [([4, 5], [-0.5, -0.25], True)])]
    connection.send = lambda command: None  # type: ignore[method-assign]
    [found] = engine.sample(SampleRequest([[2, 3]], [0], [2], 0.5, 3, 8, stop=("5",)))
    assert (found.finished, found.has_stop, found.has_eos) == (True, True, False)
