"""Part of the contract: a run's settings as YAML, to read, to keep, and to train from: `workers SPEC.yaml RUN_DIR`.

Written so that every YAML reader finds the same types: YAML 1.1 and 1.2 disagree about plain words such as 1e-6 and no.
No torch, no Django.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from workers.contract.spec.run import RunSpec

SUFFIXES = (".yaml", ".yml")
# What no reader takes for anything but text; the dumper itself quotes words such as null and yes.
_PLAIN_TEXT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class _Dumper(yaml.SafeDumper):
    """Quotes every text that is not a plain word, and repeats what occurs twice instead of pointing to it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN_TEXT.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dump_yaml(values: Mapping[str, Any]) -> str:
    """YAML in the order of the keys; other than ASCII characters are escaped."""
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=110)


def to_yaml(spec: RunSpec) -> str:
    """All settings of a run, defaults written out, in the order of the sections."""
    return dump_yaml(spec.model_dump(mode="json"))


def from_file(path: Path) -> RunSpec:
    """A spec file, YAML by its suffix, else JSON. Errors: OSError, pydantic.ValidationError, ValueError (no YAML)."""
    if path.suffix.lower() not in SUFFIXES:
        return RunSpec.from_file(path)
    try:
        return RunSpec.model_validate(yaml.safe_load(path.read_bytes()))
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {error}") from None
