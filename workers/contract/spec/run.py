"""Part of the contract: RunSpec, everything a run is told before it starts.

Every hyperparameter lives once in its section (spec_*.py), with its bounds, its help text and its source; the form,
the API and the command line are drawn from it and show its errors. Unknown keys are refused. No torch, no Django.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from workers.contract.contribution_weight import clip_lower_bound
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.algorithm import OWN_EPSILONS, SEQUENCE_EPSILONS, AlgorithmSpec
from workers.contract.spec.data import DataSpec, EvaluationSpec
from workers.contract.spec.fields import UNPRINTABLE, Count, SettingsSection, setting
from workers.contract.spec.sections import CheckpointSpec, ComputeSpec, RolloutSpec, TelemetrySpec, TrainingSpec
from workers.contract.verifier_kinds import VerifierKind

# Kinds of verifier whose rewards the second verifier (workers.verifiers.cross_check) hardly checks, and why.
BARELY_AUDITED: dict[VerifierKind, str] = {"regex": "matches no expressions", "python": "runs no code"}


class RunSpec(SettingsSection):
    """All of a run: who learns, on what, by which rule."""

    schema_version: Literal[1] = 1
    name: str = setting(
        "run", help="Shown in lists.", source="product", min_length=1, max_length=120, pattern=rf"^[^{UNPRINTABLE}]+$"
    )
    seed: Count = setting(
        0, help="Every random choice is derived from it.", source="design: randomness", ge=0, le=2**31 - 1
    )
    agents: tuple[AgentSpec, ...] = setting(help="One to eight agents.", source="Sec. 2", min_length=1, max_length=8)
    data: DataSpec
    algorithm: AlgorithmSpec = AlgorithmSpec()
    rollout: RolloutSpec = RolloutSpec()
    training: TrainingSpec = TrainingSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    compute: ComputeSpec = ComputeSpec()
    telemetry: TelemetrySpec = TelemetrySpec()

    @field_validator("agents")
    @classmethod
    def _agents_differ_by_name(cls, agents: tuple[AgentSpec, ...]) -> tuple[AgentSpec, ...]:
        names = [agent.name for agent in agents]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two agents are named {name!r}: give each its own name")
        by_seed: dict[int, str] = {}
        for agent in agents:
            other = by_seed.setdefault(agent.stable_seed, agent.name)
            if other != agent.name:
                raise ValueError(
                    f"agents {other!r} and {agent.name!r} have the same seed {agent.stable_seed}, so the same random "
                    "choices: give each its own seed, or none"
                )
        return agents

    @field_validator("evaluation")
    @classmethod
    def _benchmarks_differ_by_name(cls, evaluation: EvaluationSpec, info: ValidationInfo) -> EvaluationSpec:
        data = info.data.get("data")
        if data and any(one.benchmark == data.benchmark for one in evaluation.benchmarks):
            raise ValueError(f"{data.benchmark!r} is the run's own benchmark, which is asked anyway")
        return evaluation

    @field_validator("compute")
    @classmethod
    def _engine_is_of_one_process(cls, compute: ComputeSpec, info: ValidationInfo) -> ComputeSpec:
        rollout = info.data.get("rollout")
        if rollout and rollout.engine == "vllm" and compute.processes_per_agent > 1:
            raise ValueError("a vllm engine belongs to an agent of one process: set processes_per_agent to 1")
        return compute

    @field_validator("training")
    @classmethod
    def _gspox2_halves_mini_batches(cls, training: TrainingSpec, info: ValidationInfo) -> TrainingSpec:
        algorithm = info.data.get("algorithm")
        if algorithm and algorithm.name == "gspox2" and training.mini_batch_size % 2:
            raise ValueError("mini_batch_size must be even, for gspox2 halves it")
        return training

    @field_validator("compute")
    @classmethod
    def _lora_is_not_sharded(cls, compute: ComputeSpec, info: ValidationInfo) -> ComputeSpec:
        by_lora = [agent.name for agent in info.data.get("agents", ()) if agent.lora_rank]
        if compute.sharding == "fsdp2" and by_lora:
            raise ValueError(
                f"sharding fsdp2 is for weights that are all trained, and {by_lora[0]!r} trains LoRA matrices beside "
                "frozen ones: set sharding to none, or its lora_rank to 0"
            )
        return compute

    @property
    def is_evaluation_only(self) -> bool:
        """True where nobody learns: every agent is evaluated once, and that is the run."""
        return self.training.steps == 0

    @property
    def num_generations(self) -> int:
        """Rollouts per prompt and agent that this run really samples."""
        return self.rollout.num_generations * (2 if self.algorithm.name == "gspox2" else 1)

    @property
    def mini_batch_prompts(self) -> int:
        """Prompts per optimizer update that this run really uses."""
        return self.training.mini_batch_size // (2 if self.algorithm.name == "gspox2" else 1)

    @property
    def updates_per_block(self) -> int:
        """M: optimizer updates that one agent's rollouts of a step fill."""
        return self.training.num_iterations * self.training.train_batch_size // self.mini_batch_prompts

    @property
    def num_blocks(self) -> int:
        """Agents whose rollouts one learner trains on in a step, itself included."""
        if not self.algorithm.shares_rollouts:
            return 1
        return 1 + min(self.algorithm.max_sources_per_learner or len(self.agents), len(self.agents) - 1)

    @property
    def rule(self) -> AlgorithmSpec:
        """The algorithm with every number filled in: what the loss reads."""
        low, high = OWN_EPSILONS.get(self.algorithm.name, SEQUENCE_EPSILONS)
        epsilon, epsilon_high = self.algorithm.epsilon, self.algorithm.epsilon_high
        return self.algorithm.model_copy(
            update={
                "epsilon": low if epsilon is None else epsilon,
                "epsilon_high": high if epsilon_high is None else epsilon_high,
                "delta_step": self.delta_step,
            }
        )

    @property
    def delta_step(self) -> float:
        """Rise of the cross lower bound per update, after cross_clip_schedule."""
        algorithm, n, m = self.algorithm, self.num_blocks, self.updates_per_block
        scaled = algorithm.cross_clip_schedule == "scaled" or (algorithm.cross_clip_schedule == "auto" and n > 2)
        # With n agents the last update is number nM - 1 instead of 2M - 1: same last bound for every n.
        return algorithm.delta_step * ((2 * m - 1) / (n * m - 1) if scaled and n * m > 1 else 1.0)

    @property
    def last_lower_bound(self) -> float:
        """The cross lower bound of a step's last update, Eq. (14)."""
        return clip_lower_bound(self.num_blocks * self.updates_per_block - 1, self.rule)

    def cautions(self) -> list[Caution]:
        """What is allowed but probably not meant; a request confirms each by its code."""
        result: list[Caution] = []
        if self.algorithm.audit_share > 0 and self.data.verifier in BARELY_AUDITED:
            result.append(
                Caution(
                    code="audit_decides_little",
                    field="algorithm.audit_share",
                    message=f"The second verifier {BARELY_AUDITED[self.data.verifier]}: with verifier "
                    f"{self.data.verifier} it decides almost nothing.",
                )
            )
        if not self.algorithm.clips_shared or len(self.agents) == 1 or self.is_evaluation_only:
            return result
        if self.algorithm.delta > 0.5:
            bound = 1 - self.algorithm.delta
            result.append(
                Caution(
                    code="delta_above_half",
                    field="algorithm.delta",
                    message=f"The lower bound becomes {bound:.3g}; the paper's Table 5 prints the lower bound, "
                    f"did you mean {bound:.3g}?",
                )
            )
        if self.last_lower_bound >= 1:
            taught = {
                "zero": "teaches nothing",
                "keep": "weighs every shared rollout as if its ratio were 1",
                "sided": "teaches only where a step moves the ratio towards 1",
            }[self.algorithm.cross_clip_gradient]
            result.append(
                Caution(
                    code="last_bound_reaches_one",
                    field="algorithm.delta_step",
                    message=f"The last cross mini-batch of each step has a lower bound of 1 and {taught}: "
                    "lower delta_step or raise mini_batch_size.",
                )
            )
        return result

    def to_json(self) -> str:
        """The canonical text of this spec: sorted keys, all defaults written out."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, ensure_ascii=False)

    @classmethod
    def from_file(cls, path: Path) -> RunSpec:
        """Read a spec file. Errors: OSError, pydantic.ValidationError."""
        return cls.model_validate_json(path.read_bytes())


class Caution(BaseModel):
    """A setting to confirm: `code` is what the request repeats to say "I mean it"."""

    model_config = ConfigDict(frozen=True)
    code: str
    field: str
    message: str
