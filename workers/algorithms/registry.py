"""All algorithms by name: those of this package, and those of the folders that HACRL_ALGORITHMS names.

A file that cannot be loaded is left out, and `refused_files` has the reason; the product works without it.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import pkgutil
import sys
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from workers import algorithms as package
from workers.algorithms.base.sharing import SharingSpec
from workers.algorithms.base.spec import AlgorithmSpec
from workers.contract.settings import alternatives

FOLDERS = "HACRL_ALGORITHMS"  # folders of further algorithms, separated as in PATH


@cache
def _loaded() -> tuple[dict[str, type[AlgorithmSpec]], dict[str, str]]:
    """The algorithms by name, those that share first; and why files were refused, by their path."""
    modules = [
        importlib.import_module(f"{package.__name__}.{one.name}") for one in pkgutil.iter_modules(package.__path__)
    ]
    classes = {cls.model_fields["name"].default: cls for module in modules for cls in _classes(module)}
    refused: dict[str, str] = {}
    for folder in filter(None, os.environ.get(FOLDERS, "").split(os.pathsep)):
        for path in sorted(Path(folder).glob("*.py")):
            try:
                own: dict[str, type[AlgorithmSpec]] = {}
                for cls in _classes(load_file(path)):
                    _check(cls, classes | own)
                    own[cls.model_fields["name"].default] = cls
                classes |= own  # all of a file, or none
            except Exception as error:  # of somebody's own file: whatever it raises
                refused[str(path)] = f"{type(error).__name__}: {error}"
                logging.getLogger(__name__).warning("algorithm file %s is not used: %s", path, refused[str(path)])
    shared_first = sorted(classes.items(), key=lambda item: (not issubclass(item[1], SharingSpec), item[0]))
    return dict(shared_first), refused


def load_file(path: Path) -> ModuleType:
    """The module of an algorithm file. Errors: whatever it raises."""
    name = f"hacrl_algorithm_{path.stem}_{zlib.crc32(str(path).encode()):x}"  # two folders may have the same stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic reads the annotations of a class from its module
    spec.loader.exec_module(module)
    return module


def _classes(module: ModuleType) -> list[type[AlgorithmSpec]]:
    """The algorithms that a module defines: subclasses with a name of their own."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, AlgorithmSpec)
        and value.__module__ == module.__name__
        and isinstance(value.model_fields["name"].default, str)
    ]


def _check(cls: type[AlgorithmSpec], known: Mapping[str, type[AlgorithmSpec]]) -> None:
    """Error: ValueError, for an algorithm that could not be told apart or shown."""
    name = cls.model_fields["name"].default
    if get_args(cls.model_fields["name"].annotation) != (name,):
        raise ValueError(f"{cls.__name__}.name must be Literal[{name!r}] with the default {name!r}")
    if not (name.isidentifier() and name.isascii() and name.islower() and len(name) <= 40):
        raise ValueError(f"the name {name!r} must be of at most 40 small letters, digits and underscores")
    if name in known:
        raise ValueError(f"the name {name!r} is taken by {known[name].__name__}")
    for attribute in ("label", "summary"):
        if not isinstance(getattr(cls, attribute, None), str):
            raise ValueError(f"{cls.__name__} needs {attribute}, a text")
    cls(name=name)  # every setting needs a default


def algorithms() -> dict[str, type[AlgorithmSpec]]:
    """The algorithms by name, those that share rollouts first."""
    return _loaded()[0]


def refused_files() -> dict[str, str]:
    """Files that could not be used, with the reason."""
    return _loaded()[1]


@cache
def settings_schema() -> dict[str, dict[str, Any]]:
    """The JSON schema of each setting of any algorithm, with `algorithms`: the names of those that use it.

    Where two define a setting differently, the schema is that of the first; `needs` has the conditions of all: one on a
    setting that an algorithm lacks holds for it.
    """
    properties: dict[str, dict[str, Any]] = {}
    for algorithm, cls in algorithms().items():
        for name, schema in cls.model_json_schema()["properties"].items():
            if name == "name":
                continue
            entry = properties.setdefault(name, {**schema, "algorithms": [], "needs": []})
            entry["needs"] += [one for one in alternatives(cls.needs_of(name)) if one not in entry["needs"]]
            if name not in cls.unused:
                entry["algorithms"].append(algorithm)
    return properties


def own_settings(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a section that an algorithm has; all of them if there is no such algorithm."""
    cls = algorithms().get(name)
    return dict(values) if cls is None else {key: value for key, value in values.items() if key in cls.model_fields}
