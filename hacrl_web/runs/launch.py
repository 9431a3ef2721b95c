"""From a request to a queued run: the one path of form, API and demo.

A request names a group, a benchmark, an algorithm, a seed and overrides of RunSpec's sections. All that is wrong with
it is collected, each error with the dotted path of its field; nothing is written unless everything is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from pydantic import ValidationError

from hacrl_web.errors import MAX_ERRORS, FieldError, FieldErrors, plain_errors
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark, LanguageModel
from hacrl_web.registry.services import check_unchanged
from hacrl_web.runs import doorbell
from hacrl_web.runs.models import Run, State, StatusChange, Sweep
from workers.spec import RunSpec

SECTIONS = ("algorithm", "rollout", "training", "evaluation", "checkpoint", "compute", "telemetry")
KEYS = frozenset({"name", "group", "benchmark", "seed", "confirm", *SECTIONS})
SWEEP_KEYS = frozenset({"algorithms", "seeds"})
MAX_SWEEP_RUNS = 60
EVALUATION_ONLY = "evaluation only"  # stands in the place of the algorithm where nobody learns


class LaunchError(FieldErrors):
    """A launch request that is refused: `errors` lists every field that is wrong."""


def _unknown_keys(request: Mapping[str, Any], known: frozenset[str]) -> list[FieldError]:
    return [
        FieldError("unknown_key", f"There is no setting named {str(key)[:80]!r}.", str(key)[:80])
        for key in list(request)[:MAX_ERRORS]
        if key not in known
    ]


def _chosen(model: type, user: Any, request: Mapping[str, Any], field: str, errors: list[FieldError]) -> Any:
    """The user's object that `request[field]` names, or None with an error at that field."""
    value = request.get(field)
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if value in (None, ""):
        errors.append(FieldError("missing", f"Choose a {field}.", field))
        return None
    found = None
    if text.isascii() and text.isdigit() and len(text) < 19:
        found = model.objects.visible_to(user).filter(pk=int(text)).first()  # type: ignore[attr-defined]
    if found is None:
        errors.append(FieldError("not_found", f"There is no such {field}.", field))
    return found


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


def with_further_benchmarks(user: Any, request: Mapping[str, Any], errors: list[FieldError]) -> Mapping[str, Any]:
    """The request with what RunSpec needs in place of the ids in `evaluation.benchmarks`; unknown ids are errors."""
    section = request.get("evaluation")
    ids = section.get("benchmarks") if isinstance(section, Mapping) else None
    if not isinstance(ids, list | tuple):
        return request
    asked = find_benchmarks(user, ids, "evaluation.benchmarks", errors)
    return {**request, "evaluation": {**section, "benchmarks": [data_values(one) for one in asked]}}  # type: ignore[dict-item]


def find_benchmarks(user: Any, ids: Sequence[Any], field: str, errors: list[FieldError]) -> list[Benchmark]:
    """The user's benchmarks of these ids, in their order; ids of none are errors at `field`."""
    found = []
    for value in ids[:MAX_ERRORS]:
        own: list[FieldError] = []
        benchmark = _chosen(Benchmark, user, {"benchmark": value}, "benchmark", own)
        errors += [FieldError(error.code, error.message, field) for error in own]
        found += [benchmark] if benchmark else []
    return found


def _confirmed(request: Mapping[str, Any], errors: list[FieldError]) -> list[str]:
    codes = request.get("confirm", [])
    if not isinstance(codes, list | tuple) or not all(isinstance(code, str) for code in codes):
        errors.append(FieldError("invalid", "Must be a list of the codes you confirm.", "confirm"))
        return []
    return list(codes)


def _plan(user: Any, request: Any, known: frozenset[str] = KEYS) -> tuple[RunSpec, AgentGroup, Benchmark]:
    """The checked spec and what it is made of. Error: LaunchError."""
    if not isinstance(request, Mapping):
        raise LaunchError([FieldError("invalid", "Must be an object with settings.", None)])
    errors = _unknown_keys(request, known)
    request = with_further_benchmarks(user, request, errors)
    confirmed = _confirmed(request, errors)
    group = _chosen(AgentGroup, user, request, "group", errors)
    benchmark = _chosen(Benchmark, user, request, "benchmark", errors)
    draft: dict[str, Any] = {key: request[key] for key in ("name", "seed") if key in request}
    draft |= {key: _section(request, key) for key in SECTIONS if key in request}
    # Stand-ins let the rest be checked in the same go where group or benchmark are missing.
    draft["agents"] = (
        [agent_values(a) for a in group.agents.select_related("model")] if group else [{"name": "-", "model": "-"}]
    )
    draft["data"] = data_values(benchmark) if benchmark else {"train_path": "-"}
    if group and not draft["agents"]:
        errors.append(FieldError("empty_group", "This group has no agents: add one first.", "group"))
        draft["agents"] = [{"name": "-", "model": "-"}]
    errors += changed_models(group) if group else []
    spec = None
    try:
        spec = RunSpec.model_validate(draft)
    except ValidationError as error:
        errors += plain_errors(error)
    else:
        errors += [FieldError(c.code, c.message, c.field) for c in spec.cautions() if c.code not in confirmed]
        errors += _too_long(spec, group) if group else []
        errors += _too_few_questions(spec, benchmark) if benchmark else []
    if errors or spec is None:
        raise LaunchError(errors)
    return spec, group, benchmark


def changed_models(group: AgentGroup) -> list[FieldError]:
    """A local model that is gone, or is no longer what was inspected, cannot be trained."""
    errors: list[FieldError] = []
    for model in LanguageModel.objects.filter(agents__group=group).distinct():
        try:
            check_unchanged(model, field="group")
        except FieldErrors as refused:
            errors += refused.errors
    return errors


def _too_long(spec: RunSpec, group: AgentGroup) -> list[FieldError]:
    """A model cannot write beyond its context: said here, not by a trainer that fails in its first rollout."""
    asked = spec.rollout.max_prompt_length + spec.rollout.max_completion_length
    return [
        FieldError(
            "context_too_short",
            f"Agent {agent.name} reads and writes at most {agent.model.context_length} tokens; "
            f"max_prompt_length and max_completion_length together are {asked}.",
            "rollout.max_completion_length",
        )
        for agent in group.agents.select_related("model")
        if agent.model.context_length and asked > agent.model.context_length
    ]


def _too_few_questions(spec: RunSpec, benchmark: Benchmark) -> list[FieldError]:
    wanted, there = spec.training.train_batch_size, benchmark.num_train
    if wanted <= there or spec.is_evaluation_only:
        return []
    message = f"The benchmark has {there} training questions, too few for a batch of {wanted}."
    return [FieldError("too_few_questions", message, "training.train_batch_size")]


def build_spec(user: Any, request: Mapping[str, Any]) -> RunSpec:
    """The RunSpec of a launch request; writes nothing. Error: LaunchError."""
    return _plan(user, request)[0]


def create_run(user: Any, spec: RunSpec, group: AgentGroup | None, benchmark: Benchmark | None, **further: Any) -> Run:
    """Write a queued run, within the caller's transaction. further: other columns, such as sweep and retry_of."""
    run = Run.objects.create(
        owner=user,
        name=spec.name,
        group=group,
        benchmark=benchmark,
        spec=spec.model_dump(mode="json"),
        algorithm=EVALUATION_ONLY if spec.is_evaluation_only else spec.algorithm.name,
        seed=spec.seed,
        state=State.QUEUED,
        total_steps=spec.training.steps,
        **further,
    )
    retry_of = run.retry_of_id
    reason = f"launched as a retry of run {retry_of}" if retry_of else "launched"
    StatusChange.objects.create(run=run, to_state=State.QUEUED, attempt=0, reason=reason)
    transaction.on_commit(lambda: doorbell.ring(run.pk))
    return run


def launch(user: Any, request: Mapping[str, Any], *, sweep: Sweep | None = None) -> Run:
    """Queue a run. Error: LaunchError, and nothing is written."""
    spec, group, benchmark = _plan(user, request)
    with transaction.atomic():
        return create_run(user, spec, group, benchmark, sweep=sweep)


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
    errors = changed_models(run.group) if run.group else []
    if errors:
        raise LaunchError(errors)
    with transaction.atomic():
        further: dict[str, Any] = {"sweep": run.sweep if run.owner == user else None, "retry_of": run}
        if any(agent.model.startswith(str(run.run_dir.resolve())) for agent in spec.agents):
            further["data_folder"] = run.data_folder  # an evaluated checkpoint: its copy is on that host alone
        return create_run(user, spec, run.group, run.benchmark, **further)


def _each_once(request: Mapping[str, Any], key: str, errors: list[FieldError]) -> list[Any]:
    values = request.get(key)
    if not isinstance(values, list | tuple) or not values:
        errors.append(FieldError("missing", f"Give a list of {key}, at least one.", key))
        return []
    if len(values) > MAX_SWEEP_RUNS:
        errors.append(FieldError("too_long", f"At most {MAX_SWEEP_RUNS} {key} are possible.", key))
        return []
    texts = [str(value) for value in values]
    if len(set(texts)) < len(texts):
        errors.append(FieldError("repeated", f"Each of the {key} may be named once.", key))
    return list(values)


def _at_list_field(error: FieldError) -> FieldError:
    """An error of one run of a sweep, at the list field that its value came from."""
    moved = {"algorithm.name": "algorithms", "seed": "seeds"}
    return FieldError(error.code, error.message, moved.get(error.field or "", error.field))


def launch_sweep(user: Any, request: Any) -> Sweep:
    """Queue one run for each of `algorithms` x `seeds`, all other settings alike. Error: LaunchError."""
    if not isinstance(request, Mapping):
        raise LaunchError([FieldError("invalid", "Must be an object with settings.", None)])
    errors: list[FieldError] = []
    algorithms, seeds = _each_once(request, "algorithms", errors), _each_once(request, "seeds", errors)
    if len(algorithms) * len(seeds) > MAX_SWEEP_RUNS:
        errors.append(FieldError("too_many_runs", f"A sweep has at most {MAX_SWEEP_RUNS} runs.", "seeds"))
    shared = {key: value for key, value in request.items() if key not in SWEEP_KEYS}
    base = shared.get("algorithm", {})
    if isinstance(base, str) or (isinstance(base, Mapping) and "name" in base):
        errors.append(FieldError("unknown_key", "A sweep takes its algorithms from “algorithms”.", "algorithm.name"))
    if "seed" in shared:
        errors.append(FieldError("unknown_key", "A sweep takes its seeds from “seeds”.", "seed"))
    plans = []
    # Seeds outside: a sweep that is still running compares the algorithms on the seeds it has.
    for seed, algorithm in [(s, a) for s in seeds for a in algorithms] if not errors else [(0, "hacpo")]:
        named = {**base, "name": algorithm} if isinstance(base, Mapping) else base
        try:
            plans.append(_plan(user, {**shared, "algorithm": named, "seed": seed}))
        except LaunchError as error:
            errors += [moved for e in error.errors if (moved := _at_list_field(e)) not in errors]
    if errors:
        raise LaunchError(errors[:MAX_ERRORS])
    with transaction.atomic():
        sweep = Sweep.objects.create(owner=user, name=plans[0][0].name)
        for spec, group, benchmark in plans:
            label = f"{spec.name[:90]} {spec.algorithm.name} seed {spec.seed}"
            named_spec = spec.model_copy(update={"name": label})
            create_run(user, named_spec, group, benchmark, sweep=sweep)
    return sweep
