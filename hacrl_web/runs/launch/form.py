"""The new-run form: drawn from RunSpec's JSON schema, read back into the nested request that launch.py checks.

No bound is written here: RunSpec holds them all, this file only shows them and puts its errors beside their fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from django.http import QueryDict

from hacrl_web.runs.launch.variants import GRID
from hacrl_web.web.errors import FieldError, FieldErrors
from workers.contract.spec.run import RunSpec

# Sections of RunSpec on the form, in its order; agents and data come from the chosen group and benchmark.
SECTIONS = {
    "algorithm": "Algorithm",
    "training": "Training",
    "rollout": "Rollouts",
    "evaluation": "Evaluation",
    "checkpoint": "Checkpoints",
    "compute": "Compute",
    "telemetry": "Telemetry",
}
# What most runs change stands open; the rest waits under "Further settings".
COMMON = {
    "algorithm.alpha",
    "algorithm.delta",
    "algorithm.delta_step",
    "algorithm.cross_clip_gradient",
    "algorithm.beta",
    "algorithm.capability_window",
    "training.steps",
    "training.train_batch_size",
    "training.mini_batch_size",
    "training.learning_rate",
    "training.lr_schedule",
    "training.warmup_steps",
    "rollout.num_generations",
    "rollout.temperature",
    "rollout.max_completion_length",
    "evaluation.eval_interval",
    "evaluation.max_questions",
    "evaluation.num_samples",
    "evaluation.temperature",
    "checkpoint.save_steps",
    "checkpoint.keep",
    "compute.device",
    "compute.dtype",
    "compute.num_threads",
    "compute.gradient_checkpointing",
    "telemetry.rollout_interval",
}
# Codes of RunSpec.cautions() and the field that each asks about.
CAUTIONS = {
    "delta_above_half": "algorithm.delta",
    "last_bound_reaches_one": "algorithm.delta_step",
    "audit_decides_little": "algorithm.audit_share",
}
TOP_LEVEL = ("name", "group", "benchmark", "seed", "cloned_from")
LISTS = ("algorithms", "ablations", "evaluation.benchmarks")  # chosen by boxes of their own
OTHER = ("csrfmiddlewaretoken", "preset", "compare", "seeds", "confirm", "draft")
GRID_FIELDS = {f"grid.{name}": name for name in GRID}  # values of a sweep's grid, several in one text
MAX_SEEDS = 20
MAX_LIST_TEXT = 1000  # characters of seeds, of the values of a grid, or of confirmed ones
MAX_TEXT = 20_000


@dataclass
class FormField:
    """One control: what the schema says of it, the value to show, and what was wrong with it."""

    path: str
    label: str
    help: str
    source: str
    unit: str
    kind: str  # number, choice, boolean, text
    bounds: str
    choices: list[str]
    default: Any
    value: Any = None
    errors: list[str] = field(default_factory=list)
    cautions: list[FieldError] = field(default_factory=list)

    @property
    def id(self) -> str:
        return "id-" + self.path.replace(".", "-")

    @property
    def is_true(self) -> bool:
        return str(self.value).lower() in ("true", "on", "1")


@dataclass
class FormSection:
    key: str
    title: str
    help: str
    common: list[FormField]
    further: list[FormField]

    @property
    def is_further_open(self) -> bool:
        return any(f.errors or f.cautions for f in self.further)


def _bounds(schema: Mapping[str, Any]) -> str:
    """The allowed numbers in words: `0 to 1`, `above 0, at most 5`."""
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f"{low:,} to {high:,}".replace(",", "\u202f")
    parts = [
        f"{word} {int(value) if value == int(value) else value:,}".replace(",", "\u202f")
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
    name = path.rpartition(".")[2]
    # A choice of one has "const" in place of "enum".
    choices = list(concrete.get("enum", [concrete["const"]] if "const" in concrete else []))
    return FormField(
        path=path,
        label=concrete.get("label") or name.replace("_", " ").capitalize(),
        help=concrete.get("description", ""),
        source=source if (source := concrete.get("source", "")) not in ("product", "design") else "",
        unit=concrete.get("unit", ""),
        kind="choice" if choices else kinds.get(concrete.get("type", ""), "text"),
        bounds=_bounds(concrete),
        choices=choices,
        default=concrete.get("default"),
    )


@cache
def _schema() -> dict[str, Any]:
    return RunSpec.model_json_schema()


def _section_schema(key: str) -> dict[str, Any]:
    reference = _schema()["properties"][key]
    name = (reference.get("$ref") or reference["allOf"][0]["$ref"]).rpartition("/")[2]
    section: dict[str, Any] = _schema()["$defs"][name]
    return section


def _grid_field(path: str, name: str) -> FormField:
    """The control of one axis of a sweep's grid: empty, or several values of that setting."""
    of_one = _form_field(path, _section_schema("algorithm")["properties"][name])
    return replace(of_one, label=f"Values of {of_one.label.lower()}", kind="text", default=None)


def draw(
    values: Mapping[str, Any], errors: Iterable[FieldError] = (), cautions: Iterable[FieldError] = ()
) -> tuple[dict[str, FormField], list[FormSection], list[FieldError]]:
    """The controls with `values` ({dotted path: text}) and errors in place.

    Returns (top-level fields by name, sections, errors that belong to no control).
    """
    top = {key: _form_field(key, _schema()["properties"][key]) for key in ("name", "seed")}
    top |= {key: FormField(key, key.capitalize(), "", "", "", "choice", "", [], None) for key in ("group", "benchmark")}
    top |= {key: FormField(key, key.capitalize(), "", "", "", "text", "", [], None) for key in (*LISTS, "seeds")}
    top |= {path: _grid_field(path, name) for path, name in GRID_FIELDS.items()}
    every = dict(top)
    sections = []
    for key, title in SECTIONS.items():
        schema = _section_schema(key)
        fields = [_form_field(f"{key}.{name}", part) for name, part in schema["properties"].items()]
        every |= {f.path: f for f in fields}
        fields_in_form = [f for f in fields if f.path not in ("algorithm.name", *LISTS)]
        common = [f for f in fields_in_form if f.path in COMMON]
        further = [f for f in fields_in_form if f.path not in COMMON]
        sections.append(FormSection(key, title, schema.get("description", "").partition(".")[0] + ".", common, further))
    for path, control in every.items():
        control.value = None if path in LISTS else values.get(path, control.default)
    top |= {"algorithm": every["algorithm.name"], "benchmarks": every["evaluation.benchmarks"]}
    return top, sections, _place(every, errors, cautions)


def _place(
    every: Mapping[str, FormField], errors: Iterable[FieldError], cautions: Iterable[FieldError]
) -> list[FieldError]:
    """Put each error beside its control; return those that have none."""
    homeless = []
    for error in errors:
        control = every.get(error.field or "") or _mentioned(every, error)
        if control is None:
            homeless.append(error)
        elif error.message not in control.errors:
            control.errors.append(error.message)
    for caution in cautions:
        control = every.get(caution.field or "")
        if control is not None:
            control.cautions.append(caution)
    return homeless


def _mentioned(every: Mapping[str, FormField], error: FieldError) -> FormField | None:
    """The control that an error of a whole section speaks of first, such as "mini_batch_size 7 must divide ..."."""
    words = re.findall(r"[a-z_0-9]+", error.message)
    if error.field and error.field not in SECTIONS:
        return None
    within = {
        path.rpartition(".")[2]: f for path, f in every.items() if path.startswith(error.field or "") and "_" in path
    }
    return next((within[word] for word in words if word in within), None)


def default_values(spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """{dotted path: value} of a stored spec (to clone a run), or nothing: the schema's defaults are shown."""
    if not spec:
        return {}
    values = {key: spec[key] for key in ("name", "seed") if key in spec}
    for section in SECTIONS:
        values |= {f"{section}.{name}": value for name, value in spec.get(section, {}).items()}
    return values


@dataclass(frozen=True)
class Confirmation:
    """A caution that was answered with "I mean it", and the value of its field that was meant."""

    code: str
    value: str
    of_grid: bool = False  # the value is a list, that of a sweep's grid

    @property
    def field(self) -> str:
        path = CAUTIONS[self.code]
        return _grid_path(path) if self.of_grid else path

    @property
    def text(self) -> str:
        """What its box on the form sends: another value typed over this one was not confirmed."""
        return f"{self.code}={self.value}"


def _grid_path(path: str) -> str:
    return path.replace("algorithm.", "grid.")


def confirmed(post: QueryDict) -> list[Confirmation]:
    """The confirmations of a posted form whose fields still hold the value that was confirmed."""
    codes = []
    for text in post.getlist("confirm"):
        code, _, value = text.partition("=")
        if code not in CAUTIONS:
            continue
        typed = str(post.get(_grid_path(CAUTIONS[code]), "")) if post.get("compare") else ""
        of_grid = bool(typed.strip())  # it stands in place of the setting's one value
        if _is_same(typed if of_grid else str(post.get(CAUTIONS[code], "")), value):
            codes.append(Confirmation(code, value[:MAX_LIST_TEXT], of_grid))
    return codes


def confirmed_by(spec: RunSpec) -> list[Confirmation]:
    """What whoever launched this spec has confirmed."""
    codes = [caution.code for caution in spec.cautions() if caution.code in CAUTIONS]
    values = default_values(spec.model_dump(mode="json"))
    return [Confirmation(code, str(values[CAUTIONS[code]])) for code in codes]


def _is_same(typed: str, meant: str) -> bool:
    try:
        numbers = [float(part) for part in split_list(typed)]
        return numbers != [] and numbers == [float(part) for part in split_list(meant)]
    except ValueError:
        return False


def split_list(text: str) -> list[str]:
    """`0.1, 0.2` as its parts."""
    return text.replace(",", " ").split()


def parse_form(post: QueryDict) -> dict[str, Any]:
    """The nested request of a posted form; texts stay texts, RunSpec reads them. Error: FieldErrors."""
    request: dict[str, Any] = {key: post.getlist(key) for key in LISTS if key in post and "." not in key}
    if "evaluation.benchmarks" in post:
        request["evaluation"] = {"benchmarks": post.getlist("evaluation.benchmarks")}
    request["confirm"] = [one.code for one in confirmed(post)]
    errors = []
    for path in post:
        if path in LISTS or path in OTHER:
            continue
        value = str(post[path])
        section, dot, name = path.partition(".")
        short_path = path[:80]
        if "\x00" in value or len(value) > (MAX_LIST_TEXT if path in GRID_FIELDS else MAX_TEXT):
            errors.append(FieldError("invalid_text", "This text is too long or holds a NUL character.", short_path))
        elif path in GRID_FIELDS:
            if parts := split_list(value):
                request.setdefault("grid", {})[name] = parts
        elif not dot and path in TOP_LEVEL:
            request[path] = value.strip()
        elif dot and section in SECTIONS:
            request.setdefault(section, {})[name] = value.strip()
        else:
            errors.append(FieldError("unknown_field", f"There is no setting {short_path!r}.", short_path))
    if errors:
        raise FieldErrors(errors)
    return request


def parse_seeds(text: str) -> list[int]:
    """`0, 1, 2` as numbers. Error: FieldErrors, also where one stands there twice."""
    parts = split_list(text)
    if len(text) > MAX_LIST_TEXT or not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts):
        raise FieldErrors([FieldError("invalid_seeds", "Seeds are whole numbers from 0, such as 0, 1, 2.", "seeds")])
    seeds = [int(part) for part in parts]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice and len(seeds) <= MAX_SEEDS:
        named = ", ".join(map(str, twice))
        message = f"Named more than once: {named}. A seed makes one run of each algorithm."
        raise FieldErrors([FieldError("repeated", message, "seeds")])
    if not 1 <= len(seeds) <= MAX_SEEDS:
        raise FieldErrors([FieldError("invalid_seeds", f"Give 1 to {MAX_SEEDS} seeds.", "seeds")])
    return seeds
