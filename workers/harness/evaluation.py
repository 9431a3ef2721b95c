"""A run that lm-evaluation-harness carries out: one agent after the other, each in a new process.

An agent whose results are stored is not evaluated again when the run resumes; the one under way begins anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from workers.contract import events
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.data import DataSpec
from workers.contract.spec.harness import METRIC_CODE_VARIABLE, TASKS_VARIABLE, HarnessSpec
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.harness.process import DESCRIPTION_S, call
from workers.harness.results import harness_results
from workers.trainer.stop_signals import Paused, StopFlag

FOLDER = "harness"
DONE = "stored"  # the file that marks an agent's results as stored
CPU = "cpu"


class HarnessEvaluation:
    """The evaluation of all agents of a run by the harness."""

    def __init__(self, spec: RunSpec, run_dir: Path, spool: SpoolWriter, stop: StopFlag) -> None:
        assert spec.harness
        self.spec, self.spool, self.stop = spec, spool, stop
        self.harness: HarnessSpec = spec.harness
        self.folder = run_dir.resolve() / FOLDER
        self.started_at = time.monotonic()

    def run(self) -> None:
        """Errors: HarnessFailed, Stopped, Paused; of the questions' files BenchmarkError."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        description = call("describe", self.folder, time_limit_s=DESCRIPTION_S, check=self._check)
        self.spool.emit(self._started(description))
        agents = self.spec.agents
        for place, agent in enumerate(agents):
            self._check()
            if not (self.folder / str(place) / DONE).exists():
                self._evaluate(place, agent)
            self.spool.emit(self._progress(place + 1, len(agents)))

    def _check(self) -> None:
        """Errors: Stopped, Paused."""
        self.stop.check()
        if self.stop.is_pause_requested:
            raise Paused(f"{events.PAUSE_REQUESTED}: the model under way is evaluated again when the run resumes")

    def _started(self, description: dict[str, Any]) -> events.Started:
        versions = description.get("versions")
        return events.Started(
            step=0,
            total_steps=0,
            agents=[agent.name for agent in self.spec.agents],
            device=self._device,
            versions={str(k): str(v) for k, v in versions.items()} if isinstance(versions, dict) else {},
            pid=os.getpid(),
            gpus=0 if self._device == CPU else 1,
        )

    @property
    def _device(self) -> str:
        """As driver.py will choose it, unless its torch sees no GPU."""
        device = self.spec.compute.device
        return device if device != "auto" else "cuda" if _has_gpu() else CPU

    def _progress(self, done: int, total: int) -> events.Progress:
        elapsed_s = time.monotonic() - self.started_at
        return events.Progress(
            step=0,
            total_steps=0,
            elapsed_s=elapsed_s,
            eta_s=elapsed_s * (total - done) / done,
            rollouts_generated=0,
            tokens_generated=0,
        )

    def _evaluate(self, place: int, agent: AgentSpec) -> None:
        """One agent, and its events together, so that no page shows half an evaluation."""
        folder = self.folder / str(place)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        location = model_folder(agent)
        benchmarks = self._write_tasks(folder, agent, location)
        request = folder / "request.json"
        request.write_text(json.dumps(self._request(agent, location, folder, list(benchmarks))), encoding="utf-8")
        self.spool.emit(
            events.Log(message=f"{agent.name}: lm-evaluation-harness begins; its output is among that of the trainer")
        )
        limit_s = float(self.harness.time_limit_s)
        answer = call("evaluate", folder, str(request), time_limit_s=limit_s, check=self._check)
        self.spool.emit(*harness_results(answer, agent.name, benchmarks))
        (folder / DONE).touch()

    def _request(self, agent: AgentSpec, location: str, folder: Path, own_tasks: list[str]) -> dict[str, Any]:
        """For driver.py."""
        harness, operators_folder = self.harness, os.environ.get(TASKS_VARIABLE, "")
        folders = [operators_folder] if operators_folder and harness.tasks else []
        return {
            "model": location,
            "tasks": [*harness.tasks, *own_tasks],
            "folders": [*folders, str(folder)] if own_tasks else folders,
            "has_built_in": bool(harness.tasks),
            "num_fewshot": harness.num_fewshot,
            "limit": harness.limit,
            "batch_size": harness.batch_size,
            "device": self.spec.compute.device,
            "dtype": self.spec.compute.dtype,
            "prompt_format": agent.prompt_format if harness.prompt_format == "agent" else harness.prompt_format,
            "template_arguments": dict(agent.template_arguments),
            "seed": self.spec.seed,
            "has_metric_code": os.environ.get(METRIC_CODE_VARIABLE) == "1",
        }

    def _write_tasks(self, folder: Path, agent: AgentSpec, location: str) -> dict[str, str]:
        """Task -> benchmark, of the tasks that ask the run's own benchmarks. Error: BenchmarkError."""
        if not self.harness.has_benchmarks:
            return {}
        from workers.harness.tasks import write_task

        benchmarks = {}
        for number, (data, questions) in enumerate(self._questions):
            name = task_name(number, data.benchmark)
            takes_system = self._system_check(agent, location)
            write_task(folder, name, data, questions, self.spec, agent, takes_system)
            benchmarks[name] = data.benchmark
        return benchmarks

    @cached_property
    def _questions(self) -> list[tuple[DataSpec, list[Any]]]:
        """The questions of each benchmark that our own evaluation would ask. Error: BenchmarkError."""
        from workers.questions.dataset import evaluated_questions
        from workers.trainer.preflight import evaluated

        sets = (self.spec.data, *self.spec.evaluation.benchmarks)
        return [(data, evaluated(self.spec, evaluated_questions(data))) for data in sets]

    def _system_check(self, agent: AgentSpec, location: str) -> Callable[[], bool]:
        """Whether prompts are chats whose template takes a system message, once that matters."""
        if self.harness.prompt_format != "agent":
            agent = agent.model_copy(update={"prompt_format": self.harness.prompt_format})

        def check() -> bool:
            from workers.model.loading import load_tokenizer
            from workers.model.prompts import takes_system, uses_chat

            tokenizer = load_tokenizer(location, None)
            return uses_chat(tokenizer, agent) and takes_system(tokenizer, agent)

        return check


def task_name(number: int, benchmark: str) -> str:
    """`hacrl_0_gsm8k`: a name of its own for each benchmark, whatever its letters."""
    return f"hacrl_{number}_{re.sub(r'[^A-Za-z0-9]+', '_', benchmark).strip('_').lower()[:60]}".rstrip("_")


def model_folder(agent: AgentSpec) -> str:
    """The folder of an agent's model: of the hub's models, the one that the supervisor has downloaded.

    Error: OSError.
    """
    if os.path.isabs(agent.model):
        return agent.model
    from huggingface_hub import snapshot_download

    return str(snapshot_download(agent.model, revision=agent.revision, local_files_only=True))


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))
