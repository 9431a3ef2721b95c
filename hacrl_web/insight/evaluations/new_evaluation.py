"""Start of an evaluation of registered models, a group's agents and a checkpoint's agents, side by side.

It is a run without training steps, in the same queue, by the same trainer. Agents of a checkpoint are copied into its
folder first, because the checkpoint may be removed while the run waits. All errors are collected; then nothing is
written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from pydantic import ValidationError

from hacrl_web.accounts.models import User
from hacrl_web.insight.checkpoints.checkpoints import find_checkpoint
from hacrl_web.insight.checkpoints.reuse import copy_agent, removed_on_error
from hacrl_web.registry.agent_groups.agent_settings import agent_values
from hacrl_web.registry.language_models.service import check_unchanged
from hacrl_web.registry.models import MAX_AGENTS, AgentGroup, LanguageModel
from hacrl_web.runs.launch.check import data_values
from hacrl_web.runs.launch.create import create_run, hold_benchmarks
from hacrl_web.runs.launch.fit.hub_access import require_hub_access
from hacrl_web.runs.launch.plan import LaunchError
from hacrl_web.runs.launch.rows import changed_models, check_one_project, find_benchmarks
from hacrl_web.runs.models import Run
from hacrl_web.runs.storage.run_files import COPIES_FOLDER, reading_files
from hacrl_web.runs.worker.hosts import data_folder_id
from hacrl_web.web.errors import FieldError, FieldErrors, plain_errors
from hacrl_web.web.page_query import MAX_ID, uuid_or_none, whole_number
from workers.contract.checkpoint_manifest import Manifest
from workers.contract.spec.algorithm import BASELINE
from workers.contract.spec.rollout import RolloutSpec
from workers.contract.spec.run import RunSpec

LISTS = ("models", "benchmarks")
KEYS = (
    *("name", "seed", *LISTS, "group", "run", "step"),
    *("num_samples", "temperature", "max_completion_length", "max_questions"),
)
MAX_PROMPT = 1024  # tokens, as in training; less if a model's context is short
USUAL_LENGTH: int = RolloutSpec.model_fields["max_completion_length"].default
MAX_NAME = 80
# Where RunSpec's errors belong in the request.
_FIELDS = {"agents": "models", "data": "benchmarks"}


@dataclass
class SelectedAgents:
    """The agents of an evaluation. manifest: of the checkpoint whose agents are copied."""

    agents: list[dict[str, Any]] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)  # tokens, of the models with a limit
    group: AgentGroup | None = None
    manifest: Manifest | None = None
    trained: Run | None = None  # whose checkpoint that is
    trained_length: int | None = None  # the most tokens of a response in the training of the checkpoint
    stop: Sequence[str] = ()  # its stop strings
    sources: list[tuple[str, Any]] = field(default_factory=list)  # (field, row) that the agents come from

    def add(self, agent: dict[str, Any], model: LanguageModel) -> None:
        self.agents.append(agent)
        if model.context_length:
            self.contexts.append(model.context_length)


def launch_evaluation(user: User, request: Any) -> Run:
    """Queue an evaluation. Error: FieldErrors, and nothing is written."""
    return queue_request(user, request, KEYS, _spec)


def queue_request(user: User, request: Any, keys: Sequence[str], spec_of: Callable[..., Any]) -> Run:
    """Queue an evaluation by a request with these keys. Error: FieldErrors, and nothing is written.

    spec_of: spec and benchmarks from user, request, selection and a list that takes errors.
    """
    if not isinstance(request, Mapping):
        raise LaunchError.single("invalid", "Must be an object with settings.")
    unknown = [str(key)[:80] for key in request if key not in keys]
    errors = [FieldError("unknown_key", f"There is no setting named {key!r}.", key) for key in unknown]
    run_id = uuid.uuid4()
    folder = Path(settings.RUNS_DIR).resolve() / str(run_id) / COPIES_FOLDER  # of a checkpoint's agents
    selection = _choose_agents(user, request, folder, errors)
    spec, benchmarks = spec_of(user, request, selection, errors)
    sources = [*(("benchmarks", one) for one in benchmarks), *selection.sources]
    check_one_project(sources, errors)
    if errors or spec is None:
        raise LaunchError(errors)
    project = sources[0][1].project
    require_hub_access(user, project, spec)  # before a checkpoint is copied; a viewer is refused
    further: dict[str, Any] = {"id": run_id, "project": project}
    if selection.manifest is not None:
        further["data_folder"] = data_folder_id()  # its files are on this host only
    with reading_files(selection.trained) if selection.trained else nullcontext(), removed_on_error(folder.parent):
        if selection.manifest is not None:
            folder.parent.mkdir(mode=0o700, parents=True)
            for place, name in enumerate(selection.manifest.folders):
                copy_agent(selection.manifest, name, folder / str(place))
        with transaction.atomic():
            hold_benchmarks([("benchmarks", row) for row in benchmarks])
            return create_run(user, spec, selection.group, benchmarks[0] if benchmarks else None, **further)


def listed_ids(request: Mapping[str, Any], key: str, errors: list[FieldError]) -> list[Any]:
    """A list of ids without repetitions, empty if there is none."""
    values = request.get(key) or []
    if not isinstance(values, list | tuple):
        errors.append(FieldError("invalid", f"Give a list of {key}.", key))
        return []
    return list({str(value): value for value in values}.values())


def _choose_agents(user: User, request: Mapping[str, Any], folder: Path, errors: list[FieldError]) -> SelectedAgents:
    """The agents of a request's models, group and checkpoint. folder: where those of a checkpoint are copied to."""
    selection = SelectedAgents()
    for key in listed_ids(request, "models", errors)[: 2 * MAX_AGENTS]:
        model = visible_row(LanguageModel, user, key)
        if model is None:
            errors.append(FieldError("not_found", "There is no such model.", "models"))
            continue
        try:
            check_unchanged(model, field="models")
        except FieldErrors as error:
            errors += error.errors
        selection.sources.append(("models", model))
        revision = (model.revision or None) if model.kind == LanguageModel.Kind.HUB else None
        selection.add({"name": model.name, "model": model.location, "revision": revision}, model)
    if request.get("group") not in (None, ""):
        selection.group = visible_row(AgentGroup, user, request["group"])
        if selection.group is None:
            errors.append(FieldError("not_found", "There is no such group.", "group"))
        else:
            selection.sources.append(("group", selection.group))
            errors += [FieldError(e.code, e.message, "group") for e in changed_models(selection.group)]
            for agent in selection.group.agents.select_related("model"):
                selection.add(agent_values(agent), agent.model)
    if request.get("run") not in (None, ""):
        _add_checkpoint(user, request, folder, selection, errors)
    if not 1 <= len(selection.agents) <= MAX_AGENTS and not errors:
        message = f"Choose 1 to {MAX_AGENTS} models; you chose {len(selection.agents)}."
        errors.append(FieldError("missing", message, "models"))
    return selection


def visible_row(model: Any, user: User, key: Any) -> Any:
    """The user's object with this id, or None."""
    pk = whole_number(key, MAX_ID)
    return None if pk is None else model.objects.visible_to(user).filter(pk=pk).first()


def _add_checkpoint(
    user: User, request: Mapping[str, Any], folder: Path, selection: SelectedAgents, errors: list[FieldError]
) -> None:
    """The agents of a run's checkpoint, the newest if no step is named, each in the prompt format of its training."""
    run, step = find_run(user, request.get("run")), request.get("step")
    if run is None:
        errors.append(FieldError("not_found", "There is no such run.", "run"))
        return
    selection.sources.append(("run", run))
    number = None if step in (None, "") else whole_number(step)
    if number is None and step not in (None, ""):
        errors.append(FieldError("invalid", "Must be a whole number.", "step"))
        return
    try:
        selection.manifest = find_checkpoint(run, number)
    except FieldErrors as error:
        errors += error.errors
        return
    names = ("prompt_format", "prompt_template", "chat_template_kwargs", "thinking")
    specs = {agent["name"]: agent for agent in run.spec["agents"]}
    selection.trained = run
    selection.trained_length = run.spec.get("rollout", {}).get("max_completion_length")
    selection.stop = run.spec.get("rollout", {}).get("stop", ())
    # A trained agent has the context of the model that it began with.
    locations = [agent["model"] for agent in run.spec["agents"]]
    bases = LanguageModel.objects.filter(project=run.project_id, location__in=locations)
    selection.contexts += [length for length in bases.values_list("context_length", flat=True) if length]
    for place, name in enumerate(selection.manifest.folders):
        suffix = f" step {selection.manifest.step}"
        own = {key: specs[name][key] for key in names if key in specs.get(name, {})}
        named = {"name": name[: MAX_NAME - len(suffix)] + suffix, "model": str(folder / str(place))}
        selection.agents.append(own | named)


def find_run(user: User, key: Any) -> Run | None:
    """The user's run with this id, or None."""
    runs: Any = Run.objects.visible_to(user)
    return runs.filter(pk=uuid_or_none(key)).first()


def _spec(
    user: User, request: Mapping[str, Any], selection: SelectedAgents, errors: list[FieldError]
) -> tuple[RunSpec | None, Sequence[Any]]:
    """The checked spec and its benchmarks; problems are added to `errors`."""
    benchmarks = find_benchmarks(user, listed_ids(request, "benchmarks", errors), "benchmarks", errors)
    if not request.get("benchmarks"):
        errors.append(FieldError("missing", "Choose a benchmark, at least one.", "benchmarks"))
    data = [data_values(one) for one in benchmarks]
    limit = request.get("max_completion_length")
    if limit in (None, ""):  # as in training, or what the shortest context allows, of which a prompt has half at most
        allowed = [context - min(MAX_PROMPT, context // 2) for context in selection.contexts]
        limit = max(1, min([selection.trained_length or USUAL_LENGTH, *allowed]))
    own = ("num_samples", "temperature", "max_questions")
    evaluation = {key: request[key] for key in own if request.get(key) not in (None, "")}
    sections = {
        "data": data[0] if data else {"train_path": "-"},
        "rollout": {"max_completion_length": limit, "stop": selection.stop},
        "evaluation": {"max_questions": 0, **evaluation, "benchmarks": data[1:]},
    }
    spec = evaluation_spec("Evaluation of", request, selection, sections, errors, _field)
    return (_within_contexts(spec, selection.contexts, errors) if spec else None), benchmarks


def evaluation_spec(
    title: str,
    request: Mapping[str, Any],
    selection: SelectedAgents,
    sections: Mapping[str, Any],
    errors: list[FieldError],
    field_of: Callable[[str | None], str | None],
) -> RunSpec | None:
    """The spec of an evaluation with these sections; problems are added to `errors`.

    title: before the agents' names, where the request has no name.  field_of: the request's field of an error's path.
    """
    names = ", ".join(agent["name"] for agent in selection.agents)
    named = {key: request[key] for key in ("name", "seed") if request.get(key) not in (None, "")}
    draft = {
        "name": f"{title} {names}"[:120],
        # A placeholder if there are none; too many are in `errors` already.
        "agents": selection.agents[:MAX_AGENTS] or [{"name": "-", "model": "-"}],
        "algorithm": {"name": BASELINE, "beta": 0.0},  # not used
        "training": {"steps": 0},
        **named,
        **sections,
    }
    try:
        return RunSpec.model_validate(draft)
    except ValidationError as error:
        errors += [FieldError(one.code, one.message, field_of(one.field)) for one in plain_errors(error)]
        return None


def _field(path: str | None) -> str | None:
    """The field of the request that an error of the spec belongs to."""
    parts = path.split(".") if path else [""]
    return "benchmarks" if parts[:2] == ["evaluation", "benchmarks"] else _FIELDS.get(parts[0], parts[-1]) or None


def _within_contexts(spec: RunSpec, contexts: Sequence[int], errors: list[FieldError]) -> RunSpec:
    """The spec with the longest prompts that fit into the shortest context."""
    limit = spec.rollout.max_completion_length
    room = min(contexts, default=limit + MAX_PROMPT) - limit
    if room < 1:
        message = f"The shortest context is {min(contexts)} tokens: lower this, so that a question fits before it."
        errors.append(FieldError("context_too_short", message, "max_completion_length"))
        return spec
    rollout = spec.rollout.model_copy(update={"max_prompt_length": min(MAX_PROMPT, room)})
    return spec.model_copy(update={"rollout": rollout})
