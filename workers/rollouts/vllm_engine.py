"""Rollouts by vLLM: the agent's side of an engine in another process (vllm_process.py), and its weights.

The engine gets token ids and a seed for each row, never text. New weights are sent as tensors (on a GPU by CUDA IPC:
nothing is copied), or as a model folder in memory if checkpoint and model use different names, or the agent has several
processes: each has its engine, and all read the folder of the first. With LoRA the engine holds the starting model, and
only the matrices are sent, as a folder. On a GPU the engine sleeps while the trainer works, and then holds neither
weights nor cache there; the starting model it keeps in the machine's memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers.utils import CONFIG_NAME, cached_file

from workers import heartbeat
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.rollout import vllm_lora_rank
from workers.contract.spec.run import RunSpec
from workers.model.policy import Policy
from workers.rollouts.sampler import Sample, SampleRequest
from workers.rollouts.vllm_process import EngineSettings, GenerateCommand, serve_engine

END_S = 10.0
MAX_SHARED_TENSORS = 256  # on a CPU each needs a file descriptor in both processes
MEMORY_FILES = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a folder there
PREFIX, LOCK = "hacrl-weights-", "in-use"


class EngineFailed(RuntimeError):
    """The engine's process failed at a command, or has ended."""


class VllmEngine:
    """One agent's vLLM. `_is_current`: it has the policy's present weights."""

    has_own_weights = True

    def __init__(self, policy: Policy, spec: RunSpec, device: torch.device) -> None:
        """Start the engine's process. Error at the first rollouts or weights: EngineFailed."""
        self._policy, self._ranks = policy, policy.ranks
        self._on_gpu = device.type == "cuda"
        size = 4 * policy.optimizer.num_trained if policy.uses_lora else policy.num_bytes
        self._own_folder = WeightFolder(size) if self._ranks.is_first else None
        path = self._own_folder.path if self._own_folder else Path()
        self._folder = self._ranks.gather(path)[0]
        if not policy.uses_lora:
            self._save_weights()
        self._sends_tensors = _can_send_tensors(policy, self._folder, device)
        # spawn: a fork would inherit the run directory's lock, the trainer's death pipe and its CUDA context.
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve_engine, args=(theirs, _settings(policy, spec, self._folder, device)), daemon=True
        )
        self._process.start()
        theirs.close()
        # The processes of all agents import vLLM at the same time. On a GPU each engine begins at its first rollout:
        # it measures the free memory, so the others sleep, and no trainer is loading its weights.
        self._is_starting = True
        self._is_current, self._is_asleep = not policy.uses_lora and not self._on_gpu, False
        if not self._on_gpu:
            self._send("start")

    def sample(self, request: SampleRequest) -> list[Sample]:
        """See RolloutEngine. vLLM decides how many rows it takes at once, at most rollout_batch_size."""
        self.wake()
        seeds = [key >> 1 for key in request.keys]  # 63 bits: vLLM needs signed numbers
        size = self._policy.model.config.get_text_config().vocab_size
        stop_ids = [one for one in self._policy.eos_ids if one < size]  # vLLM refuses others, which nothing samples
        command = GenerateCommand(
            prompts=request.prompts,
            rows=request.rows,
            seeds=seeds,
            temperature=request.temperature,
            max_new_tokens=request.max_new_tokens,
            stop_ids=stop_ids,
            top_p=request.top_p,
            top_k=request.top_k,
            stop=request.stop,
            limits=request.limits,
            textless=self._policy.textless,
            num_rows=size,
        )
        outputs = self._run_command("generate", command) if request.rows else []
        self.sleep()
        # vLLM returns no distributions: the entropy is estimated by -log p of the sampled tokens, whose mean it is.
        return [
            Sample(ids, logps, at_stop or ids[-1] in stop_ids, -sum(logps), at_stop) for ids, logps, at_stop in outputs
        ]

    def take_weights(self) -> None:
        """The policy has new weights: send them now, or on a GPU before the next rollouts."""
        self._is_current = False
        if not self._on_gpu:
            self.wake()

    def take_notes(self) -> list[str]:
        return []

    def sleep(self) -> None:
        """Free the GPU of weights and cache; on a CPU there is nothing to free."""
        if self._on_gpu and not self._is_asleep and not self._is_starting:
            self._run_command("sleep")
            self._is_asleep, self._is_current = True, self._is_current and self._policy.uses_lora

    def wake(self) -> None:
        """Allocate the weights, send them, then allocate the cache: in this order the peak is lowest."""
        if self._on_gpu:
            torch.cuda.empty_cache()  # what the trainer has freed, torch would keep from the engine
        if self._is_asleep:
            self._run_command("wake", "weights")
        if not self._is_current:
            self._send_weights()
        if self._is_asleep:
            self._run_command("wake", "kv_cache")
            self._is_asleep = False

    def close(self) -> None:
        """End the engine's process by closing its pipe, and remove its weights."""
        self._connection.close()
        self._process.join(END_S)
        self._process.kill()
        self._process.join()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._own_folder:
            self._own_folder.remove()

    def _save_weights(self) -> None:
        """The first rank writes them to the folder; all wait for it."""
        write = self._policy.save_adapter if self._policy.uses_lora else self._policy.save
        write(self._folder)
        self._ranks.gather(None)

    def _send_weights(self) -> None:
        if self._sends_tensors:
            # On a CPU a tensor that is sent stays in shared memory: send a copy.
            self._run_command(
                "take_tensors",
                [
                    (name, parameter.detach() if self._on_gpu else parameter.detach().clone())
                    for name, parameter in self._policy.model.named_parameters()
                ],
            )
        else:
            self._save_weights()
            self._run_command("take_adapter" if self._policy.uses_lora else "take_folder", str(self._folder))
        self._is_current = True

    def _run_command(self, name: str, argument: Any = None) -> Any:
        """The engine's answer to a command. Error: EngineFailed."""
        if self._is_starting:
            if self._on_gpu:
                self._send("start")
            self._answer()
            self._is_starting = False
            if self._sends_tensors:
                self._remove_folder()  # no longer needed
        self._send(name, argument)
        return self._answer()

    def _send(self, name: str, argument: Any = None) -> None:
        with suppress(BrokenPipeError):  # _answer reports that the process has ended
            self._connection.send((name, argument))

    def _answer(self) -> Any:
        try:
            while True:
                kind, value = self._connection.recv()
                if kind == "done":
                    return value
                if kind == "failed":
                    raise EngineFailed(f"the vLLM engine of {self._policy.agent.name} failed: {value}")
                heartbeat.send_heartbeat()
        except (EOFError, ConnectionResetError):
            self._process.join(END_S)
            raise EngineFailed(
                f"the vLLM engine of {self._policy.agent.name} ended with exit status {self._process.exitcode}: "
                "see the trainer's log"
            ) from None


def _settings(policy: Policy, spec: RunSpec, folder: Path, device: torch.device) -> EngineSettings:
    length = spec.rollout.max_prompt_length + spec.rollout.max_completion_length
    agent = policy.agent
    # On a GPU it gets the weights before its first rollout, and loses them whenever it sleeps.
    has_weights = policy.uses_lora or device.type == "cpu"
    if policy.uses_lora:
        folder = _start_folder(agent)
    elif not has_weights:
        folder = bare_folder(folder)
    return EngineSettings(
        folder=str(folder),
        device=device.type,
        gpu_index=device.index or 0,
        dtype=str(policy.dtype).removeprefix("torch."),
        max_model_len=min(length, policy.context_length or length),
        max_num_seqs=spec.rollout.rollout_batch_size,
        gpu_memory_utilization=spec.rollout.gpu_memory_utilization,
        num_threads=spec.compute.num_threads,
        reads_text=bool(spec.rollout.stop) or spec.rollout.environment != "none",
        max_lora_rank=vllm_lora_rank(agent.lora_rank) if policy.uses_lora else 0,
        has_weights=has_weights,
    )


def bare_folder(saved: Path) -> Path:
    """A folder with all of a saved model but its weights, under a name of its contents.

    vLLM looks by the folder's name for what it has compiled: a model of the same shape and tokenizer finds it.
    """
    files = [path for path in sorted(saved.iterdir()) if path.name != LOCK and ".safetensors" not in path.name]
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + path.read_bytes())
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = Path(os.environ.get("VLLM_CACHE_ROOT") or caches / "vllm") / "hacrl"
    folder = cache / digest.hexdigest()[:16]
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=cache))
        for path in files:
            shutil.copy(path, new)
        try:
            new.rename(folder)
        except OSError:  # another engine was first
            shutil.rmtree(new)
    return folder


def _start_folder(agent: AgentSpec) -> Path:
    """The folder of an agent's starting model; of one of the hub, in its cache on this host."""
    return Path(str(cached_file(agent.model, CONFIG_NAME, revision=agent.revision))).parent


def _can_send_tensors(policy: Policy, folder: Path, device: torch.device) -> bool:
    """Whether `folder` holds the model's parameters by the same names, and the engine can receive them as tensors."""
    if policy.uses_lora or not policy.ranks.is_alone:
        return False
    if device.index:  # the engine sees only that GPU, as its first: a handle would refer to another
        return False
    saved: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            saved |= set(file.keys())
    parameters = dict(policy.model.named_parameters())
    has_few = device.type == "cuda" or len(parameters) <= MAX_SHARED_TENSORS
    return set(parameters) == saved and has_few


class WeightFolder:
    """A folder for weights on their way to an engine; `path` is empty, but for its lock, until `remove`.

    A killed trainer cannot remove its folder; the next that starts on the host does, because the lock is free.
    """

    def __init__(self, size_bytes: int) -> None:
        """In memory if twice the size is free there, else among the temporary files. Error: OSError."""
        parent = Path(tempfile.gettempdir())
        with suppress(OSError):
            if shutil.disk_usage(MEMORY_FILES).free > 2 * size_bytes:
                parent = MEMORY_FILES
        remove_abandoned_weights()
        folder = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
        self._lock = open(folder / LOCK, "w")  # noqa: SIM115 - held until the folder is removed
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # The final name comes last: without its lock the folder would look abandoned.
        self.path = folder.rename(parent / folder.name.replace(".new-", PREFIX))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def remove_abandoned_weights() -> None:
    """Remove the folders of processes that have ended."""
    for parent in (MEMORY_FILES, Path(tempfile.gettempdir())):
        for path in parent.glob(f"{PREFIX}*"):
            with suppress(OSError), open(path / LOCK) as lock:  # another user's, already removed, or in use
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
