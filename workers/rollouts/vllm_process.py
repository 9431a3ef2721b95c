"""The process of a vLLM engine, which reads commands from a pipe; vllm_engine.py is the other end of the pipe.

All calls of vLLM are here, for the version in constraints.txt. The commands are `start`, `generate`, `take_tensors`,
`take_folder`, `take_adapter`, `sleep` and `wake`. Each is answered by ("done", result) or ("failed", why), and by
("heartbeat", None) while it works. The process ends with its pipe. vLLM starts no further processes here, so a row's
tokens do not depend on when another row arrived.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from workers.death_watch import die_with_trainer

# Defaults of variables that vLLM and torch read when they are imported.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
}
# Of a rank of an agent (agents/multi_process.py), which this process is not.
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
CPU_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB of keys and values
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # engines and trainers share the cores
    "TORCHDYNAMO_DISABLE": "1",
}
ADAPTER_NAME = "policy"
HIDDEN_BIAS = -1e4  # of a logit: at every temperature its probability is 0. SamplingParams itself has no limit of it


@dataclass(frozen=True)
class EngineSettings:
    """Settings at an engine's start. folder: of the model.  num_threads: of the CPU, 0 = one per core.

    reads_text: it loads the tokenizer, which stop strings need.  max_lora_rank: above 0, it samples with an adapter.
    has_weights: they are in the folder; else it starts with random ones.
    """

    folder: str
    device: str  # cpu or cuda
    gpu_index: int  # among those visible to the trainer
    dtype: str
    max_model_len: int
    max_num_seqs: int
    gpu_memory_utilization: float
    num_threads: int
    reads_text: bool = False
    max_lora_rank: int = 0
    has_weights: bool = True


@dataclass(frozen=True)
class GenerateCommand:
    """The argument of `generate`: prompts as token ids, and for each row its prompt's index and its seed.

    limits: most tokens of each row, if they differ.  textless: ids that are never sampled, of num_rows in all.
    """

    prompts: Sequence[Sequence[int]]
    rows: Sequence[int]
    seeds: Sequence[int]
    temperature: float
    max_new_tokens: int
    stop_ids: Sequence[int]
    top_p: float = 1.0
    top_k: int = 0
    stop: Sequence[str] = ()
    limits: Sequence[int] = ()
    textless: Sequence[int] = ()
    num_rows: int = 0


def tensors_of(folder: Path) -> Iterator[tuple[str, Any]]:
    """The weights in a model folder, by their names there."""
    from safetensors import safe_open  # it imports torch

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            yield from ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118 - it is no dictionary


class WorkerExtension:
    """Mixed into vLLM's worker (`worker_extension_cls`), which holds the model."""

    def take_weights(self, weights: Sequence[tuple[str, Any]] | None, folder: str | None) -> None:
        """New weights as (name in a checkpoint, tensor), or those of a model folder."""
        source = iter(weights) if weights is not None else tensors_of(Path(folder or ""))
        self.reload_weights(weights_iterator=source)  # type: ignore[attr-defined]
        if self.model_config.hf_text_config.tie_word_embeddings:  # type: ignore[attr-defined]
            self._tie_output_embeddings()

    def _tie_output_embeddings(self) -> None:
        """A reload skips tied output embeddings: a CPU's packed copy would hold the old weights."""
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

        modules = list(self.model_runner.get_model().modules())  # type: ignore[attr-defined]
        [source] = [one for one in modules if type(one) is VocabParallelEmbedding]
        for head in modules:
            if isinstance(head, ParallelLMHead):
                head.weight = source.weight
                head.quant_method.process_weights_after_loading(head)


class Engine:
    """vLLM's LLM, with a method for each command. heartbeat: called at every sign of work."""

    def __init__(self, settings: EngineSettings, heartbeat: Callable[[], None]) -> None:
        from vllm import LLM
        from vllm.platforms import current_platform

        self._on_gpu = settings.device == "cuda"
        if current_platform.is_cuda() != self._on_gpu:
            raise ValueError(
                f"the installed vLLM is built for {current_platform.device_type}, and the run computes on "
                f"{settings.device}: change compute.device, or install the other build (docs/gpu.md)"
            )
        self._heartbeat = heartbeat
        self._sleep_level = sleep_level(settings)
        self._llm = LLM(**llm_arguments(settings))
        self._adapter: Any = None

    def generate(self, command: GenerateCommand) -> list[tuple[list[int], list[float], bool]]:
        """For each row: token ids with the one that ended it, their log-probabilities, whether a stop string did."""
        from vllm import SamplingParams

        limits = command.limits or [command.max_new_tokens] * len(command.seeds)
        parameters = [
            SamplingParams(**sampling_arguments(command) | {"seed": seed, "max_tokens": limit})
            for seed, limit in zip(command.seeds, limits, strict=True)
        ]
        requests: list[Any] = [{"prompt_token_ids": list(command.prompts[row])} for row in command.rows]
        self._llm.enqueue(requests, parameters, use_tqdm=False, lora_request=self._adapter)
        engine = self._llm.llm_engine
        outputs: list[Any] = []
        while engine.has_unfinished_requests():
            self._heartbeat()
            outputs += [output for output in engine.step() if output.finished]
        # Request ids are numbered in the order of the requests.
        return [_tokens_of(output.outputs[0]) for output in sorted(outputs, key=lambda output: int(output.request_id))]

    def take_tensors(self, weights: Sequence[tuple[str, Any]]) -> None:
        self._take(list(weights), None)

    def take_folder(self, folder: str) -> None:
        self._take(None, folder)

    def _take(self, weights: Sequence[tuple[str, Any]] | None, folder: str | None) -> None:
        self._llm.collective_rpc("take_weights", args=(weights, folder))
        self._llm.reset_prefix_cache()  # it holds results of the old weights

    def take_adapter(self, folder: str) -> None:
        """Sample with the LoRA matrices of a folder of PEFT, in place of earlier ones."""
        from vllm.lora.request import LoRARequest

        self._llm.llm_engine.add_lora(LoRARequest(ADAPTER_NAME, 1, folder, load_inplace=True))
        self._adapter = LoRARequest(ADAPTER_NAME, 1, folder)
        self._llm.reset_prefix_cache()

    def sleep(self) -> None:
        """Free the GPU of weights and cache; a CPU has no such mode."""
        if self._on_gpu:
            self._llm.sleep(level=self._sleep_level)

    def wake(self, what: str) -> None:
        """Allocate the memory of the `weights`, or of the cache (`kv_cache`)."""
        if self._on_gpu:
            self._llm.wake_up(tags=[what])


def _tokens_of(completion: Any) -> tuple[list[int], list[float], bool]:
    ids = list(completion.token_ids)
    logps = [float(candidates[token].logprob) for token, candidates in zip(ids, completion.logprobs, strict=True)]
    return ids, logps, isinstance(completion.stop_reason, str)  # of a stop token it is the id


def sampling_arguments(command: GenerateCommand) -> dict[str, Any]:
    """The arguments of vLLM's SamplingParams that all rows share."""
    arguments: dict[str, Any] = {
        "temperature": command.temperature,
        "max_tokens": command.max_new_tokens,
        "stop_token_ids": list(command.stop_ids),
        "logprobs": 0,  # of the sampled token alone
        "detokenize": bool(command.stop),
    }
    if command.temperature > 0:
        arguments |= {"top_p": command.top_p, "top_k": command.top_k}
    hidden = {*command.textless}
    if 0 < len(hidden) <= command.num_rows - len(hidden):
        arguments["logit_bias"] = dict.fromkeys(sorted(hidden), HIDDEN_BIAS)
    elif hidden:
        arguments["allowed_token_ids"] = [one for one in range(command.num_rows) if one not in hidden]
    return arguments | ({"stop": list(command.stop)} if command.stop else {})


def sleep_level(settings: EngineSettings) -> int:
    """1: vLLM keeps its weights in the machine's memory, for nobody sends them again.  2: it drops them."""
    return 1 if settings.max_lora_rank else 2


def llm_arguments(settings: EngineSettings) -> dict[str, Any]:
    """The arguments of vLLM's LLM."""
    arguments: dict[str, Any] = {
        "model": settings.folder,
        "dtype": settings.dtype,
        "load_format": "safetensors" if settings.has_weights else "dummy",
        "use_tqdm_on_load": False,
        "skip_tokenizer_init": not settings.reads_text,
        "generation_config": "vllm",  # the model's own would bring its top_p and temperature
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "logprobs_mode": "processed_logprobs",  # after temperature, like the trainer's
        "max_logprobs": 1,
        "enable_prefix_caching": True,  # the rollouts of a prompt share its keys and values
        "seed": 0,  # unused: each request has its own
        "enforce_eager": settings.device == "cpu",
        "worker_extension_cls": f"{__name__}.{WorkerExtension.__name__}",
    }
    if settings.max_lora_rank:
        arguments |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": settings.max_lora_rank}
    if settings.device == "cuda":
        arguments |= {"enable_sleep_mode": True, "gpu_memory_utilization": settings.gpu_memory_utilization}
    return arguments


def prepare_environment(settings: EngineSettings) -> None:
    """Called before torch and vLLM are imported."""
    for name in RANK_VARIABLES:
        os.environ.pop(name, None)
    variables: Mapping[str, str] = ENVIRONMENT
    if settings.device == "cpu":
        # The trainer's OMP_NUM_THREADS is not for this process.
        os.environ["OMP_NUM_THREADS"] = str(settings.num_threads or os.cpu_count() or 1)
        variables = {**ENVIRONMENT, **CPU_ENVIRONMENT}
    elif settings.gpu_index:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        has_list = len(visible) > settings.gpu_index
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[settings.gpu_index] if has_list else str(settings.gpu_index)
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def serve_engine(connection: Connection, settings: EngineSettings) -> None:
    """The process: import vLLM, start the engine when told to, then carry out commands until the pipe ends."""
    prepare_environment(settings)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the trainer, which first ends its step
    die_with_trainer(connection.fileno())
    engine: Engine | None = None

    def send_heartbeat() -> None:
        connection.send(("heartbeat", None))

    with suppress(Exception):  # the start reports it
        import vllm  # noqa: F401 - takes 20 s, in which other agents' engines are imported too
    while True:
        name, argument = connection.recv()
        try:
            if engine is None:
                engine, result = Engine(settings, send_heartbeat), None
            else:
                command = getattr(engine, name)
                result = command() if argument is None else command(argument)
            answer = ("done", result)
        except Exception as error:
            traceback.print_exc()
            answer = ("failed", f"{type(error).__name__}: {error}")
        connection.send(answer)
        if engine is None:
            return
