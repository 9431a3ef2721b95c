"""The new-run form as a page: the values that it starts with, and what its template shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render

from hacrl_web.registry.agent_groups.agent_changes import changes_of_text, text_of_changes
from hacrl_web.registry.benchmarks.training_sets import (
    EVALUATIONS,
    TRAINING_SETS,
    as_requested,
    evaluations_as_requested,
)
from hacrl_web.registry.models import AGENT_FIELDS, AgentGroup, Benchmark
from hacrl_web.runs.launch.cost import Cost
from hacrl_web.runs.launch.create import MAX_NAME
from hacrl_web.runs.launch.form import (
    FURTHER_GRID,
    GRID_PREFIX,
    LISTS,
    SEARCH_FIELDS,
    SET_PREFIX,
    FormField,
    confirmed,
    confirmed_by,
    draw,
    is_run_setting,
    values_of,
    values_of_sweep,
)
from hacrl_web.runs.launch.presets import presets
from hacrl_web.runs.models import Run, State, Sweep
from hacrl_web.runs.run.header import can_ablate
from hacrl_web.runs.storage.stored_spec import stored_spec
from hacrl_web.runs.variants.grid import MAX_SWEEP_RUNS, ablations, idle_ablations
from hacrl_web.web.errors import FieldError
from hacrl_web.web.page_query import MAX_ID, PageQuery, RowId, Text, uuid_or_none, whole_number
from workers.algorithms.registry import algorithms, refused_files
from workers.contract.spec.algorithm import BASELINE, DEFAULT, LEFT_CODE, RECOMMENDED, left_settings

COMPARED = (DEFAULT, RECOMMENDED, BASELINE)  # ticked when Compare is opened
ABLATION_SEEDS = 3
CLONE = " (clone)"
MAX_VALUE = 40  # characters of a setting in an address


class NewRunQuery(PageQuery):
    """What the form starts with. Settings of the algorithm may be in the address too, see `settings_in_address`."""

    draft: UUID | None = None
    sweep: RowId | None = None
    clone: UUID | None = None
    ablate: Literal["", "1"] = ""
    compare: Literal["", "1"] = ""
    group: RowId | None = None
    benchmark: RowId | None = None
    agents: Text = ""  # changes of a clone's agents, as the form's field has them


def settings_in_address(query: QueryDict) -> dict[str, str]:
    """Settings in the address that replace a clone's own, by dotted path. RunSpec checks them when the form is sent."""
    return {name: query[name][:MAX_VALUE] for name in query if is_run_setting(name)}


def first_values(request: HttpRequest) -> dict[str, Any]:
    """The values of an address: those of the draft to edit, of the run to clone or ablate, or the defaults."""
    query = NewRunQuery.read(request.GET)
    visible = Run.objects.visible_to(request.user)
    values: dict[str, Any] = {"seeds": "0, 1, 2", "compare": bool(query.compare)}
    if query.compare:
        values["name"] = "sweep"
    if (draft := visible.filter(pk=query.draft, state=State.DRAFT).first()) is not None:
        return values | _values_of(draft) | {"cloned_from": draft.cloned_from_id or "", "draft": draft.pk}
    if (sweep := Sweep.objects.visible_to(request.user).filter(pk=query.sweep).first()) is not None and sweep.is_draft:
        return values | values_of_sweep(sweep.request) | {"draft_sweep": sweep.pk}
    if (run := visible.filter(pk=query.clone).first()) is not None:
        replaced = settings_in_address(request.GET)
        # A replaced value is not confirmed, and neither is a draft.
        before = [] if run.state == State.DRAFT or left_settings(run.spec) else confirmed_by(stored_spec(run))
        values |= _values_of(run) | {
            "agents": _changed_agents(run, query.agents),
            "name": run.name.removesuffix(CLONE)[: MAX_NAME - len(CLONE)] + CLONE,
            "clone_of": run.name,
            "cloned_from": run.pk,
            "confirmed": [one for one in before if one.field not in replaced],
            **replaced,
        }
        if query.ablate and can_ablate(run):
            values |= _ablation_of(run)
    return values | query.model_dump(include={"group", "benchmark"}, exclude_none=True)


def _values_of(run: Run) -> dict[str, Any]:
    rows = {"name": run.name, "group": run.group_id, "benchmark": run.benchmark_id}
    values = values_of(run.spec) | rows | {"agents": text_of_changes(run.agent_changes)}
    for field, request_form in ((TRAINING_SETS, as_requested), (EVALUATIONS, evaluations_as_requested)):
        if (data := values.get(field)) and not run.is_imported:  # an imported run's files are elsewhere: by name
            there = Benchmark.objects.filter(train_path__in=[one["train_path"] for one in data])
            values[field] = request_form(data, there)
    return values


def _changed_agents(run: Run, text: str) -> str:
    """The changes of a run's agents, with those of the text instead where it has some."""
    changes = {name: dict(values) for name, values in run.agent_changes.items()}
    with suppress(ValueError):  # an address that nobody's link has
        for name, values in changes_of_text(text).items():
            changes[name] = changes.get(name, {}) | values
    return text_of_changes(changes)


def _ablation_of(run: Run) -> dict[str, Any]:
    """The sweep that ablates a run: itself, and without each of its parts, over three seeds."""
    rule = stored_spec(run).algorithm
    idle = idle_ablations(rule.name, rule.model_dump())
    return {
        "name": f"Ablation of {run.name}"[:MAX_NAME],
        "compare": True,
        "algorithms": [rule.name],
        "ablations": [one.key for one in rule.ablations if one.key not in idle],
        "seeds": ", ".join(str(run.seed + number) for number in range(ABLATION_SEEDS)),
    }


def left_errors(values: Mapping[str, Any]) -> list[FieldError]:
    """An error for each setting of a draft, or of the run to clone, that this version no longer has."""
    spec: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        section, dot, name = path.partition(".")
        if dot:
            spec.setdefault(section, {})[name] = value
    return [FieldError(LEFT_CODE, one.message, f"{one.section}.{one.name}") for one in left_settings(spec)]


def posted_values(post: QueryDict) -> dict[str, Any]:
    """The values of a form that was sent."""
    lists = {key: post.getlist(key) for key in LISTS}
    return post.dict() | lists | {"compare": bool(post.get("compare")), "confirmed": confirmed(post)}


def render_form(
    request: HttpRequest,
    values: Mapping[str, Any],
    errors: Sequence[FieldError] = (),
    status: int = 200,
    cost: Cost | None = None,
) -> HttpResponse:
    """The form with these values, each error beside its field."""
    groups, benchmarks = _choices(request.user, values.get("group"))
    weights, missing_sets = _weights(values, benchmarks)
    further, missing = _further(values.get(EVALUATIONS) or (), benchmarks)
    errors = [*errors, *missing_sets, *missing]
    fields, common, sections, unplaced_errors = draw(values, errors)
    for key, rows in (("group", groups), ("benchmark", benchmarks)):
        if fields[key].value is None and len(rows) == 1:
            fields[key].value = rows[0].pk
    judge = fields["search.agent"]
    names = [agent.name for group in groups for agent in group.agents.all()]
    judge.choices = list(dict.fromkeys(["", *names, judge.value or ""]))
    offered = presets()
    context = {
        "fields": fields,
        "common": common,
        "sections": sections,
        "num_settings": sum(len(section.fields) for section in sections),
        "has_errors_in_all": any(section.has_errors for section in sections),
        "unplaced_errors": unplaced_errors,
        "num_errors": len(errors),
        "groups": groups,
        "agent_settings": AGENT_FIELDS,
        "benchmarks": benchmarks,
        "further": further,
        "training_sets": weights,
        "has_training_sets": any(weight not in (None, "") for _, weight in weights),
        "compare": values["compare"],
        **_sweep_controls(fields, values),
        "confirmed": values.get("confirmed", []),
        "clone_of": values.get("clone_of"),
        "cloned_from": values.get("cloned_from", ""),
        "draft": uuid_or_none(values.get("draft")),
        "draft_sweep": whole_number(values.get("draft_sweep", ""), MAX_ID),
        "cost": cost,
        "presets": offered,
        "refused_algorithms": [(Path(path).name, reason) for path, reason in refused_files().items()],
        "form_data": {
            "presets": offered,
            "groups": [_group_data(group) for group in groups],
            "algorithms": [
                {
                    "name": name,
                    "label": cls.label,
                    "summary": cls.summary,
                    "shares": cls.can_share,
                    "rollouts": cls.rollouts_multiplier,
                    "settings": list(cls.model_fields),
                }
                for name, cls in algorithms().items()
            ],
            "ablations": {key: name for key, (name, _) in ablations().items()},
        },
    }
    return render(request, "runs/launch/run_form.html", context, status=status)


def _choices(user: Any, group: Any) -> tuple[QuerySet[AgentGroup], QuerySet[Benchmark]]:
    """Groups and benchmarks of one project: that of the chosen group, else the user's current one."""
    visible = AgentGroup.objects.visible_to(user)
    project = visible.filter(pk=whole_number(group, MAX_ID)).values_list("project", flat=True).first()
    if project is None:
        groups, benchmarks = AgentGroup.objects.listed_for(user), Benchmark.objects.listed_for(user)
    else:
        groups = visible.filter(project=project)
        benchmarks = Benchmark.objects.visible_to(user).filter(project=project)
    return groups.prefetch_related("agents__model"), benchmarks


def _further(ticked: Sequence[Any], benchmarks: QuerySet[Benchmark]) -> tuple[list[dict[str, Any]], list[FieldError]]:
    """The boxes of further benchmarks, and an error for each entry whose benchmark is not here.

    ticked: ids as the form sends them, or entries of a request or a spec, which have ids or names.
    """
    keys = {str(entry["benchmark"]) if isinstance(entry, dict) else str(entry) for entry in ticked}
    rows = [{"benchmark": row, "is_ticked": not keys.isdisjoint((str(row.pk), row.name))} for row in benchmarks]
    # Ids that the form sends are refused where they are read.
    missing = _not_here([entry for entry in ticked if isinstance(entry, dict)], benchmarks)
    message = "The evaluation benchmark “{}” is not among these benchmarks (deleted, renamed or of another project): "
    message += "the run will not be evaluated on it."
    return rows, [FieldError("benchmark_deleted", message.format(name), EVALUATIONS) for name in missing]


def _not_here(entries: Sequence[dict[str, Any]], benchmarks: QuerySet[Benchmark]) -> list[str]:
    """The names, or ids, of entries whose benchmark is not among these."""
    here = {str(row.pk) for row in benchmarks} | {row.name for row in benchmarks}
    names = (one.get("name", one["benchmark"]) for one in entries if str(one["benchmark"]) not in here or "name" in one)
    return [str(name)[:120] for name in names]


def _weights(
    values: Mapping[str, Any], benchmarks: QuerySet[Benchmark]
) -> tuple[list[tuple[Benchmark, Any]], list[FieldError]]:
    """Each benchmark with its weight among the further training sets; None or empty for one that is none of them.

    values: as the form sends them, or entries of a request or a spec, which have ids or names. Also an error for each
    entry whose benchmark is not here.
    """
    every = [one if isinstance(one, dict) else {"benchmark": one} for one in values.get(TRAINING_SETS) or ()]
    weights = {str(one["benchmark"]): one.get("weight", 1) for one in every if one["benchmark"] is not None}
    typed = {row.pk: values.get(f"{SET_PREFIX}{row.pk}") for row in benchmarks}
    rows = [(row, typed[row.pk] or weights.get(str(row.pk), weights.get(row.name))) for row in benchmarks]
    return rows, [
        FieldError(
            "benchmark_deleted",
            f"The training set “{name}” is not among these benchmarks (deleted, renamed or of another "
            "project): without it the run trains on other data.",
            TRAINING_SETS,
        )
        for name in _not_here(every, benchmarks)
    ]


def _sweep_controls(fields: Mapping[str, FormField], values: Mapping[str, Any]) -> dict[str, Any]:
    """What Compare opens."""
    ticked, removed = values.get("algorithms", COMPARED), values.get("ablations", ())
    search = [fields[control.path] for control in SEARCH_FIELDS]
    grid = [control for path, control in fields.items() if path.startswith(GRID_PREFIX)]
    return {
        "algorithms": [
            (name, f"{cls.label}{' (recommended)' if name == RECOMMENDED else ''}: {cls.summary}", name in ticked)
            for name, cls in algorithms().items()
        ],
        "ablations": [(ablation, key in removed) for key, (_, ablation) in ablations().items()],
        "grid": grid,
        "search": search,
        "is_grid_open": any(field.value or field.errors for field in [*grid, fields[FURTHER_GRID]])
        or search[0].value != "grid",
        "is_ablation_open": bool(removed or fields["ablations"].errors),
        "max_runs": MAX_SWEEP_RUNS,
    }


def _group_data(group: AgentGroup) -> dict[str, Any]:
    agents = [
        {"name": a.name, "model": a.model.name, "position": a.position, "context": a.model.context_length}
        | {"lora_rank": a.setting("lora_rank"), "learning_rate": a.learning_rate}
        | {"refuses_system": a.model.refuses_system and a.prompt_format != a.PromptFormat.PLAIN}
        for a in group.agents.all()
    ]
    return {"id": group.pk, "name": group.name, "agents": agents}
