"""A run that lm-evaluation-harness carries out: one agent after the other, each in a new process.

An agent whose results are stored is not evaluated again when the run resumes; the one under way begins anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from workers.contract import events
from workers.contract.checkpoint_manifest import needs_float32
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.harness import TASKS_VARIABLE, HarnessSpec
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.harness.command import HarnessFailed, call_harness, python_of_harness
from workers.harness.results import harness_results
from workers.harness.tokenizer import tokenizer_arguments
from workers.trainer.stop_signals import Paused, StopFlag

FOLDER = "harness"
DONE = "stored"  # the file that marks an agent's results as stored


class HarnessEvaluation:
    """The evaluation of all agents of a run by the harness."""

    def __init__(self, spec: RunSpec, run_dir: Path, spool: SpoolWriter, stop: StopFlag) -> None:
        assert spec.harness
        self.spec, self.spool, self.stop = spec, spool, stop
        self.harness: HarnessSpec = spec.harness
        self.folder = run_dir.resolve() / FOLDER
        self.has_gpu = spec.compute.device != "cpu" and any(Path("/dev").glob("nvidia[0-9]*"))

    def run(self) -> None:
        """Errors: HarnessFailed, Stopped, Paused."""
        self._check_settings()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        agents, started_at = self.spec.agents, time.monotonic()
        self.spool.emit(
            events.Started(
                step=0,
                total_steps=0,
                agents=[agent.name for agent in agents],
                device="cuda" if self.has_gpu else "cpu",
                versions={},
                pid=os.getpid(),
                gpus=int(self.has_gpu),
            )
        )
        for place, agent in enumerate(agents):
            self._check()
            folder = self.folder / str(place)
            if not (folder / DONE).exists():
                self._evaluate(agent, folder)
            elapsed_s, done = time.monotonic() - started_at, place + 1
            self.spool.emit(
                events.Progress(
                    step=0,
                    total_steps=0,
                    elapsed_s=elapsed_s,
                    eta_s=elapsed_s * (len(agents) - done) / done,
                    rollouts_generated=0,
                    tokens_generated=0,
                )
            )

    def _check_settings(self) -> None:
        """Error: HarnessFailed."""
        python_of_harness()
        if not self.harness.tasks:
            raise HarnessFailed("the run names no task of lm-evaluation-harness: set harness.tasks")
        if self.spec.compute.device == "cuda" and not self.has_gpu:
            raise HarnessFailed("compute.device is cuda but this host has no GPU: choose auto or cpu")

    def _check(self) -> None:
        """Errors: Stopped, Paused."""
        self.stop.check()
        if self.stop.is_pause_requested:
            raise Paused(f"{events.PAUSE_REQUESTED}: the model under way is evaluated again when the run resumes")

    def _evaluate(self, agent: AgentSpec, folder: Path) -> None:
        """One agent, and its events together, so that no page shows half an evaluation."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        self.spool.emit(
            events.Log(message=f"{agent.name}: lm-evaluation-harness begins; its output is among that of the trainer")
        )
        limit_s = float(self.harness.time_limit_s)
        answer = call_harness(self._settings(agent, folder), folder, time_limit_s=limit_s, check=self._check)
        self.spool.emit(*harness_results(answer, agent.name))
        (folder / DONE).touch()

    def _settings(self, agent: AgentSpec, folder: Path) -> dict[str, Any]:
        """For the command. It neither trusts remote code nor confirms unsafe code. Errors: HarnessFailed, OSError."""
        harness, location = self.harness, model_folder(agent)
        dtype, prompt_format = self.spec.compute.dtype, harness.prompt_format
        rounds = self.has_gpu and not needs_float32(location)  # else bfloat16 is another model
        is_chat = has_chat_prompts(location, agent.prompt_format if prompt_format == "agent" else prompt_format)
        return {
            "model": "hf",
            "model_args": {
                "pretrained": location,
                "dtype": dtype if dtype != "auto" else "bfloat16" if rounds else "float32",
                "use_safetensors": True,
                **tokenizer_arguments(agent, location, folder / "tokenizer", is_chat=is_chat),
                "chat_template_args": dict(agent.template_arguments),
            },
            "tasks": list(harness.tasks),
            "include_path": os.environ.get(TASKS_VARIABLE) or None,
            "num_fewshot": harness.num_fewshot,
            "limit": harness.limit or None,
            "batch_size": harness.batch_size,
            "device": "cuda:0" if self.has_gpu else "cpu",
            "apply_chat_template": is_chat,
            "seed": [self.spec.seed] * 4,
        }


def has_chat_prompts(location: str, prompt_format: str) -> bool:
    """Whether prompts go through the chat template of a model's folder. Error: HarnessFailed."""
    folder = Path(location)
    has_template = (folder / "chat_template.jinja").exists()
    with contextlib.suppress(OSError, ValueError, AttributeError):  # the harness says what is wrong with the tokenizer
        has_template |= bool(json.loads((folder / "tokenizer_config.json").read_bytes()).get("chat_template"))
    if prompt_format == "chat" and not has_template:
        raise HarnessFailed("the tokenizer has no chat template: choose prompt_format plain")
    return has_template and prompt_format != "plain"


def model_folder(agent: AgentSpec) -> str:
    """The folder of an agent's model: of the hub's models, the one that the supervisor has downloaded.

    Error: OSError.
    """
    if os.path.isabs(agent.model):
        return agent.model
    from huggingface_hub import snapshot_download

    return str(snapshot_download(agent.model, revision=agent.revision, local_files_only=True))
