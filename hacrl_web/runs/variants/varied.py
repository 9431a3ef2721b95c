"""The settings that a sweep can vary, by name, and what reads their values: numbers, switches and choices.

`alpha` is a setting of algorithms, `training.learning_rate` one of another section. `agents.*.lora_rank` is that of
every agent, `agents.left.lora_rank` or, by its place, `agents.0.lora_rank` that of one. `rewards.terms.short.weight` is
the weight of the reward named short.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from hacrl_web.registry.models import AGENT_FIELDS
from hacrl_web.web.errors import FieldError, listed, plain_errors
from workers.algorithms.registry import algorithms, settings_schema
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.rewards import RewardTerm, terms_of_text
from workers.contract.spec.run import RunSpec

# Beside `algorithm`, whose settings have no section in their name. Checkpoints and telemetry change no result.
VARIED_SECTIONS = ("rewards", "training", "rollout", "evaluation", "compute")
AGENTS, TERMS, EVERY = "agents.", "rewards.terms.", "*"
VARIED = (
    "numbers, switches and choices: settings of algorithms by their name, such as alpha; those of "
    f"{', '.join(VARIED_SECTIONS)} with their section, such as training.learning_rate; of agents as agents.*.lora_rank "
    "for all or agents.NAME.lora_rank for one; and weights of rewards as rewards.terms.NAME.weight."
)
FINITE = ConfigDict(allow_inf_nan=False, str_strip_whitespace=True)  # as in RunSpec
SCALARS = ("number", "integer", "boolean")


@cache
def _readers() -> dict[str, TypeAdapter[Any]]:
    """The type adapter of each setting by its name, which has a star in place of an agent's or a reward's name."""
    readers = {}
    for name, schema in settings_schema().items():
        cls = algorithms()[(schema["algorithms"] or list(algorithms()))[0]]
        if _is_scalar(schema) and name in cls.model_fields:
            readers[name] = _reader(cls.model_fields[name])
    models: dict[str, Any] = {f"{section}.": RunSpec.model_fields[section].annotation for section in VARIED_SECTIONS}
    own: dict[str, Collection[str]] = {f"{AGENTS}{EVERY}.": AGENT_FIELDS, f"{TERMS}{EVERY}.": ("weight",)}
    for start, model in {**models, f"{AGENTS}{EVERY}.": AgentSpec, f"{TERMS}{EVERY}.": RewardTerm}.items():
        for name, schema in model.model_json_schema()["properties"].items():
            if _is_scalar(schema) and name in own.get(start, model.model_fields):
                readers[start + name] = _reader(model.model_fields[name])
    return readers


def _reader(info: FieldInfo) -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[info.annotation, info], config=FINITE)  # type: ignore[arg-type]


def _is_scalar(schema: Mapping[str, Any]) -> bool:
    options = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    return all(one.get("type") in SCALARS or "enum" in one for one in options)


def _pattern(name: str) -> str:
    """The name with a star in place of the name of an agent or of a reward."""
    for start in (AGENTS, TERMS):
        if name.startswith(start):
            _, owner, setting = split_name(name)
            return f"{start}{EVERY}.{setting}" if owner else ""
    return name


def split_name(name: str) -> tuple[str, str, str]:
    """agents.left.lora_rank as agents., left and lora_rank; an owner may have dots. Without one: empty texts first."""
    start = next((one for one in (AGENTS, TERMS) if name.startswith(one)), "")
    owner, _, setting = name.removeprefix(start).rpartition(".")
    return (start, owner, setting) if start else ("", "", name)


def is_varied(name: str) -> bool:
    """Whether a sweep can vary the setting of this name."""
    return _pattern(name) in _readers()


def read_value(name: str, value: Any, errors: list[FieldError]) -> list[Any]:
    """The value as the setting reads it, or nothing and an error."""
    if value is None:
        errors.append(
            FieldError("invalid", "Give values; without this setting all runs have its default.", f"grid.{name}")
        )
        return []
    try:
        return [_readers()[_pattern(name)].validate_python(value)]
    except ValidationError as error:
        errors += [replace(one, field=f"grid.{name}") for one in plain_errors(error)]
        return []


def value_text(value: Any) -> str:
    """The shortest text that is exactly this value: 3, 0.1, 1.0000001, true, signed."""
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """The shortest unique name of each setting, by its full name: lora_rank, left.lora_rank, or with the section."""
    short = {name: _short_name(name) for name in names}
    every = list(short.values())
    return {name: one if every.count(one) == 1 else name for name, one in short.items()}


def _short_name(name: str) -> str:
    _, owner, setting = split_name(name)
    return f"{owner}.{setting}" if owner not in ("", EVERY) else setting.rpartition(".")[2]


def agents_of(name: str, agents: Sequence[str]) -> list[str]:
    """The agents whose setting it is, of these names: all, one of them, or the one at that place."""
    start, owner, _ = split_name(name)
    if start != AGENTS:
        return []
    if owner == EVERY:
        return list(agents)
    if owner in agents:
        return [owner]
    is_place = owner.isascii() and owner.isdigit() and len(owner) < 3 and int(owner) < len(agents)
    return [agents[int(owner)]] if is_place else []


def is_of(name: str, path: str, agents: Sequence[str]) -> bool:
    """Whether the setting at `path` of an error is the varied one of this name."""
    if name == path:
        return True
    is_same = split_name(name)[2] == split_name(path)[2]
    return is_same and bool(set(agents_of(name, agents)) & set(agents_of(path, agents)))


def with_weights(section: Any, weights: Mapping[str, Any]) -> Any:
    """The section `rewards` of a request with these weights of its terms, by name."""
    terms = _terms_of(section)
    changed = [{**term, "weight": weights.get(str(term.get("name")), term.get("weight", 1.0))} for term in terms]
    return {**section, "terms": changed} if changed else section


def _terms_of(section: Any) -> list[Mapping[str, Any]]:
    """The terms of the section `rewards`; none where RunSpec refuses them."""
    terms = section.get("terms", ()) if isinstance(section, Mapping) else ()
    if isinstance(terms, str):
        try:
            terms = terms_of_text(terms)
        except ValueError:
            return []
    is_list = isinstance(terms, list | tuple) and all(isinstance(term, Mapping) for term in terms)
    return list(terms) if is_list else []


def owner_problems(fields: Mapping[str, str], agents: Sequence[str], rewards: Any) -> list[FieldError]:
    """Errors for agents and rewards that the request does not have, and for settings of an agent that vary twice.

    fields: of each varied setting, the field of the request that has its values.  rewards: the section of the request.
    """
    errors = []
    terms = [str(term.get("name")) for term in _terms_of(rewards)]
    first: dict[tuple[str, str], str] = {}  # by agent and setting
    for name, field in fields.items():
        start, owner, setting = split_name(name)
        if start == TERMS and owner not in terms:
            errors.append(FieldError("not_found", f"No further reward is named {owner[:40]!r}{_among(terms)}.", field))
        if start != AGENTS or not agents:
            continue
        if not (owners := agents_of(name, agents)):
            errors.append(FieldError("not_found", f"The group has no agent {owner[:80]!r}{_among(agents)}.", field))
        other = next((first[agent, setting] for agent in owners if (agent, setting) in first), None)
        if other is not None:
            message = f"{other} is the same setting of the same agent: vary one of the two."
            errors.append(FieldError("repeated", message, field))
        first |= {(agent, setting): name for agent in owners}
    return errors


def _among(names: Sequence[str]) -> str:
    return f": there is {listed(names, 8)}" if names else ""
