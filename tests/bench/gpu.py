"""Runs of real size on one GPU, with random weights and every response as long as it may be.

`python -m tests.bench.gpu step [--sampler vllm] [--recomputing off] [--chunk 1024] [--attention eager]`: a step of a
pair by phase, first of short responses, then of long ones. Phases are exclusive, and the GPU is idle at both ends of
each; `weights` is also the check of an engine that has its own, `sleep` its going to sleep and waking.
`python -m tests.bench.gpu passes`: forward and backward pass of one micro-batch by recomputing, chunks of logits and
attention; `tokens`: milliseconds a token of the own sampler, by rows; `trl [--sampler vllm]`: a step of TRL's
GRPOTrainer with one model of the pair and its rollouts: 512 rows learn, where each agent of a pair learns from 1,024.
`python -m tests.bench.gpu memory [CASE ...]`: two steps of each case in a fresh process, the peak of tensors and of
what torch reserved for them against the estimate without the process's own context. A case with `gib` sees a GPU of
that size: torch refuses what goes beyond, and the batches are fitted to it. No checkpoint is written.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from tests.bench.models import BenchVerifier, Size, make_model, write_questions

GIB, MIB = 2**30, 2**20
QWEN_05B = Size(151_643, 896, 4864, 24, 14, 2, 64, prompts=8, tokens=256)  # the body of Qwen2.5-0.5B
LLAMA_1B = Size(128_256, 2048, 8192, 16, 32, 8, 64, prompts=8, tokens=256)  # of Llama-3.2-1B
SMOKE = Size(512, 64, 192, 2, 2, 1, 32, prompts=2, tokens=8)
STEP = {False: replace(QWEN_05B, prompts=64, tokens=512, words=128), True: SMOKE}  # by --smoke
WARM_UP = (2, 16)  # prompts, and most tokens
# What the preset gpu-24gb says (hacrl_web/runs/launch/presets.py).
PRESET_24GB: dict[str, Any] = {
    "training": {"train_batch_size": 32, "mini_batch_size": 16, "lora_rank": 16, "lora_learning_rate_factor": 10},
    "rollout": {"max_prompt_length": 512, "max_completion_length": 1024, "rollout_batch_size": 256},
}


@dataclass(frozen=True)
class Case:
    """The models, what differs from the defaults, and the memory of the GPU in GiB; 0: all that it has."""

    sizes: tuple[Size, ...]
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    gib: int = 0
    steps: int = 2


LORA = {"training": {"lora_rank": 16}}
CASES = {
    "smoke": Case((SMOKE, SMOKE)),
    "0.5B": Case((QWEN_05B,)),
    "0.5B, all activations": Case((QWEN_05B,), {"compute": {"gradient_checkpointing": False}}),
    "0.5B, reference model": Case((QWEN_05B,), {"algorithm": {"beta": 0.001}}),
    "0.5B, LoRA": Case((QWEN_05B,), LORA),
    "0.5B, LoRA, all activations": Case((QWEN_05B,), {**LORA, "compute": {"gradient_checkpointing": False}}),
    "0.5B, sampling ahead": Case((QWEN_05B,), {"rollout": {"max_staleness": 1}}),
    "1.2B": Case((LLAMA_1B,)),
    "0.5B + 1.2B, idle agents in main memory": Case((QWEN_05B, LLAMA_1B), {"compute": {"offload": "idle"}}),
    "0.5B + 1.2B, all weights, 16 GiB": Case((QWEN_05B, LLAMA_1B), {"compute": {"offload": "both"}}, gib=16),
    "0.5B + 1.2B, preset gpu-24gb": Case((QWEN_05B, LLAMA_1B), PRESET_24GB, gib=24, steps=1),
}


def make_agents(root: Path, sizes: Sequence[Size]) -> list[Path]:
    """Folders of random models, which stay in `root` for other cases."""
    import torch

    folders = [root / f"agent {number} {size.hidden}" for number, size in enumerate(sizes)]
    for number, (folder, size) in enumerate(zip(folders, sizes, strict=True)):
        if not (folder / "tokenizer.json").exists():  # the last that is written
            make_model(folder, size, seed=number, dtype=torch.bfloat16)
    return folders


def run_spec(place: Path, models: Sequence[Path], case: Case, device: str) -> Any:
    from workers.contract.spec.run import RunSpec

    size, changes = case.sizes[0], case.changes
    sections: dict[str, Any] = {
        "agents": [{"name": f"agent {number}", "model": str(model)} for number, model in enumerate(models)],
        "data": {"train_path": str(write_questions(place / "questions.jsonl", size)), "held_out_fraction": 0.0},
        "algorithm": {"beta": 0.0, **({"name": "signed"} if len(case.sizes) > 1 else {})},
        "rollout": {
            "num_generations": size.group,
            "max_completion_length": size.tokens,
            "max_prompt_length": size.words + 64,  # the chat template has tokens too
        },
        "training": {"steps": case.steps, "train_batch_size": size.prompts, "mini_batch_size": size.prompts // 2},
        "evaluation": {"eval_interval": 0},
        "compute": {"device": device, "num_threads": 0},
    }
    for name, section in changes.items():
        sections[name] = {**sections[name], **section}
    return RunSpec.model_validate(sections)


class Watch:
    """Seconds by part of a step, without those of the parts within; the GPU is idle at both ends of each."""

    def __init__(self, device: str) -> None:
        import torch

        self._wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        self._within: list[float] = []
        self.parts: dict[str, float] = defaultdict(float)

    def now(self) -> float:
        self._wait()
        return time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = self.now()
        self._within.append(0.0)
        try:
            yield
        finally:
            taken = self.now() - started
            self.parts[name] += taken - self._within.pop()
            if self._within:
                self._within[-1] += taken

    def over(self, owner: Any, function: str, name: Callable[..., str] | str) -> None:
        """Time a function from here on. name: of the part, or what says it by the function's arguments."""
        original = getattr(owner, function)

        def timed(*arguments: Any, **more: Any) -> Any:
            with self.part(name if isinstance(name, str) else name(*arguments)):
                return original(*arguments, **more)

        mock.patch.object(owner, function, timed).start()


def watched(device: str) -> Watch:
    """A watch over the parts of every step of this process."""
    from workers.agents import local
    from workers.model.optimizer import PolicyOptimizer
    from workers.rollouts.vllm_engine import VllmEngine
    from workers.trainer.scoring import Scorer

    watch = Watch(device)
    watch.over(local.LocalAgent, "_draw", lambda agent, *_: f"sample {agent.name}")
    watch.over(local.LocalAgent, "_score", "score")
    watch.over(local, "run_updates", "train")
    watch.over(PolicyOptimizer, "step", "optimizer")
    watch.over(local, "logp_difference", "weights")
    watch.over(VllmEngine, "_send_weights", "weights")
    watch.over(VllmEngine, "sleep", "sleep")
    watch.over(VllmEngine, "wake", "sleep")
    watch.over(Scorer, "score_step", "verify")
    return watch


def set_columns(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What the options change: in this process, and in the spec by section."""
    from workers.model import chunked_logprobs, policy
    from workers.rollouts.engine import TransformersEngine

    if options.sampler in ("growing", "static"):
        TransformersEngine.way = options.sampler  # type: ignore[attr-defined]
    chunked_logprobs.GPU_CHUNK_BYTES = options.chunk * MIB
    load = policy.load_model

    def load_model(*arguments: Any) -> Any:
        model = load(*arguments)
        model.set_attn_implementation(options.attention)
        return model

    mock.patch.object(policy, "load_model", load_model).start()
    changes: dict[str, dict[str, Any]] = {
        "rollout": {"engine": "vllm" if options.sampler == "vllm" else "transformers"},
        "compute": {"gradient_checkpointing": options.recomputing == "on"},
        "training": {"mini_batch_size": options.size.prompts},
    }
    for text in options.set:
        name, _, value = text.partition("=")
        section, _, setting = name.partition(".")
        changes.setdefault(section, {})[setting] = json.loads(value)
    return changes


def step(options: argparse.Namespace) -> None:
    """Steps of a pair by phase, each printed as it ends."""
    import torch

    from workers.contract.memory.machine import with_settings
    from workers.contract.spool import SpoolWriter
    from workers.questions.dataset import split_questions
    from workers.trainer.preflight import questions_that_fit
    from workers.trainer.step_events import step_events
    from workers.trainer.stop_signals import StopFlag
    from workers.trainer.trainer import Trainer

    size, place, begun = options.size, Path(tempfile.mkdtemp()), time.monotonic()
    models, changes = make_agents(options.root, (size, size)), set_columns(options)
    spec = run_spec(place, models, Case((size, size), changes, steps=1_000), options.device)
    verifier: Any = BenchVerifier()
    trainer, watch = Trainer(spec, place, SpoolWriter(place, 1), verifier, StopFlag()), watched(options.device)
    made = time.monotonic()

    def say(level: str, message: str, *_: Any) -> None:
        if level != "info":
            print(f"{level}: {message}", flush=True)

    mock.patch.object(trainer, "log", say).start()
    trainer.load()
    agents: list[Any] = list(trainer.agents)
    (questions,), _ = questions_that_fit(spec, agents, [split_questions(spec.data)], trainer.log)
    batch = trainer.resolved["training"]["tokens_per_micro_batch"]
    columns = f"{options.sampler}, recomputing {options.recomputing}, chunks {options.chunk} MiB, "
    columns += f"{options.attention}"
    print(f"{columns}: models {made - begun:.1f} s, load {time.monotonic() - made:.1f} s", flush=True)
    for prompts, tokens in [
        (WARM_UP[0], min(WARM_UP[1], *options.tokens)),
        *[(size.prompts, length) for length in options.tokens],
    ]:
        for agent in agents:
            agent.spec = with_settings(agent.spec, {"rollout": {"max_completion_length": tokens}})
        watch.parts.clear()
        if options.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        sampled, started = trainer.progress.tokens_generated, watch.now()
        trainer.progress.begin_step()
        record = trainer.one_step(questions[:prompts])
        with watch.part("events"), trainer.progress.phase("telemetry"):
            trainer.progress.spool.emit(*step_events(record, with_rollouts=True))
            trainer.progress.record_step(trainer.step)
        seconds = watch.now() - started
        rows = [found for report in record.reports for results in report.results for found in results]
        values = {
            "columns": columns,
            "step": f"{prompts} x {size.group} x {tokens}",
            "seconds": seconds,
            "parts": {**watch.parts, "rest": seconds - sum(watch.parts.values())},
            "phase_s": trainer.progress.phase_s,
            "sampled": trainer.progress.tokens_generated - sampled,
            "rows": sum(found.sequence_ratio is not None for found in rows),
            "peak": torch.cuda.max_memory_allocated() if options.device == "cuda" else 0,
            "tokens_per_micro_batch": batch,
        }
        write(options, values)
        parts = ", ".join(f"{name} {value:.2f}" for name, value in values["parts"].items())
        print(
            f"{columns}: {values['step']}: {seconds:.2f} s ({parts}); {values['sampled']:,} tokens, "
            f"{values['rows']:,} of {len(rows):,} rows, peak {values['peak'] / GIB:.1f} GiB, {batch} tokens a pass",
            flush=True,
        )
    trainer.close()


def passes(options: argparse.Namespace) -> None:
    """Forward and backward passes of one micro-batch, each way printed as it ends."""
    import torch

    from workers.model import chunked_logprobs
    from workers.model.policy import Policy

    size, place, device = options.size, Path(tempfile.mkdtemp()), torch.device(options.device)
    models, watch = make_agents(options.root, (size,)), Watch(options.device)
    rows, length = 2 if options.smoke else 24, size.words + size.tokens
    ids = torch.randint(0, size.vocabulary, (rows, length)).tolist()
    prompts, responses = [row[: size.words] for row in ids], [row[size.words :] for row in ids]
    for recomputes in (True, False):
        changes: dict[str, dict[str, Any]] = {"compute": {"gradient_checkpointing": recomputes}}
        spec = run_spec(place, models, Case((size,), changes), options.device)
        policy: Any = Policy(spec.agents[0], spec, device)
        ways = [("sdpa", 64), ("sdpa", 256), ("sdpa", 1024), ("sdpa", 4096), ("eager", 256)]
        for attention, chunk in ways[-2:] if options.smoke else ways:
            chunked_logprobs.GPU_CHUNK_BYTES = chunk * MIB
            policy.model.set_attn_implementation(attention)
            if options.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            taken = []
            try:
                for _ in range(2 if options.smoke else 4):
                    started = watch.now()
                    logps, _mask = policy.token_logps(prompts, responses)
                    policy.optimizer.backward(-logps.mean())
                    taken.append(watch.now() - started)
            except torch.OutOfMemoryError:
                print(f"recomputing {recomputes}, chunks {chunk} MiB, {attention}: out of memory", flush=True)
                continue
            seconds, tokens = statistics.median(taken[1:]), rows * length
            rate = 6 * policy.num_parameters * tokens / seconds / 1e12
            peak = torch.cuda.max_memory_allocated() / GIB if options.device == "cuda" else 0
            print(
                f"{tokens} tokens, recomputing {recomputes}, chunks {chunk} MiB, {attention}: {1e3 * seconds:.0f} ms, "
                f"{rate:.0f} TFLOP/s without what is recomputed, peak {peak:.1f} GiB",
                flush=True,
            )
            values = {"recomputing": recomputes, "chunk": chunk, "attention": attention, "tokens": tokens}
            write(options, {**values, "seconds": seconds, "peak": peak})
        del policy


def tokens(options: argparse.Namespace) -> None:
    """Milliseconds a token of the own sampler, and of the forward passes alone, by rows."""
    import torch

    from workers.model.policy import Policy
    from workers.rollouts.engine import make_engine
    from workers.rollouts.sampler import SampleRequest, sampling_cache

    size, place, device = options.size, Path(tempfile.mkdtemp()), torch.device(options.device)
    models, watch, count = make_agents(options.root, (size,)), Watch(options.device), options.tokens[0]
    spec = run_spec(place, models, Case((size,)), options.device)
    policy: Any = Policy(spec.agents[0], spec, device)
    model = policy.model

    @torch.no_grad()
    def forward(ids: torch.Tensor) -> None:
        cache = sampling_cache(model.config)
        model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        for position in range(size.words, size.words + count - 1):
            places = torch.full((len(ids), 1), position, device=device)
            model(input_ids=ids[:, :1], position_ids=places, past_key_values=cache, use_cache=True, logits_to_keep=1)

    for rows in (2,) if options.smoke else (64, 512):
        ids = torch.randint(0, size.vocabulary, (rows, size.words), device=device)
        work: dict[str, Callable[[], Any]] = {"forward passes": partial(forward, ids)}
        own = [(row // size.group) * size.group for row in range(rows)]  # rollouts of a prompt share it
        request = SampleRequest(ids.tolist(), own, [*range(rows)], 1.0, count, rows)
        for way in ("growing", "static"):
            engine: Any = make_engine(policy, spec, device)
            engine.way = way
            work[way] = partial(engine.sample, request)
        for name, function in work.items():
            taken = []
            for _ in range(2):
                started = watch.now()
                with policy.sampling():
                    function()
                taken.append(watch.now() - started)
            first, last = (1e3 * seconds / count for seconds in taken)
            print(f"{rows} rows, {name}: {last:.2f} ms a token, {first:.2f} the first time", flush=True)
            write(options, {"rows": rows, "way": name, "ms": last, "first_ms": first})
        for note in engine.take_notes():
            print(f"{rows} rows: {note}", flush=True)


def trl(options: argparse.Namespace) -> None:
    """Steps of TRL with one model of the pair; its own lines come from tests/bench/timing.py."""
    from tests.bench.trl_steps import run_trl

    size, place = options.size, Path(tempfile.mkdtemp())
    [model] = make_agents(options.root, (size,))
    rows = min(16, size.prompts * size.group)  # at once, as many as the logits of all leave room for
    more: dict[str, Any] = {
        "bf16": options.device == "cuda",
        "gradient_checkpointing": options.recomputing == "on",
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": size.prompts * size.group // rows,
    }
    if options.sampler == "vllm":
        more |= {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3}
        more |= {"vllm_enable_sleep_mode": True, "vllm_max_model_length": size.words + size.tokens}
    for tokens in options.tokens:
        sized = replace(size, tokens=tokens)
        questions = write_questions(place / "questions.jsonl", sized)
        [timed] = run_trl(model, questions, place, sized, 1, lambda: None, options.device, **more)
        print(f"TRL, {options.sampler}: {size.prompts} x {size.group} x {tokens}: {timed.wall_s:.2f} s", flush=True)
        write(options, {"columns": f"TRL, {options.sampler}", "tokens": tokens, "seconds": timed.wall_s})


def write(options: argparse.Namespace, values: dict[str, Any]) -> None:
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def _pass_over_checkpoint(trainer: Any) -> None:
    """Writing one takes longer than the steps."""
    trainer.checkpoints.step = trainer.step


def train(name: str, root: Path, device: str) -> dict[str, Any]:
    """A case of memory in this process; the numbers in bytes and seconds."""
    import torch

    from workers.contract.memory.footprint import CUDA_CONTEXT_BYTES, estimate_memory
    from workers.contract.memory.machine import Machine, with_settings
    from workers.contract.spool import SPOOL_NAME, SpoolWriter, read_records
    from workers.trainer import preflight
    from workers.trainer.preflight import empty_model, model_shape
    from workers.trainer.stop_signals import StopFlag
    from workers.trainer.trainer import Trainer

    case, place = CASES[name], Path(tempfile.mkdtemp(dir=root))
    models = make_agents(root, case.sizes)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()  # the models were made there
    spec = run_spec(place, models, case, device)
    shapes = [shape for agent in spec.agents if (shape := model_shape(empty_model(agent.model, None)))]
    has_gpu = device == "cuda"
    patches: list[Any] = [mock.patch.object(Trainer, "save", _pass_over_checkpoint)]
    whole = torch.cuda.get_device_properties(0).total_memory if has_gpu else 0
    gpu = min(case.gib * GIB or whole, whole)
    if gpu < whole:
        torch.cuda.set_per_process_memory_fraction((gpu - CUDA_CONTEXT_BYTES) / whole)
        machine = preflight.this_machine(spec).model_copy(update={"gpus": (gpu,)})
        patches += [
            mock.patch.object(torch.cuda, "mem_get_info", return_value=(gpu - CUDA_CONTEXT_BYTES, gpu)),
            mock.patch.object(preflight, "this_machine", return_value=machine),
        ]
    for patch in patches:
        patch.start()
    verifier: Any = BenchVerifier()
    trainer = Trainer(spec, place, SpoolWriter(place, 1), verifier, StopFlag())
    trainer.train()
    trainer.close()
    records = [record for _, record in read_records(place / SPOOL_NAME)]
    started = next(record for record in records if record["type"] == "started")
    spec = with_settings(spec, started["settled"])
    steps = [record for record in records if record["type"] == "progress"]
    host = Machine(memory=2**40)
    estimated = estimate_memory(spec, shapes, Machine(gpus=(gpu,), memory=2**40) if has_gpu else host)
    return {
        "parameters": sum(shape.parameters for shape in shapes),
        "expected": (estimated.gpu - CUDA_CONTEXT_BYTES) if has_gpu else estimated.memory,
        "measured": max((step["device_peak_bytes"] or 0 for step in steps), default=0),
        "reserved": torch.cuda.max_memory_reserved() if has_gpu else 0,
        "host": max(step["resident_bytes"] for step in steps),
        "host_expected": estimated.memory,
        "step_s": sum(steps[-1]["phase_s"].values()),
        "settled": started["settled"],
        "steps": steps[-1]["step"],
    }


def memory(options: argparse.Namespace) -> None:
    """Each case in a fresh process, and its line."""
    if options.here:
        print(json.dumps(train(options.here, options.root, options.device)))
        return
    for name in ["smoke"] if options.smoke else options.names or list(CASES)[1:]:
        command = [sys.executable, "-m", "tests.bench.gpu", "memory", "--here", name, "--root", str(options.root)]
        done = subprocess.run([*command, "--device", options.device], capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: failed: {done.stderr[-1500:]}", flush=True)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        write(options, {"case": name, **found})
        expected, measured = found["expected"] / GIB, found["measured"] / GIB
        print(
            f"{name}: {found['steps']} steps, the last in {found['step_s']:.1f} s; tensors {measured:.2f} GiB, "
            f"reserved {found['reserved'] / GIB:.2f} GiB, estimate {expected:.2f} GiB ({measured / expected:.2f}); "
            f"{found['settled']['training']['tokens_per_micro_batch']} tokens a micro-batch",
            flush=True,
        )


WAYS = {"step": step, "passes": passes, "tokens": tokens, "trl": trl, "memory": memory}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("names", nargs="*", help="cases of memory")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--smoke", action="store_true", help="the smallest size, on the CPU")
    parser.add_argument("--here", help="one case of memory in this process")
    parser.add_argument("--root", type=Path, help="where models stay for further calls")
    parser.add_argument("--json", type=Path, help="all numbers, one line each")
    parser.add_argument("--tokens", type=lambda text: [*map(int, text.split(","))], help="lengths of responses")
    parser.add_argument("--sampler", choices=("transformers", "growing", "static", "vllm"), default="transformers")
    parser.add_argument("--recomputing", choices=("on", "off"), default="on")
    parser.add_argument("--chunk", type=int, default=256, help="MiB of logits")
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--set", action="append", default=[], help="another setting: section.name=JSON")
    options = parser.parse_args(arguments)
    options.size = STEP[options.smoke]
    options.device = "cpu" if options.smoke else options.device
    options.tokens = options.tokens or ([options.size.tokens] if options.smoke else [128, 512])
    with tempfile.TemporaryDirectory() as root:
        options.root = options.root or Path(root)
        WAYS[options.way](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
