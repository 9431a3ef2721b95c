"""A file of settings as people write it, YAML or JSON, for the command and the new-run form: only what JSON can say."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import yaml

MAX_BYTES = 2**18  # many times the longest that a run's page hands out; YAML takes seconds for a MiB


class NoSettings(ValueError):
    """What is wrong with a file; the text begins with the line where there is one."""


class _Loader(yaml.SafeLoader):
    """Safe YAML as people mean it: a key once, texts as keys, finite numbers, dates as the texts that JSON has."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="settings have no aliases (*name): write it out", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            # Of a tag that its value does not fit, such as !!bool swan, and of numbers beyond every size.
            problem = f"{str(node.value)[:40]!r} is no {node.tag.rpartition(':')[2]}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None or key.tag != TEXT:
                raise yaml.MarkedYAMLError(problem="a setting's name must be a text", problem_mark=key.start_mark)
            if name in keys:
                raise yaml.MarkedYAMLError(problem=f"{name!r} stands here twice", problem_mark=key.start_mark)
            keys.add(name)
        return super().construct_mapping(node, deep)

    def number(self, node: Any) -> float:
        value = float(self.construct_yaml_float(node))
        if not math.isfinite(value):
            raise yaml.MarkedYAMLError(problem=f"{node.value} is no number", problem_mark=node.start_mark)
        return value


TEXT = "tag:yaml.org,2002:str"
FLOAT = "tag:yaml.org,2002:float"
# YAML 1.1 takes 1e-6 for a text; here it is a number, as it is in JSON and in YAML 1.2.
_Loader.add_implicit_resolver(FLOAT, re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_constructor(FLOAT, _Loader.number)
for _kind in ("timestamp", "binary", "set", "omap", "pairs"):
    _Loader.yaml_constructors.pop(f"tag:yaml.org,2002:{_kind}")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if not tag.endswith((":timestamp", ":merge"))]
    for first, found in _Loader.yaml_implicit_resolvers.items()
}


def read_settings_file(data: bytes, name: str, *, is_json: bool = False) -> tuple[dict[str, Any], dict[str, int]]:
    """The settings, and of each dotted path the line, where the file is YAML, which JSON is too.

    name: how messages call the file. Error: NoSettings.
    """
    if len(data) > MAX_BYTES:
        raise NoSettings(f"{name} is larger than {MAX_BYTES // 2**10} KiB, which no settings are.")
    lines: dict[str, int] = {}
    try:
        text = data.decode("utf-8-sig")
        content = _json(text) if is_json else _yaml(text, lines)
        # Half a character, and a number beyond every size, can neither be sent nor kept.
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    except yaml.MarkedYAMLError as error:
        raise NoSettings(_where(name, error)) from None
    except RecursionError:
        raise NoSettings(f"{name} is nested too deeply for settings.") from None
    except (ValueError, OverflowError, yaml.YAMLError) as error:
        raise NoSettings(f"{name} is no YAML or JSON: {error}") from None
    if not isinstance(content, dict):
        raise NoSettings(f"{name} must hold an object with settings, such as name, group, benchmark, algorithm.")
    return content, lines


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)


def _yaml(text: str, lines: dict[str, int]) -> Any:
    """Adds to `lines`."""
    loader = _Loader(text)
    node = loader.get_single_node()
    _add_lines(node, "", lines)
    return None if node is None else loader.construct_document(node)


def _where(name: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{name}{place}: {error.problem or error.context}."


def _add_lines(node: Any, path: str, lines: dict[str, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            lines[inner] = key.start_mark.line + 1
            _add_lines(value, inner, lines)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Error: ValueError, where a name stands twice in an object."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return mapping


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")
