"""Reads a file of settings, YAML or JSON, for `hacrl launch`. It holds JSON's types only."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import yaml

MAX_BYTES = 2**18  # far more than the settings of any run; parsing a MiB of YAML takes seconds


class NoSettings(ValueError):
    """The file cannot be read as settings; the text names the line if there is one."""


class _Loader(yaml.SafeLoader):
    """Safe YAML with unique text keys and finite numbers; dates stay texts, as in JSON."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="settings have no aliases (*name): write it out", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError):
            # The value does not fit its tag, such as !!bool swan, or the number is too large.
            problem = f"{str(node.value)[:40]!r} is not a valid {node.tag.rpartition(':')[2]}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():  # else super() refuses it
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None or key.tag != TEXT:
                raise yaml.MarkedYAMLError(problem="a setting's name must be a text", problem_mark=key.start_mark)
            if name in keys:
                raise yaml.MarkedYAMLError(problem=f"the name {name!r} appears twice", problem_mark=key.start_mark)
            keys.add(name)
        return super().construct_mapping(node, deep)

    def number(self, node: Any) -> float:
        value = float(self.construct_yaml_float(node))
        if not math.isfinite(value):
            raise yaml.MarkedYAMLError(problem=f"{node.value} is not a finite number", problem_mark=node.start_mark)
        return value


TEXT = "tag:yaml.org,2002:str"
FLOAT = "tag:yaml.org,2002:float"
# YAML 1.1 reads 1e-6 as text; here it is a number, as in JSON and in YAML 1.2.
_Loader.add_implicit_resolver(FLOAT, re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_constructor(FLOAT, _Loader.number)
for _kind in ("timestamp", "binary", "set", "omap", "pairs"):
    _Loader.yaml_constructors.pop(f"tag:yaml.org,2002:{_kind}")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":merge"))]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def read_settings_file(data: bytes, name: str, *, is_json: bool = False) -> tuple[dict[str, Any], dict[str, int]]:
    """The settings, and the line of each dotted path (YAML only).

    name: of the file, for messages. Error: NoSettings.
    """
    if len(data) > MAX_BYTES:
        raise NoSettings(f"{name} is larger than {MAX_BYTES // 2**10} KiB: it cannot be settings.")
    lines: dict[str, int] = {}
    try:
        text = data.decode("utf-8-sig")
        if is_json:
            content = json.loads(text, object_pairs_hook=_unique_names, parse_constant=_refuse_constant)
        else:
            content = _yaml(text, lines)
        # Half a surrogate pair or an infinite number can be neither sent nor stored.
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    except yaml.MarkedYAMLError as error:
        raise NoSettings(_where(name, error)) from None
    except RecursionError:
        raise NoSettings(f"{name} is nested too deeply for settings.") from None
    except (ValueError, OverflowError, yaml.YAMLError) as error:
        raise NoSettings(f"{name} is not YAML or JSON: {error}") from None
    if not isinstance(content, dict):
        raise NoSettings(f"{name} must hold an object with settings, such as name, group, benchmark, algorithm.")
    return content, lines


def _yaml(text: str, lines: dict[str, int]) -> Any:
    """The content; fills `lines`."""
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


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Error: ValueError if a name appears twice in an object."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} appears twice in one object")
    return mapping


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")
