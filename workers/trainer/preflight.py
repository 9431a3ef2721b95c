"""The checks before the first step: algorithm, memory, and which questions fit into every agent's context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from workers.agents.interface import AgentInterface
from workers.agents.messages import UNREADABLE
from workers.algorithms.base.tensors import ROW_STATS, MicroBatch
from workers.contract.memory.footprint import Shape, shape_of
from workers.contract.memory.machine import Machine, ResolvedSettings, chosen_engine, resolved_settings, with_settings
from workers.contract.memory.plan import fitted, shortfall
from workers.contract.number_format import format_count
from workers.contract.spec import teaching
from workers.contract.spec.data import DataSpec, question_key, split_position
from workers.contract.spec.run import RunSpec
from workers.model.loading import choose_device
from workers.questions.dataset import Question, Split, evaluated_questions
from workers.questions.generated import FreshQuestions
from workers.trainer.progress import LogFunction

MAX_NAMED = 5  # questions in a message
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container; "max" or absent: none


class DoesNotFit(RuntimeError):
    """The run needs more memory than the machine has; the text says how much, and what would fit."""


class AlgorithmRefused(RuntimeError):
    """The algorithm raises, or returns what cannot be trained on; the text says what."""


def check_algorithm(spec: RunSpec) -> None:
    """Run the rule once on a small batch, and refuse one that harms the agents, or under the run's settings teaches
    nothing. Error: AlgorithmRefused."""
    for path, why in teaching.blockers(spec).items():
        raise AlgorithmRefused(f"{path}: {why}")
    rule, generator = spec.rule, torch.Generator().manual_seed(0)
    shape = (max(2, len(spec.agents)), 2, 2)  # (n, B, G)
    rewards = torch.tensor([1.0, 0.0, 1.0, 0.0]).repeat(shape[0]).view(shape)
    numbers: list[Tensor] = []
    try:
        objective = rule.objective(rewards, torch.ones(shape, dtype=torch.bool), torch.ones(shape[0], shape[0]))
        numbers += [*objective.advantages, *objective.baselines]
        for is_self in (True, False) if rule.shares_rollouts else (True,):
            logps = (-torch.rand(8, 3, generator=generator)).requires_grad_()  # (b, T)
            old = logps.detach() + torch.linspace(-0.5, 0.5, 8)[:, None]  # (b, T)
            batch = MicroBatch(
                logps=logps,
                mask=torch.ones(8, 3, dtype=torch.bool),
                old_mean_logp=old.mean(dim=1),
                advantages=torch.tensor([1.0, -1.0]).repeat(4),
                is_self=torch.full((8,), is_self),
                omega=torch.ones(8),
                source_lengths=torch.full((8,), 3),
                ref_logps=logps.detach(),
                old_logps=old,
                num_tokens=24,
                max_tokens=3,
            )
            loss, stats = rule.loss(batch, 0, 8.0)
            numbers += [loss.detach(), *torch.autograd.grad(loss, logps), *(stats[name] for name in ROW_STATS)]
    except Exception as error:  # of somebody's own file: whatever it raises
        raise AlgorithmRefused(f"algorithm {rule.name} fails: {type(error).__name__}: {error}") from error
    if not all(bool(torch.isfinite(one.double()).all()) for one in numbers):
        raise AlgorithmRefused(f"algorithm {rule.name} returns numbers that are not finite on a batch of 8 rows")


def empty_models(spec: RunSpec) -> list[PreTrainedModel]:
    """The model of each agent, without weights. Error: OSError if one does not exist."""
    return [empty_model(agent.model, agent.revision) for agent in spec.agents]


def check_memory(spec: RunSpec, models: Sequence[PreTrainedModel]) -> None:
    """Refuse a run that does not fit, by its empty models alone. Error: DoesNotFit."""
    if spec.compute.placement == "ray":  # its agents may be on other machines
        return
    shapes = [model_shape(model) for model in models]
    readable = [shape for shape in shapes if shape is not None]
    if len(readable) < len(shapes):  # the estimate knows decoders only
        return
    lacking = shortfall(spec, readable, this_machine(spec))
    if lacking is not None:
        raise DoesNotFit(str(lacking))


def resolved_here(spec: RunSpec, models: Sequence[PreTrainedModel]) -> ResolvedSettings:
    """What a run that starts now leaves to the machine: its `auto` settings, and batches that fit into free memory.

    models: of the agents, empty.
    """
    recomputes = all(any(isinstance(part, GradientCheckpointingLayer) for part in model.modules()) for model in models)
    total = this_machine(spec).model_copy(update={"recomputes": recomputes})
    values = resolved_settings(spec, [_num_parameters(model) for model in models], total)
    spec = with_settings(spec, values)
    shapes = [shape for model in models if (shape := model_shape(model)) is not None]
    if spec.compute.placement != "ray" and len(shapes) == len(models):
        free = total.model_copy(
            update={
                "gpus": tuple(torch.cuda.mem_get_info(index)[0] for index in range(len(total.gpus))),
                "memory": min(total.memory, psutil.virtual_memory().available),
            }
        )
        spec = fitted(spec, shapes, free)
    values["rollout"]["rollout_batch_size"] = spec.rollout.rollout_batch_size
    return values | {"training": {"tokens_per_micro_batch": spec.training.tokens_per_micro_batch}}


def engine_reason(spec: RunSpec, models: Sequence[PreTrainedModel]) -> str:
    """Why `rollout.engine: auto` is what it is here; empty without a GPU, and where the user chose. models: empty."""
    machine = this_machine(spec)
    if not machine.gpus or spec.rollout.engine != "auto":
        return ""
    return "rollout.engine auto is {}: {}".format(*chosen_engine(spec, [_num_parameters(m) for m in models], machine))


def empty_model(location: str, revision: str | None) -> PreTrainedModel:
    """A model in a folder or on the hub, without its weights."""
    config = AutoConfig.from_pretrained(location, revision=revision, trust_remote_code=False)
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    return model


def model_shape(model: PreTrainedModel) -> Shape | None:
    """The shape of a model, which may be empty; None if it is not a decoder."""
    return shape_of(model.config.to_dict(), _num_parameters(model))


def _num_parameters(model: PreTrainedModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _has_vllm() -> bool:
    """Whether vLLM is installed in its build for GPUs; the other one has another name."""
    try:
        return bool(version("vllm"))
    except PackageNotFoundError:
        return False


def this_machine(spec: RunSpec) -> Machine:
    """What the run can use here; without GPUs if it trains on the CPU."""
    gpus: tuple[int, ...] = ()
    if choose_device(spec).type == "cuda":
        count = torch.cuda.device_count()
        gpus = tuple(torch.cuda.get_device_properties(index).total_memory for index in range(count))
    memory = psutil.virtual_memory().total
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else ""
    return Machine(
        gpus=gpus, memory=min(memory, int(limit)) if limit.isdigit() else memory, has_vllm=bool(gpus) and _has_vllm()
    )


def questions_that_fit(
    spec: RunSpec, agents: Sequence[AgentInterface], splits: Sequence[Split], log: LogFunction
) -> tuple[list[list[Question]], list[Question]]:
    """The questions of each training set, and the held-out ones of the run's own, which fit into every agent.

    splits: of the run's own benchmark, then of its further training sets.
    Errors: ValueError if a batch cannot be filled, or an agent's context is too short.
    """
    sets = []
    for data, split, needed in zip(spec.training_data, splits, spec.prompts_of_sets, strict=True):
        of_set = f" of {data.benchmark}" if len(splits) > 1 else ""
        sets.append(_short_enough(spec, agents, f"training questions{of_set}", split.train, log))
        _check_number(spec, sets[-1], of_set, needed)
    held_out = _short_enough(spec, agents, "held-out questions", evaluated(spec, splits[0].held_out), log)
    _check_contexts(spec, agents, [question for questions in (*sets, held_out) for question in questions])
    return sets, held_out


def passes_of(
    spec: RunSpec,
    agents: Sequence[AgentInterface],
    sets: Sequence[Sequence[Question]],
    never_trained: Iterable[Question],
    log: LogFunction,
) -> list[FreshQuestions]:
    """The training sets, of which those of a generator have new questions in every pass but the first."""
    keys = {question_key(question.question) for question in never_trained}
    contexts = [agent.describe()["context_length"] for agent in agents]
    rooms = [context - spec.rollout.max_completion_length for context in contexts if context is not None]
    limit = min([spec.rollout.max_prompt_length, *rooms])

    def fitting(data: DataSpec) -> Callable[[list[Question]], list[Question]]:
        return partial(_short_enough, spec, agents, f"new questions of {data.benchmark}", log=log, limit=limit)

    pairs = zip(spec.training_data, sets, strict=True)
    return [FreshQuestions(data, questions, keys, fitting(data)) for data, questions in pairs]


def _check_number(spec: RunSpec, questions: Sequence[Question], of_set: str, needed: int) -> None:
    """Error: ValueError if there are not as many as a batch takes of this set."""
    if not questions:
        limit = spec.rollout.max_prompt_length
        raise ValueError(
            f"no training question{of_set} has at most {limit} tokens for every agent: raise max_prompt_length"
        )
    if len(questions) < needed:
        size = spec.training.train_batch_size
        share = f", of which {needed} are{of_set}" if of_set else ""
        cure = "lower train_batch_size or its weight" if of_set else "lower train_batch_size"
        raise ValueError(
            f"{len(questions)} training questions{of_set} cannot fill a batch of {size}{share}: {cure} or raise "
            "max_prompt_length"
        )


def evaluated_questions_that_fit(
    spec: RunSpec, agents: Sequence[AgentInterface], data: DataSpec, log: LogFunction
) -> list[Question]:
    """The questions of a benchmark that is evaluated and, with these questions, not trained on.

    Errors: BenchmarkError; ValueError if none is short enough, or an agent's context is too short.
    """
    candidates = evaluated(spec, evaluated_questions(data))
    questions = _short_enough(spec, agents, f"questions of {data.benchmark}", candidates, log)
    if not questions:
        raise ValueError(f"no question of {data.benchmark} fits into every agent: raise rollout.max_prompt_length")
    _check_contexts(spec, agents, questions)
    return questions


def evaluated(spec: RunSpec, questions: list[Question]) -> list[Question]:
    """At most max_questions of them, in their order: spread over the file, which may be sorted, or its first ones."""
    limit = spec.evaluation.max_questions or len(questions)
    if limit >= len(questions) or spec.evaluation.question_choice == "first":
        return questions[:limit]
    positions = [split_position(question.question) for question in questions]
    lowest = sorted(range(len(questions)), key=positions.__getitem__)[:limit]
    return [questions[index] for index in sorted(lowest)]


def _short_enough(
    spec: RunSpec,
    agents: Sequence[AgentInterface],
    what: str,
    questions: Sequence[Question],
    log: LogFunction,
    limit: int | None = None,
) -> list[Question]:
    """The questions whose prompt is not empty and at most `limit` or max_prompt_length tokens long, for every agent."""
    limit = spec.rollout.max_prompt_length if limit is None else limit
    lengths = [agent.prompt_lengths(questions) for agent in agents]
    fitting = [question for index, question in enumerate(questions) if all(0 < own[index] <= limit for own in lengths)]
    unreadable = [index for index in range(len(questions)) if any(own[index] == UNREADABLE for own in lengths)]
    left_out = len(questions) - len(fitting) - len(unreadable)
    counts = f"{format_count(len(fitting))} {what}, {format_count(left_out)} left out as too long"
    log("warning" if left_out else "info", counts)
    if unreadable:
        names = ", ".join(questions[index].id for index in unreadable[:MAX_NAMED])
        log(
            "warning",
            f"{format_count(len(unreadable))} {what} left out: an agent's tokenizer reads words of them as special "
            f"pieces, and cannot write them as text: {names}",
        )
    return fitting


def _check_contexts(spec: RunSpec, agents: Sequence[AgentInterface], questions: Sequence[Question]) -> None:
    """Error: ValueError if a prompt and a full response would not fit into an agent's context."""
    response = spec.rollout.max_completion_length
    for agent in agents:
        context, prompt = agent.describe()["context_length"], max(agent.prompt_lengths(questions), default=0)
        if context is None or prompt + response <= context:
            continue
        room = context - prompt
        cure = f"lower rollout.max_completion_length to {room} or " if room > 0 else ""
        raise ValueError(
            f"{agent.name} has a context of {context} tokens, but its longest prompt of {prompt} tokens and a "
            f"response of {response} need {prompt + response}: {cure}lower rollout.max_prompt_length"
        )
