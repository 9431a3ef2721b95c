"""The controls of the new-run form, which come from RunSpec's JSON schema, and the values of stored settings in them.

RunSpec holds all bounds; the form shows them, and puts each error beside its field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from hacrl_web.registry.agent_groups.agent_changes import text_of_changes
from hacrl_web.runs.models import Run
from hacrl_web.runs.run.cautions import cautions_of_run
from hacrl_web.runs.variants.grid import GRID
from hacrl_web.runs.variants.search_settings import SearchSettings
from hacrl_web.runs.variants.varied import value_text
from hacrl_web.web.errors import FieldError
from workers.algorithms.registry import algorithms, settings_schema
from workers.contract.number_format import format_learning_rate
from workers.contract.settings import label_of
from workers.contract.spec.algorithm import DEFAULT, RECOMMENDED, upgraded
from workers.contract.spec.rewards import text_of_terms
from workers.contract.spec.run import CAUTIONS, RunSpec

# Sections of RunSpec on the form, in its order; agents and data come from the chosen group and benchmark.
SECTIONS = {
    "algorithm": "Algorithm",
    "rewards": "Rewards",
    "training": "Training",
    "rollout": "Rollouts",
    "evaluation": "Evaluation",
    "checkpoint": "Checkpoints",
    "compute": "Compute",
    "telemetry": "Telemetry",
}
# Settings that most runs choose, beside the algorithm; the last three are the first settings of rules of their own.
# The others are under "More".
COMMON = (
    *("training.steps", "training.train_batch_size", "rollout.num_generations", "training.learning_rate"),
    *("algorithm.delta", "algorithm.floor", "algorithm.sapo_temperature_pos"),
)
TOP_LEVEL = ("name", "group", "benchmark", "agents", "seed", "cloned_from")
TERMS = "rewards.terms"
SET_PREFIX = "training.benchmarks."  # of the fields with the weights of further training sets, each with an id
LISTS = ("algorithms", "ablations", "evaluation.benchmarks", "training.benchmarks")  # more than one control
OTHER = ("csrfmiddlewaretoken", "preset", "compare", "seeds", "confirm", "draft", "draft_sweep")
OWN_SOURCES = ("product", "design")  # of a default that no paper and no program gave
SWITCH = {None: "auto", True: "true", False: "false"}  # the choices of a switch that may be left to the machine
GRID_PREFIX = "grid."
SEARCH_PREFIX = "search."
SEARCH_CONTROLS: dict[str, dict[str, Any]] = {
    "method": {"default": "random"},
    "agent": {"kind": "choice"},  # choices: the agents of the groups
}
PARAMETERS = "search.parameters."  # the form has the ranges of a search in the fields of the grid
GRID_FIELDS = [GRID_PREFIX + name for name in GRID]  # each a text with several values
FURTHER_GRID = "varied"  # the field with all others: a line each
MAX_LIST_TEXT = 1000  # characters of the values of a grid


@dataclass
class FormField:
    """One control: its part of the schema, the value to show, and its errors."""

    path: str
    label: str
    kind: str = "text"  # or number, choice, boolean
    help: str = ""
    source: str = ""
    unit: str = ""
    bounds: str = ""
    choices: list[str] = field(default_factory=list)
    algorithms: list[str] = field(default_factory=list)  # those that use this setting, for settings of algorithms
    recommended: str = ""  # a choice
    needs: list[list[dict[str, Any]]] = field(
        default_factory=list
    )  # conditions on other settings, see workers.contract.settings
    default: Any = None
    value: Any = None
    start: Any = None  # its value in the run that is cloned, else its default
    errors: list[str] = field(default_factory=list)
    cautions: list[FieldError] = field(default_factory=list)

    @property
    def id(self) -> str:
        return "id-" + self.path.replace(".", "-")

    @property
    def section(self) -> str:
        """The title of its section; empty for one of none."""
        return SECTIONS.get(self.path.partition(".")[0], "") if "." in self.path else ""

    @property
    def start_text(self) -> str:
        """The value from which differences are shown, as a control holds it."""
        return (
            str(self.start).lower() if isinstance(self.start, bool) else "" if self.start is None else str(self.start)
        )

    @property
    def needs_json(self) -> str:
        """The conditions for the page's script; the same ones decide on the server."""
        return json.dumps(self.needs) if self.needs else ""

    @property
    def is_true(self) -> bool:
        return str(self.value).lower() in ("true", "on", "1")


Problem = tuple[FormField | None, FieldError]  # an error or caution, and its control


@dataclass
class FormSection:
    key: str
    title: str
    help: str
    fields: list[FormField]

    @property
    def has_errors(self) -> bool:
        return any(f.errors or f.cautions for f in self.fields)


def _bounds(schema: Mapping[str, Any]) -> str:
    """The allowed numbers in words: `0 to 1`, `above 0, at most 5`."""
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f"{low:,} to {high:,}"
    parts = [
        f"{word} {int(value) if value == int(value) else value:,}"
        for word, value in (("at least", low), ("above", above), ("at most", high), ("below", below))
        if value is not None
    ]
    return ", ".join(parts)


def _form_field(path: str, schema: Mapping[str, Any]) -> FormField:
    concrete: dict[str, Any] = dict(schema)
    for option in schema.get("anyOf", ()):
        if option.get("type") != "null":
            concrete |= option
    kinds = {"integer": "number", "number": "number", "boolean": "boolean"}
    # A choice of one value has "const" instead of "enum".
    choices = list(concrete.get("enum", [concrete["const"]] if "const" in concrete else []))
    if concrete.get("type") == "boolean" and "anyOf" in schema:
        choices = list(SWITCH.values())
    return FormField(
        path=path,
        label=label_of(path.rpartition(".")[2], concrete),
        kind="choice" if choices else kinds.get(concrete.get("type", ""), "text"),
        help=concrete.get("description", ""),
        source="" if (source := concrete.get("source", "")).startswith(OWN_SOURCES) else source,
        unit=concrete.get("unit", ""),
        bounds=_bounds(concrete),
        choices=choices,
        algorithms=concrete.get("algorithms", []),
        recommended=concrete.get("recommended", ""),
        needs=[[_full_path(one, path) for one in entry] for entry in concrete.get("needs", ())],
        default=concrete.get("default"),
    )


SEARCH_FIELDS = tuple(
    replace(_form_field(SEARCH_PREFIX + name, part), **SEARCH_CONTROLS.get(name, {}))
    for name, part in SearchSettings.model_json_schema()["properties"].items()
    if name != "parameters"
)


def _full_path(condition: Mapping[str, Any], path: str) -> dict[str, Any]:
    """A condition whose setting is named with its section; one without, is of the section of `path`."""
    other = str(condition["path"])
    return {**condition, "path": other if "." in other else f"{path.partition('.')[0]}.{other}"}


@cache
def _schema(section: str = "") -> dict[str, Any]:
    """The JSON schema of RunSpec or of one of its sections; of `algorithm`, the settings of all algorithms."""
    if section == "algorithm":
        name = {
            "enum": list(algorithms()),
            "default": DEFAULT,
            "description": "How verified rollouts become updates.",
            "label": "Algorithm",
            "recommended": RECOMMENDED,
        }
        description = "How verified rollouts become updates."
        return {"description": description, "properties": {"name": name, **settings_schema()}}
    model: Any = RunSpec.model_fields[section].annotation if section else RunSpec
    schema: dict[str, Any] = model.model_json_schema()
    return schema


def is_run_setting(path: str) -> bool:
    """Whether a dotted path is that of a setting of a run, apart from those of rows: `rollout.temperature`."""
    section, _, name = path.partition(".")
    return section in SECTIONS and path not in LISTS and name in _schema(section)["properties"]


def draw(
    values: Mapping[str, Any], errors: Iterable[FieldError], cloned: Mapping[str, Any]
) -> tuple[dict[str, FormField], list[FormField], list[FormSection], list[Problem]]:
    """The controls with `values` ({dotted path: text}) and errors. cloned: the values of the run that is cloned.

    Returns (top-level fields by name, common settings, sections of the others, problems).
    """
    top = {key: _form_field(key, _schema()["properties"][key]) for key in ("name", "seed")}
    top |= {key: FormField(key, key.capitalize()) for key in ("group", "benchmark", "agents", *LISTS, "seeds")}
    top |= {path: _grid_field(path) for path in GRID_FIELDS}
    top[FURTHER_GRID] = FormField(FURTHER_GRID, "Values of other settings")
    top |= {control.path: replace(control, errors=[]) for control in SEARCH_FIELDS}
    every = dict(top)
    sections = []
    for key, title in SECTIONS.items():
        schema = _schema(key)
        section = FormSection(key, title, schema.get("description", "").partition(".")[0] + ".", [])
        for name, part in schema["properties"].items():
            control = every[f"{key}.{name}"] = _form_field(f"{key}.{name}", part)
            if control.path not in ("algorithm.name", *LISTS, *COMMON):
                section.fields.append(control)
        sections.append(section)
    for path, control in every.items():
        if path not in LISTS:
            control.value = _control_text(control, values.get(path, control.default))
        control.start = _control_text(control, cloned.get(path, control.default))
    top |= {"algorithm": every["algorithm.name"], "benchmarks": every["evaluation.benchmarks"]}
    top["training_sets"] = every["training.benchmarks"]
    return top, [every[path] for path in COMMON], sections, _place(every, errors)


def _control_text(control: FormField, value: Any) -> Any:
    """A value as its control holds it: lists as texts that RunSpec reads, 0.0004 as 4e-4."""
    if control.choices == list(SWITCH.values()):
        return SWITCH.get(value, value)
    if isinstance(value, list | tuple):
        return json.dumps(value, ensure_ascii=False) if value else ""
    if isinstance(value, float):
        text = format_learning_rate(value)
        return text if float(text) == value else repr(value)
    return value


def _grid_field(path: str) -> FormField:
    """The control for several values of a setting."""
    name = path.removeprefix(GRID_PREFIX)
    section, _, key = (name if "." in name else f"algorithm.{name}").partition(".")
    setting = _form_field(path, _schema(section)["properties"][key])
    label = setting.label if setting.label[1:].lower() != setting.label[1:] else setting.label.lower()  # LoRA rank
    return replace(setting, label=f"Values of {label}", kind="text", default=None, needs=[])


def _place(every: Mapping[str, FormField], errors: Iterable[FieldError]) -> list[Problem]:
    """Put each error and caution beside its control, if it has one."""
    problems: list[Problem] = []
    for error in errors:
        # The error of an entry of a list is that of the list.
        path = re.sub(r"^agents\..*|\.\d+$", lambda part: "agents" if part[0][0] == "a" else "", error.field or "")
        path = SET_PREFIX[:-1] if path.startswith(SET_PREFIX) else path
        path = TERMS if path.startswith(TERMS) else path
        path = path.replace(PARAMETERS, GRID_PREFIX) if path != PARAMETERS[:-1] else "search.method"
        if path.startswith(GRID_PREFIX) and path not in every:
            message = f"{path.removeprefix(GRID_PREFIX)}: {error.message}"
            path, error = FURTHER_GRID, replace(error, message=message)
        control = every.get(path) or _mentioned(every, error)
        problems.append((control, error))
        if control is None:
            continue
        if error.code in CAUTIONS:
            control.cautions.append(error)
        elif error.message not in control.errors:
            control.errors.append(error.message)
    return problems


def _mentioned(every: Mapping[str, FormField], error: FieldError) -> FormField | None:
    """The first control that the message of a section's error names: "mini_batch_size 7 must divide ..."."""
    words = re.findall(r"[a-z_0-9]+", error.message)
    if error.field and error.field not in SECTIONS:
        return None
    within = {
        path.rpartition(".")[2]: f for path, f in every.items() if path.startswith(error.field or "") and "_" in path
    }
    return next((within[word] for word in words if word in within), None)


def values_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a stored spec: {dotted path: value}."""
    # As of version 2: a form holds the settings of all algorithms.
    spec = upgraded({**spec, "schema_version": 2} if spec.get("schema_version") == 1 else spec)
    return {key: spec[key] for key in ("name", "seed") if key in spec} | _values_of_sections(spec)


def _values_of_sections(settings: Mapping[str, Any]) -> dict[str, Any]:
    every = [(section, settings.get(section, {})) for section in SECTIONS]
    values = {f"{section}.{name}": value for section, values in every for name, value in values.items()}
    if isinstance(terms := values.get(TERMS), list | tuple):
        values[TERMS] = text_of_terms(terms)
    return values


def values_of_sweep(request: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a sweep's request, as the form sends them: {dotted path: value}."""
    values: dict[str, Any] = {key: request[key] for key in ("name", "group", "benchmark", "algorithms", "ablations")}
    values |= {"compare": "search" if "search" in request else "1", "seeds": ", ".join(map(str, request["seeds"]))}
    values["agents"] = text_of_changes(request.get("agents") or {})
    search = request.get("search", {})
    parameters = search.get("parameters", {})
    values |= {SEARCH_PREFIX + name: value for name, value in search.items() if name != "parameters"}
    every = {**request["grid"], **parameters}
    texts = {name: some if isinstance(some, str) else ", ".join(map(value_text, some)) for name, some in every.items()}
    values |= {GRID_PREFIX + name: text for name, text in texts.items() if name in GRID}
    values[FURTHER_GRID] = "\n".join(f"{name} = {text}" for name, text in texts.items() if name not in GRID)
    values |= _values_of_sections(request)
    if values["compare"] == "search":  # of one algorithm on one seed
        values |= {"algorithm.name": request["algorithms"][0], "seed": request["seeds"][0]}
    if "evaluation.benchmarks" in values:
        values["evaluation.benchmarks"] = [{"benchmark": pk} for pk in values["evaluation.benchmarks"]]
    return values


@dataclass(frozen=True)
class Confirmation:
    """A caution that was confirmed, and the value for which it was."""

    code: str
    value: str
    of_grid: bool = False  # the value is a list of a sweep's grid

    @property
    def field(self) -> str:
        path = CAUTIONS[self.code]
        return grid_path(path) if self.of_grid else path

    @property
    def text(self) -> str:
        """What its box sends."""
        return f"{self.code}={self.value}"


def grid_path(path: str) -> str:
    """The field of the form that has a setting's several values."""
    name = path.removeprefix("algorithm.")
    return GRID_PREFIX + name if name in GRID else FURTHER_GRID


def confirmed_by(run: Run, spec: RunSpec) -> list[Confirmation]:
    """The cautions that were confirmed when this run was launched."""
    values = values_of(spec.model_dump(mode="json"))
    codes = [caution.code for caution in cautions_of_run(run, spec)]
    return [Confirmation(code, str(values[CAUTIONS[code]])) for code in codes if code in CAUTIONS]


def is_same_value(text: str, other: str) -> bool:
    """Whether both are the same numbers, at least one."""
    if text.strip() and text.strip() == other.strip():  # the range of a search
        return True
    try:
        numbers = [float(part) for part in split_list(text)]
        return numbers != [] and numbers == [float(part) for part in split_list(other)]
    except ValueError:
        return False


def varied_lines(path: str, text: str) -> list[tuple[str, str, str]]:
    """Of each setting that a field gives several values: its name, the sign behind it or nothing, and their text."""
    text = text.strip()
    if path != FURTHER_GRID:
        return [(path.removeprefix(GRID_PREFIX), "=", text)] if text else []
    lines = [line.partition("=") for line in text.splitlines() if line.strip()]
    return [(name.strip(), sign, values.strip()) for name, sign, values in lines]


def split_list(text: str) -> list[str]:
    """`0.1, 0.2` as its parts."""
    return text.replace(",", " ").split()
