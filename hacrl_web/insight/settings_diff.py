"""How the settings of runs differ, setting by setting: for the Config tab and the columns of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Case, IntegerField, Q, Value, When
from pydantic import ValidationError
from typing_extensions import TypedDict

from hacrl_web.accounts.models import User
from hacrl_web.runs.models import Run, TelemetryEvent
from hacrl_web.web.dotted_paths import flat
from workers.algorithms.registry import algorithms
from workers.contract.spec.algorithm import BASELINE
from workers.contract.spec.run import RunSpec

MAX_MATCHES = 20


class Absent:
    """A setting that a run does not have, such as one of a third agent."""

    def __str__(self) -> str:
        return "not there"


ABSENT = Absent()


@dataclass(frozen=True)
class SettingLine:
    """One setting by its dotted path, and its value in each run; idle: whether the run does not use it."""

    path: str
    values: tuple[Any, ...]
    idle: tuple[bool, ...] = ()

    @property
    def cells(self) -> list[tuple[Any, bool]]:
        """(value, whether it is idle) of each run."""
        return list(zip(self.values, self.idle or (False,) * len(self.values), strict=True))

    @property
    def is_idle(self) -> bool:
        return bool(self.idle) and all(self.idle)

    @property
    def differs(self) -> bool:
        """Whether two values are unequal; a setting that another run's algorithm does not have is none of it."""
        is_of_algorithm = self.path.startswith("algorithm.")
        values = [value for value in self.values if not (is_of_algorithm and value is ABSENT)]
        return any(not is_same(values[0], value) for value in values[1:])


def is_partial(line: SettingLine) -> bool:
    """Whether only some of the runs have the setting, and one of these uses it."""
    is_used = [value is not ABSENT and value is not None and not is_idle for value, is_idle in line.cells]
    return ABSENT in line.values and any(is_used)


@dataclass(frozen=True)
class DiffSection:
    """The settings whose paths begin with `title`."""

    title: str
    lines: list[SettingLine]

    @property
    def num_different(self) -> int:
        return sum(line.differs for line in self.lines)


def is_same(a: Any, b: Any) -> bool:
    """Whether two values are equal as settings: 1 and 1.0 are, 1 and true are not."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def effective(run: Run) -> dict[str, Any]:
    """The run's settings by their current names; later settings have the default under which the run was trained."""
    spec = _readable(run)
    return run.spec if spec is None else spec.model_dump(mode="json")


def _readable(run: Run) -> RunSpec | None:
    """None for settings that were stored under other bounds."""
    try:
        return RunSpec.model_validate(run.spec)
    except ValidationError:
        return None


def non_default_paths(run: Run) -> set[str]:
    """Dotted paths of the settings that are not their defaults; of settings of another version all of them."""
    spec = _readable(run)
    return {path for path, _ in flat(run.spec if spec is None else spec.model_dump(mode="json", exclude_defaults=True))}


def as_trained(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """`effective`, with the settings that runs leave to the machine as their trainers decided, once they started."""
    events = TelemetryEvent.objects.filter(run__in=[run.pk for run in runs], type="started").order_by("seq")
    settled = {pk: payload.get("settled", {}) for pk, payload in events.values_list("run", "payload")}
    specs = []
    for run in runs:
        if (read := _readable(run)) is None:
            specs.append(run.spec)
            continue
        spec = read.model_dump(mode="json")
        spec["checkpoint"]["save_steps"] = read.save_interval
        for section, values in settled.get(run.pk, {}).items():
            if not isinstance(spec.get(section), dict) or not isinstance(values, dict):
                continue  # of another version
            is_open = {name for name, value in spec[section].items() if value in (None, "auto")}
            spec[section] |= {name: values[name] for name in is_open & values.keys()}
        specs.append(spec)
    return specs


def idle_paths(spec: Mapping[str, Any]) -> set[str]:
    """The settings of the algorithm that it does not use: GSPO has no delta."""
    section = spec.get("algorithm", {})
    try:
        rule = algorithms()[section.get("name", "")].model_validate(section)
    except (KeyError, ValidationError):  # stored by another installation, or under other bounds
        return set()
    return {f"algorithm.{name}" for name in type(rule).model_fields if name != "name" and not rule.uses(name)}


def diff_lines(specs: Sequence[Mapping[str, Any]]) -> list[SettingLine]:
    """Every setting of any of these specs, in their order."""
    flats = [dict(flat(spec)) for spec in specs]
    idle = [idle_paths(spec) for spec in specs]
    paths = dict.fromkeys(path for one in flats for path in one)
    return [
        SettingLine(path, tuple(one.get(path, ABSENT) for one in flats), tuple(path in of_one for of_one in idle))
        for path in paths
    ]


def sections(lines: Sequence[SettingLine]) -> list[DiffSection]:
    """Grouped by the first part of the path, or by agent; settings without a section first."""
    groups: dict[str, list[SettingLine]] = {"general": []}
    for line in lines:
        parts = line.path.split(".")
        title = "general" if len(parts) == 1 else ".".join(parts[: 2 if parts[0] == "agents" else 1])
        groups.setdefault(title, []).append(line)
    return [DiffSection(title, members) for title, members in groups.items() if members]


def cloned_baseline(run: Run, user: User) -> Run | None:
    """Another run of the same sweep under the baseline's algorithm, with the same seed if there is one."""
    if run.sweep_id is None:
        return None
    same_seed = Case(When(seed=run.seed, then=Value(0)), default=Value(1), output_field=IntegerField())
    others = Run.objects.visible_to(user).filter(sweep_id=run.sweep_id, algorithm=BASELINE).exclude(pk=run.pk)
    return others.order_by(same_seed, "seed", "created_at", "pk").first()


def origin_of_run(run: Run, user: User) -> Run | None:
    """The run that this one was cloned from, if the user may see it."""
    return Run.objects.visible_to(user).filter(pk=run.cloned_from_id).first()


def runs_matching(user: User, text: str, but: UUID) -> list[Run]:
    """The newest visible runs with this text in their name or their sweep's, or with this id."""
    condition = Q(name__icontains=text) | Q(sweep__name__icontains=text)
    with suppress(ValueError):
        condition |= Q(pk=UUID(text))
    runs = Run.objects.visible_to(user).filter(condition).exclude(pk=but).select_related("sweep")
    return list(runs.order_by("-created_at", "-pk")[:MAX_MATCHES])


class SettingAnswer(TypedDict):
    """One setting in each run: null and `is_there` false if a run has no such setting."""

    path: str
    values: list[Any]
    is_there: list[bool]
    differs: bool


def as_rows(lines: list[SettingLine], *, only_different: bool) -> list[SettingAnswer]:
    return [
        {
            "path": line.path,
            "values": [None if value is ABSENT else value for value in line.values],
            "is_there": [value is not ABSENT for value in line.values],
            "differs": line.differs,
        }
        for line in lines
        if line.differs or not only_different
    ]
