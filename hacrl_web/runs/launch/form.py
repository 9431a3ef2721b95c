"""The new-run form: it starts with the values of an address, and what it sends becomes a launch request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self
from uuid import UUID

from django.db.models import QuerySet
from django.http import QueryDict

from hacrl_web.accounts.models import User
from hacrl_web.registry.agent_groups.agent_changes import changes_of_text, text_of_changes
from hacrl_web.registry.benchmarks.training_sets import (
    EVALUATIONS,
    TRAINING_SETS,
    as_requested,
    evaluations_as_requested,
)
from hacrl_web.registry.models import AGENT_FIELDS, AgentGroup, Benchmark
from hacrl_web.runs.launch.controls import (
    CAUTIONS,
    FURTHER_GRID,
    GRID_FIELDS,
    GRID_PREFIX,
    LISTS,
    MAX_LIST_TEXT,
    OTHER,
    SEARCH_FIELDS,
    SEARCH_PREFIX,
    SECTIONS,
    SET_PREFIX,
    TOP_LEVEL,
    Confirmation,
    FormField,
    confirmed_by,
    draw,
    grid_path,
    is_run_setting,
    is_same_value,
    split_list,
    values_of,
    values_of_sweep,
    varied_lines,
)
from hacrl_web.runs.launch.cost import Cost, partial_estimate
from hacrl_web.runs.launch.create import MAX_NAME
from hacrl_web.runs.launch.launch import change_draft, launch, launch_sweep
from hacrl_web.runs.launch.plan import named_request, plan_of
from hacrl_web.runs.launch.presets import presets
from hacrl_web.runs.launch.tiles import TILES
from hacrl_web.runs.models import Run, State, Sweep
from hacrl_web.runs.run.header import can_ablate
from hacrl_web.runs.storage.stored_spec import stored_spec
from hacrl_web.runs.variants.grid import MAX_SWEEP_RUNS, ablations, idle_ablations
from hacrl_web.runs.variants.parts import SWEEP_KEYS
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.page_query import MAX_ID, PageQuery, RowId, Text, uuid_or_none, whole_number
from workers.algorithms.registry import algorithms, refused_files, settings_schema
from workers.contract.settings import MAX_TEMPLATE
from workers.contract.spec.algorithm import BASELINE, DEFAULT, LEFT_CODE, RECOMMENDED, left_settings
from workers.contract.spec.run import dump_yaml

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
    compare: Literal["", "1", "search"] = ""  # a run, a sweep or a search
    group: RowId | None = None
    benchmark: RowId | None = None
    agents: Text = ""  # changes of a clone's agents, as the form's field has them


class RunForm:
    """The new-run form: its values and errors, the launch request that it describes, and what its buttons need."""

    def __init__(self, user: User, values: Mapping[str, Any], post: QueryDict | None = None) -> None:
        self.user, self.values, self.post = user, dict(values), post
        self.kind: type[Run | Sweep] = Sweep if values["compare"] else Run
        self.errors: list[FieldError] = []
        self.cost: Cost | None = None

    @classmethod
    def of_address(cls, user: User, query: QueryDict) -> Self:
        """The form that an address opens; settings of a draft or a clone that left are errors."""
        form = cls(user, _first_values(user, query))
        form.errors = _left_errors(form.values)
        return form

    @classmethod
    def posted(cls, user: User, post: QueryDict) -> Self:
        """The form that was sent."""
        lists = {key: post.getlist(key) for key in LISTS}
        return cls(user, post.dict() | lists | {"compare": _mode(post), "confirmed": _confirmed(post)}, post)

    @cached_property
    def request(self) -> dict[str, Any]:
        """The launch request; of a sweep without what only one run has. Error: FieldErrors."""
        assert self.post is not None
        request = _parsed(self.post)
        if self.kind is Run:
            return {key: value for key, value in request.items() if key not in SWEEP_KEYS}
        seeds = split_list(self.post.get("seeds", ""))
        algorithm = request.get("algorithm", {}).pop("name", None)
        if self.values["compare"] == "search":  # of the one algorithm on the one seed that a run would have
            seeds = [request["seed"]] if "seed" in request else []
            request |= {"algorithms": [algorithm] if algorithm else [], "ablations": []}
        request = {key: value for key, value in request.items() if key not in ("seed", "cloned_from")}
        return {"algorithms": []} | request | {"seeds": seeds}

    @property
    def unconfirmed(self) -> dict[str, Any]:
        """The request with every caution confirmed: nothing is launched by it. Error: FieldErrors."""
        return self.request | {"confirm": list(CAUTIONS)}

    def refuse(self, refused: FieldErrors) -> None:
        """Take the errors of a refusal. No longer a draft: sent again, the form makes a new run."""
        self.errors = refused.errors
        if refused.status in (404, 409):
            self.values |= {"draft": "", "draft_sweep": ""}

    def submit(self, *, then_queue: bool) -> Run | Sweep:
        """The new run or sweep, or the draft that the form edits, with its settings. Error: FieldErrors."""
        request, draft = self.request, self._edited_draft()
        if draft is not None:
            return change_draft(self.user, draft, request, then_queue=then_queue)
        start = launch if self.kind is Run else launch_sweep
        return start(self.user, request if then_queue else request | {"draft": True})

    def _edited_draft(self) -> Run | Sweep | None:
        """Error: FieldErrors (404) where it was deleted."""
        text = str(self.values.get("draft" if self.kind is Run else "draft_sweep", ""))
        if not text:
            return None
        pk = uuid_or_none(text) if self.kind is Run else whole_number(text, MAX_ID)
        draft: Run | Sweep | None = (
            self.kind.objects.visible_to(self.user).select_related("project").filter(pk=pk).first()
        )
        if draft is None:
            message = "The draft was deleted. Sent again, the form makes a new one."
            raise FieldErrors.single("not_found", message, status=404)
        return draft

    def yaml(self) -> str:
        """The settings, and the cautions that were confirmed, so that the file can be launched. Error: FieldErrors."""
        if self.kind is Sweep:
            return dump_yaml(named_request(plan_of(self.user, self.request, Sweep)))
        plan = plan_of(self.user, self.unconfirmed, Run)
        (spec,) = plan.specs
        codes = {one.code for one in plan.cautions} & {one.code for one in self.values["confirmed"]}
        return spec.to_yaml(confirm=codes)

    def partial_cost(self) -> Cost | None:
        """The cost of a run whose form is refused; None where too little of it can be read."""
        with suppress(FieldErrors):
            return partial_estimate(self.user, self.unconfirmed) if self.kind is Run else None
        return None

    def context(self) -> dict[str, Any]:
        """What the template shows, each error beside its field."""
        values = self.values
        groups, benchmarks = _choices(self.user, values.get("group"))
        weights, missing_sets = _weights(values, benchmarks)
        further, missing = _further(values.get(EVALUATIONS) or (), benchmarks)
        errors = [*self.errors, *missing_sets, *missing]
        cloned = Run.objects.visible_to(self.user).filter(pk=uuid_or_none(values.get("cloned_from"))).first()
        fields, common, sections, problems = draw(values, errors, _values_of_run(cloned) if cloned else {})
        if not (cloned or values.get("draft")):  # whose group may be gone: another one is the user's to choose
            _choose_rows(self.user, fields, groups, benchmarks)
        judge = fields["search.agent"]
        names = [agent.name for group in groups for agent in group.agents.all()]
        judge.choices = list(dict.fromkeys(["", *names, judge.value or ""]))
        offered = presets()
        return {
            "fields": fields,
            "common": common,
            "sections": sections,
            "num_settings": sum(len(section.fields) for section in sections),
            "has_errors_in_all": any(section.has_errors for section in sections),
            "has_errors_in_how": any(one.errors or one.cautions for one in (fields["algorithm"], *common)),
            "problems": problems,
            "groups": groups,
            "agent_settings": AGENT_FIELDS,
            "benchmarks": benchmarks,
            "further": [
                one | {"is_own": str(one["benchmark"].pk) == str(fields["benchmark"].value)} for one in further
            ],
            "training_sets": weights,
            "has_training_sets": any(weight not in (None, "") for _, weight in weights),
            "compare": values["compare"],
            "tiles": TILES.items(),
            **_sweep_controls(fields, values),
            "confirmed": values.get("confirmed", []),
            "cloned": cloned,
            "cloned_from": values.get("cloned_from", ""),
            "draft": uuid_or_none(values.get("draft")),
            "draft_sweep": whole_number(values.get("draft_sweep", ""), MAX_ID),
            "cost": self.cost,
            "further_presets": [row for row in offered if row["name"] not in TILES],
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


def settings_in_address(query: QueryDict) -> dict[str, str]:
    """Settings in the address that replace a clone's own, by dotted path. RunSpec checks them when the form is sent."""
    return {name: query[name][:MAX_VALUE] for name in query if is_run_setting(name)}


def _first_values(user: User, address: QueryDict) -> dict[str, Any]:
    """The values of an address: those of the draft to edit, of the run to clone or ablate, or the defaults."""
    query = NewRunQuery.read(address)
    visible = Run.objects.visible_to(user)
    values: dict[str, Any] = {"seeds": "0, 1, 2", "compare": query.compare}
    if query.compare:
        values["name"] = "sweep"
    if (draft := visible.filter(pk=query.draft, state=State.DRAFT).first()) is not None:
        return values | _values_of_run(draft) | {"cloned_from": draft.cloned_from_id or "", "draft": draft.pk}
    if (sweep := Sweep.objects.visible_to(user).filter(pk=query.sweep).first()) is not None and sweep.is_draft:
        return values | values_of_sweep(sweep.request) | {"draft_sweep": sweep.pk}
    if (run := visible.filter(pk=query.clone).first()) is not None:
        replaced = settings_in_address(address)
        # A replaced value is not confirmed, and neither is a draft.
        before = [] if run.state == State.DRAFT or left_settings(run.spec) else confirmed_by(run, stored_spec(run))
        values |= _values_of_run(run) | {
            "agents": _changed_agents(run, query.agents),
            "name": run.name.removesuffix(CLONE)[: MAX_NAME - len(CLONE)] + CLONE,
            "cloned_from": run.pk,
            "confirmed": [one for one in before if one.field not in replaced],
            **replaced,
        }
        if query.ablate and can_ablate(run):
            values |= _ablation_of(run)
    return values | query.model_dump(include={"group", "benchmark"}, exclude_none=True)


def _values_of_run(run: Run) -> dict[str, Any]:
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
        "compare": "1",
        "algorithms": [rule.name],
        "ablations": [one.key for one in rule.ablations if one.key not in idle],
        "seeds": ", ".join(str(run.seed + number) for number in range(ABLATION_SEEDS)),
    }


def _left_errors(values: Mapping[str, Any]) -> list[FieldError]:
    """An error for each setting of a draft, or of the run to clone, that this version no longer has."""
    spec: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        section, dot, name = path.partition(".")
        if dot:
            spec.setdefault(section, {})[name] = value
    return [FieldError(LEFT_CODE, one.message, f"{one.section}.{one.name}") for one in left_settings(spec)]


def _confirmed(post: QueryDict) -> list[Confirmation]:
    """The confirmations of a posted form whose fields still hold the value that was confirmed."""
    confirmations = []
    for text in post.getlist("confirm"):
        code, _, value = text.partition("=")
        if code not in CAUTIONS:
            continue
        path = grid_path(CAUTIONS[code])
        grid_text = str(post.get(path, "")) if _mode(post) else ""
        # It replaces the setting's one value.
        of_grid = CAUTIONS[code].removeprefix("algorithm.") in (name for name, _, _ in varied_lines(path, grid_text))
        if is_same_value(grid_text if of_grid else str(post.get(CAUTIONS[code], "")), value):
            confirmations.append(Confirmation(code, value[:MAX_LIST_TEXT], of_grid))
    return confirmations


def _mode(post: QueryDict) -> str:
    """What the form makes: a run (empty), a sweep, a search."""
    return "search" if (mode := post.get("compare", "")) == "search" else "1" if mode else ""


def _take_varied(request: dict[str, Any], path: str, text: str, *, searches: bool) -> list[FieldError]:
    """Write the values of a field into the grid of a request, or into the parameters of its search."""
    lines = varied_lines(path, text)
    if not lines:
        return []
    texts = request["search"]["parameters"] if searches else request.setdefault("grid", {})
    for name, sign, values in lines:
        if not sign:
            return [FieldError("invalid", f"“{name[:60]}” has no values: write SETTING = VALUES.", path)]
        if name in texts:
            return [FieldError("repeated", f"{name[:60]} has values twice: give them once.", path)]
        texts[name] = values if searches else split_list(values)
    return []


def _parsed(post: QueryDict) -> dict[str, Any]:
    """The launch request of a posted form, with texts that RunSpec reads. Error: FieldErrors."""
    request: dict[str, Any] = {key: post.getlist(key) for key in LISTS if key in post and "." not in key}
    if "evaluation.benchmarks" in post:
        request["evaluation"] = {"benchmarks": post.getlist("evaluation.benchmarks")}
    request["confirm"] = [one.code for one in _confirmed(post)]
    if searches := _mode(post) == "search":
        request["search"] = {"parameters": {}}
    errors = []
    for path in post:
        if path in LISTS or path in OTHER:
            continue
        value = str(post[path])
        section, dot, name = path.partition(".")
        short_path = path[:80]
        if "\x00" in value or len(value) > (MAX_LIST_TEXT if path.startswith(GRID_PREFIX) else MAX_TEMPLATE):
            errors.append(FieldError("invalid_text", "This text is too long or holds a NUL character.", short_path))
        elif path.startswith(SET_PREFIX):
            if value.strip():
                entry = {"benchmark": path.removeprefix(SET_PREFIX), "weight": value.strip()}
                request.setdefault("training", {}).setdefault("benchmarks", []).append(entry)
        elif path.startswith(SEARCH_PREFIX):
            if searches and any(path == control.path for control in SEARCH_FIELDS):
                request["search"][name] = value.strip()
        elif path in GRID_FIELDS or path == FURTHER_GRID:
            errors += _take_varied(request, path, value, searches=searches)
        elif not dot and path in TOP_LEVEL:
            request[path] = value.strip()
        elif dot and section in SECTIONS:
            request.setdefault(section, {})[name] = value.strip()
        else:
            errors.append(FieldError("unknown_field", f"There is no setting {short_path!r}.", short_path))
    if errors:
        raise FieldErrors(errors)
    _leave_out_idle(request, compares=_mode(post) == "1")
    return request


def _leave_out_idle(request: dict[str, Any], *, compares: bool) -> None:
    """Leave out the settings that no chosen algorithm has: the form sends the controls of all of them."""
    section = request.get("algorithm", {})
    keys = request.get("ablations", ())
    removed = [ablations()[key][0] for key in keys if key in ablations()]
    names = [*request.get("algorithms", ()), *removed] if compares else [section.get("name", DEFAULT)]
    chosen = [algorithms()[name] for name in names if name in algorithms()]
    idle = settings_schema().keys() - {name for cls in chosen for name in cls.model_fields}
    if chosen:
        request["algorithm"] = {name: value for name, value in section.items() if name not in idle}


def _choices(user: User, group: Any) -> tuple[QuerySet[AgentGroup], QuerySet[Benchmark]]:
    """Groups and benchmarks of one project: that of the chosen group, else the user's current one."""
    visible = AgentGroup.objects.visible_to(user)
    project = visible.filter(pk=whole_number(group, MAX_ID)).values_list("project", flat=True).first()
    if project is None:
        groups, benchmarks = AgentGroup.objects.listed_for(user), Benchmark.objects.listed_for(user)
    else:
        groups = visible.filter(project=project)
        benchmarks = Benchmark.objects.visible_to(user).filter(project=project)
    return groups.prefetch_related("agents__model"), benchmarks


def _choose_rows(
    user: User, fields: Mapping[str, FormField], groups: QuerySet[AgentGroup], benchmarks: QuerySet[Benchmark]
) -> None:
    """A new form begins with the only group and benchmark, or with those of the newest run."""
    newest = Run.objects.visible_to(user).filter(group__in=groups, benchmark__in=benchmarks).order_by("-created_at")
    last = newest.values("group", "benchmark").first() or {}
    for key, rows in (("group", groups), ("benchmark", benchmarks)):
        if fields[key].value is None:
            fields[key].value = rows[0].pk if len(rows) == 1 else last.get(key)


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
        "is_grid_open": values["compare"] == "search"
        or any(field.value or field.errors for field in [*grid, fields[FURTHER_GRID]]),
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
