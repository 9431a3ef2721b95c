"""RunSpec, all settings of a run, and the files that hold them (JSON or YAML).

Each setting is defined once, in its section in this folder, with bounds, help text and source; the form, the API and
the command line are generated from it and show its errors. Unknown keys are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from math import ceil
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.spec import AlgorithmSpec
from workers.algorithms.hacpo import Hacpo
from workers.contract.advantages import OverlongPenalty
from workers.contract.settings import UNPRINTABLE, Count, SettingsSection, setting, void_because
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.algorithm import AnyAlgorithm, field_path, refuse_left, upgraded
from workers.contract.spec.checkpoint import CheckpointSpec, TelemetrySpec
from workers.contract.spec.compute import ComputeSpec
from workers.contract.spec.data import DataSpec, EvaluationSpec
from workers.contract.spec.environments import PAYING
from workers.contract.spec.harness import HarnessSpec
from workers.contract.spec.rewards import RewardsSpec
from workers.contract.spec.rollout import VLLM_LORA_RANKS, RolloutSpec
from workers.contract.spec.training import TrainingSpec
from workers.contract.verifier_kinds import AUDIT_METHODS, GRADED_KINDS

YAML_SUFFIXES = (".yaml", ".yml")
# Learning rates of LoRA that teach: below, nothing moves; above, runs diverge.
LORA_LEARNING_RATES = (2e-6, 5e-4)
CHECKPOINTS_PER_RUN = 10  # where save_steps is empty
SECTIONS = ("algorithm", "rewards", "rollout", "training", "evaluation", "checkpoint", "compute", "telemetry")
CONFIRMED = "confirm"  # in a file to launch: the cautions that its user has confirmed; no setting
# Words that every YAML reader takes for text; the dumper itself quotes words such as null and yes.
_PLAIN_TEXT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

# Codes of all cautions, with their fields. `thoughts_differ` is of what a run's models do together.
CAUTIONS = {
    "delta_above_half": "algorithm.delta",
    "last_bound_reaches_one": "algorithm.delta_step",
    "audit_decides_little": "algorithm.audit_share",
    "lora_learning_rate": "training.learning_rate",
    "one_token_answers": "rollout.max_completion_length",
    "greedy_rollouts": "rollout.temperature",
    "narrow_nucleus": "rollout.top_p",
    "no_shared_weight": "algorithm.cross_weight",
    "warmup_beyond_run": "training.warmup_steps",
    "learning_rate_vanishes": "training.learning_rate",
    "thoughts_differ": "algorithm.peer_thoughts",
}


class RunSpec(SettingsSection):
    """All settings of a run."""

    schema_version: Literal[3] = 3
    name: str = setting(
        "run", help="Shown in lists.", source="product", min_length=1, max_length=120, pattern=rf"^[^{UNPRINTABLE}]+$"
    )
    seed: Count = setting(
        0, help="Every random choice is derived from it.", source="design: randomness", ge=0, le=2**31 - 1
    )
    agents: tuple[AgentSpec, ...] = setting(help="One to eight agents.", source="Sec. 2", min_length=1, max_length=8)
    data: DataSpec
    algorithm: AnyAlgorithm = Hacpo()
    rewards: RewardsSpec = RewardsSpec()
    rollout: RolloutSpec = RolloutSpec()
    training: TrainingSpec = TrainingSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    compute: ComputeSpec = ComputeSpec()
    telemetry: TelemetrySpec = TelemetrySpec()
    # Only in the settings of an evaluation by it.
    harness: HarnessSpec | None = Field(None, exclude_if=lambda harness: harness is None)

    @model_validator(mode="before")
    @classmethod
    def _of_this_version(cls, values: Any) -> Any:
        values = upgraded(values)
        if isinstance(values, Mapping):
            refuse_left(values)
        return values

    @field_validator("agents")
    @classmethod
    def _agents_differ(cls, agents: tuple[AgentSpec, ...]) -> tuple[AgentSpec, ...]:
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
    def _benchmarks_are_others(cls, evaluation: EvaluationSpec, info: ValidationInfo) -> EvaluationSpec:
        data, training = info.data.get("data"), info.data.get("training")
        if data and any(one.benchmark == data.benchmark for one in evaluation.benchmarks):
            raise ValueError(f"{data.benchmark!r} is the run's own benchmark, which is evaluated anyway: remove it")
        trained = {one.train_path for one in training.benchmarks} if training and training.steps else set()
        for one in evaluation.benchmarks:
            if one.train_path in trained and one.eval_path is None and one.held_out_fraction == 0:
                raise ValueError(
                    f"benchmarks: {one.benchmark!r} is a training set and would be evaluated on all of its questions, "
                    "those that are trained on: give it held-out questions (a file, or a share by held_out_fraction), "
                    "or remove it here"
                )
        return evaluation

    @field_validator("rollout")
    @classmethod
    def _overlong_cache_fits(cls, rollout: RolloutSpec, info: ValidationInfo) -> RolloutSpec:
        algorithm = info.data.get("algorithm")
        if algorithm and algorithm.overlong_cache > rollout.max_completion_length:
            raise ValueError(
                f"max_completion_length {rollout.max_completion_length} is below algorithm.overlong_cache "
                f"{algorithm.overlong_cache}: every answer would be penalised; lower overlong_cache"
            )
        return rollout

    @field_validator("training")
    @classmethod
    def _training_fits_the_rest(cls, training: TrainingSpec, info: ValidationInfo) -> TrainingSpec:
        algorithm, data, rollout = (info.data.get(name) for name in ("algorithm", "data", "rollout"))
        for agent in info.data.get("agents", ()) if rollout and rollout.engine == "vllm" and training.steps else ():
            rank = agent.lora_rank or training.lora_rank
            if rank > VLLM_LORA_RANKS[-1]:
                raise ValueError(
                    f"rollout.engine vllm takes LoRA matrices of rank {VLLM_LORA_RANKS[-1]} at most, and those of "
                    f"{agent.name!r} have rank {rank}: lower its lora_rank, or choose transformers"
                )
        if data and any(one.benchmark == data.benchmark for one in training.benchmarks):
            raise ValueError(
                f"benchmarks: {data.benchmark!r} is the run's own benchmark, which is trained on anyway: remove it, "
                "and set benchmark_weight"
            )
        if algorithm and training.mini_batch_size % algorithm.rollouts_multiplier:
            word = "even" if algorithm.rollouts_multiplier == 2 else f"a multiple of {algorithm.rollouts_multiplier}"
            raise ValueError(f"mini_batch_size must be {word}, because {algorithm.name} divides it")
        longest = rollout.max_prompt_length + rollout.max_completion_length if rollout else 0
        if 0 < training.tokens_per_micro_batch < longest:
            raise ValueError(
                f"tokens_per_micro_batch {training.tokens_per_micro_batch:,} is less than one prompt and answer "
                f"({longest:,} tokens, max_prompt_length + max_completion_length): raise it, or set it to 0"
            )
        return training

    @field_validator("compute")
    @classmethod
    def _samplers_are_beside_their_agents(cls, compute: ComputeSpec, info: ValidationInfo) -> ComputeSpec:
        rollout = info.data.get("rollout")
        if rollout and rollout.samples_ahead and (compute.processes_per_agent > 1 or compute.placement == "ray"):
            raise ValueError(
                "rollout.max_staleness 1 needs agents of one process on this machine: set processes_per_agent to 1 and "
                "placement to local or processes, or max_staleness to 0"
            )
        return compute

    @field_validator("harness")
    @classmethod
    def _harness_only_evaluates(cls, harness: HarnessSpec | None, info: ValidationInfo) -> HarnessSpec | None:
        training = info.data.get("training")
        if harness and training and training.steps:
            raise ValueError("the harness evaluates agents and trains none: set training.steps to 0")
        return harness

    @model_validator(mode="after")
    def _lora_of_the_run(self) -> Self:
        """Write into the agents what the run sets for those with LoRA, so that a stored run says what it trained."""
        training, agents = self.training, []
        for agent in self.agents:
            rank = agent.lora_rank or training.lora_rank
            rate, factor = agent.learning_rate, training.lora_learning_rate_factor
            if rank and rate is None and factor != 1:
                rate = min(1.0, float(f"{factor * training.learning_rate:.12g}"))  # 1e-05, not 9.999999999999999e-06
            agents.append(agent.model_copy(update={"lora_rank": rank, "learning_rate": rate}))
        object.__setattr__(self, "agents", tuple(agents))  # the model is frozen
        return self

    @property
    def is_evaluation_only(self) -> bool:
        """True for a run without training: every agent is evaluated once."""
        return self.training.steps == 0

    @property
    def save_interval(self) -> int:
        """Steps between checkpoints; 0: only after the last."""
        steps = self.checkpoint.save_steps
        return ceil(self.training.steps / CHECKPOINTS_PER_RUN) if steps is None else steps

    @property
    def num_generations(self) -> int:
        """Rollouts per prompt and agent that this run really samples."""
        return self.rollout.num_generations * self.algorithm.rollouts_multiplier

    def rollout_of(self, agent: AgentSpec) -> RolloutSpec:
        """How one agent samples in training: the run's settings, with those that are its own."""
        own = {name: getattr(agent, name) for name in ("temperature", "top_p", "top_k")}
        return self.rollout.model_copy(update={name: value for name, value in own.items() if value is not None})

    @property
    def mini_batch_prompts(self) -> int:
        """Prompts per optimizer update that this run really uses."""
        return self.training.mini_batch_size // self.algorithm.rollouts_multiplier

    @property
    def updates_per_block(self) -> int:
        """M: optimizer updates that one agent's rollouts of a step fill."""
        return self.training.num_iterations * self.training.train_batch_size // self.mini_batch_prompts

    @property
    def num_blocks(self) -> int:
        """Agents whose rollouts one learner trains on in a step, itself included."""
        sharing = self.sharing
        if sharing is None:
            return 1
        return 1 + min(sharing.max_sources_per_learner or len(self.agents), len(self.agents) - 1)

    @property
    def last_update(self) -> int:
        """m of the last update of a learner's step."""
        return self.num_blocks * self.updates_per_block - 1

    @property
    def sharing(self) -> SharingSpec | None:
        """The settings of shared rollouts; None if learners train on their own alone."""
        algorithm = self.algorithm
        return algorithm if isinstance(algorithm, SharingSpec) and algorithm.sharing else None

    @property
    def rule(self) -> AlgorithmSpec:
        """The algorithm with every number filled in, as the loss reads it."""
        return self.algorithm.filled(self.num_blocks, self.updates_per_block)

    @property
    def has_partial_credit(self) -> bool:
        """Whether a reward of training may lie between 0 and 1, so that 1 is more than a correct answer."""
        return bool(self.rewards.terms) or any(one.verifier in GRADED_KINDS for one in self.training_data)

    @property
    def training_data(self) -> tuple[DataSpec, ...]:
        """The benchmarks that it trains on, its own first."""
        return (self.data, *self.training.benchmarks)

    @property
    def training_shares(self) -> list[float]:
        """The share of prompts that is drawn from each training set."""
        weights = [self.training.benchmark_weight, *(one.weight for one in self.training.benchmarks)]
        return [weight / sum(weights) for weight in weights] if len(weights) > 1 else [1.0]

    @property
    def prompts_of_sets(self) -> list[int]:
        """The number of different prompts that a batch needs of each training set: its share, rounded up."""
        return [ceil(share * self.training.train_batch_size - 1e-9) for share in self.training_shares]

    @property
    def judge_paths(self) -> list[str]:
        """The files of all judges that the run asks."""
        return self._paths("judge", "judge")

    @property
    def function_paths(self) -> list[str]:
        """The files of all reward functions that the run calls."""
        return self._paths("reward_function", "function")

    def _paths(self, of_benchmark: str, of_term: str) -> list[str]:
        paths = [getattr(one, of_benchmark) for one in (*self.training_data, *self.evaluation.benchmarks)]
        return [path for path in dict.fromkeys(paths + [getattr(one, of_term) for one in self.rewards.terms]) if path]

    @property
    def overlong(self) -> OverlongPenalty:
        """What training adds to the rewards of long answers."""
        algorithm = self.algorithm
        return OverlongPenalty(
            self.rollout.max_completion_length, algorithm.overlong_cache, strips_eos=algorithm.eos == "strip"
        )

    def void_settings(self) -> dict[str, str]:
        """Settings that differ from their default and do not act: the path of each, with the reason in words."""
        result = {}
        for section in SECTIONS:
            part: SettingsSection = getattr(self, section)
            cls, fields = type(part), type(part).model_fields
            for name, field in fields.items():
                if name == "name" or getattr(part, name) == field.default:
                    continue
                path = f"{section}.{name}"
                if isinstance(part, AlgorithmSpec) and name in part.unused:
                    result[path] = f"{part.label} does not use it"
                    continue
                extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
                needs: Any = cls.needs_of(name) if issubclass(cls, AlgorithmSpec) else extra.get("needs", ())
                if blocker := void_because(needs, lambda other, part=part: self._value_of(other, part)):  # type: ignore[misc]
                    full = blocker if "." in blocker else f"{section}.{blocker}"
                    result[path] = f"no effect with {full} {_in_yaml(self._value_of(blocker, part))}"
        return result

    def _value_of(self, path: str, part: SettingsSection) -> Any:
        """The value of a setting, of the same section where the path names none; None where there is none."""
        section, _, name = path.rpartition(".")
        return getattr(getattr(self, section) if section else part, name, None)

    def cautions(self) -> list[Caution]:
        """Settings that are allowed but probably a mistake; `teaching.cautions_of` has those that hardly teach too."""
        result = []
        if self.sharing and self.sharing.audit_share > 0 and (message := self._audit_limit()):
            result.append(Caution(code="audit_decides_little", field="algorithm.audit_share", message=message))
        if not self.is_evaluation_only:
            result += self._lora_cautions()
        if len(self.agents) > 1 and not self.is_evaluation_only:
            cautions = self.rule.cautions(self.last_update)
            result += [Caution(code=code, field=f"algorithm.{name}", message=text) for code, name, text in cautions]
        return result

    def _audit_limit(self) -> str:
        """Why the audit decides nothing; empty if it decides something."""
        environment, kinds = self.rollout.environment, {one.verifier for one in self.training_data}
        if environment in PAYING:
            return f"Rewards of an environment are not audited: with environment {environment} the audit does nothing."
        if not {*kinds, *(term.kind for term in self.rewards.terms)} & {*AUDIT_METHODS}:
            return (
                "The audit repeats judgements of functions, judges and Python tests; a rule always judges alike, and "
                f"no other code checks it any more: with verifier {self.data.verifier} the audit does nothing."
            )
        return ""

    def _lora_cautions(self) -> list[Caution]:
        """One, about the first agent whose learning rate is unusual for LoRA."""
        low, high = LORA_LEARNING_RATES
        for agent in self.agents:
            rate = agent.learning_rate or self.training.learning_rate
            if agent.lora_rank and not low <= rate <= high:
                message = (
                    f"{agent.name} trains LoRA matrices at a learning rate of {rate:g}: {low:g} to {high:g} is usual. "
                    f"Without a rate of its own an agent with LoRA has {self.training.lora_learning_rate_factor:g} "
                    "times learning_rate."
                )
                return [Caution(code="lora_learning_rate", field="training.learning_rate", message=message)]
        return []

    def to_json(self) -> str:
        """The canonical text of this spec: sorted keys, all defaults written out."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, ensure_ascii=False)

    def to_yaml(self, confirm: Collection[str] = ()) -> str:
        """The settings as YAML in the order of their sections, defaults written out. confirm: codes of cautions."""
        return dump_yaml(self.model_dump(mode="json") | ({CONFIRMED: sorted(confirm)} if confirm else {}))

    @classmethod
    def from_file(cls, path: Path) -> RunSpec:
        """Read a settings file: YAML by its suffix, else JSON. Error: InvalidSettings."""
        try:
            if path.suffix.lower() in YAML_SUFFIXES:
                content = yaml.safe_load(path.read_bytes())
                if isinstance(content, dict):
                    content.pop(CONFIRMED, None)
                return cls.model_validate(content)
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise InvalidSettings(f"cannot read {path}: {error.strerror}") from None
        except yaml.YAMLError as error:
            raise InvalidSettings(f"{path} is not YAML: {' '.join(str(error).split())}") from None
        except ValidationError as error:
            problems = [
                f"{field_path(item['loc']) or 'file'}: {item['msg']}" for item in error.errors(include_url=False)
            ]
            raise InvalidSettings(f"{path} does not hold the settings of a run: " + "; ".join(problems)) from None
        except (ValueError, LookupError, AttributeError, RecursionError) as error:  # of a value that misfits its tag
            raise InvalidSettings(f"{path} is not YAML of settings: {str(error)[:200]}") from None


class InvalidSettings(ValueError):
    """A settings file that cannot be used; the text names the file and each setting that is refused."""


class Caution(BaseModel):
    """A setting to confirm: a request repeats `code` to use the value anyway."""

    model_config = ConfigDict(frozen=True)
    code: str
    field: str
    message: str


def _in_yaml(value: Any) -> str:
    """A value as users write it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that is not a plain word, and repeats values instead of writing references to them.

    So that every reader finds the same types: YAML 1.1 and 1.2 disagree about plain words such as 1e-6 and no.
    """

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN_TEXT.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(values: Mapping[str, Any]) -> str:
    """YAML in the order of the keys; characters beyond ASCII are escaped."""
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=110)
