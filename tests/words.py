"""Words that the house rules count: public names that several packages define.

    python -m tests.words

prints them, with their places, and the API operations whose answer has no type.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
SECTION = "## Names that several packages define"


def sources() -> list[Path]:
    """The modules of the product and its tools, without migrations and Django's commands."""
    paths = [path for folder in ("hacrl_web", "workers", "tools") for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in paths if not {"migrations", "commands"} & set(path.parts)]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def repeated_names() -> dict[str, list[str]]:
    """Public classes and functions that more than one package defines, with the files."""
    places: dict[str, set[Path]] = defaultdict(set)
    for path in sources():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                places[node.name].add(path.relative_to(ROOT))
    return {
        name: sorted(map(str, paths))
        for name, paths in sorted(places.items())
        if len({path.parent for path in paths}) > 1
    }


def listed_names() -> set[str]:
    """The names whose repetition the glossary explains."""
    _, _, section = GLOSSARY.read_text().partition(SECTION)
    return set(re.findall(r"`(\w+)`", section.partition("\n## ")[0]))


def untyped_answers() -> list[str]:
    """Operations of the API with a 2xx answer that the OpenAPI document does not describe."""
    from hacrl_web.api import api

    untyped = []
    for path, operations in api.get_openapi_schema()["paths"].items():
        for verb, operation in operations.items():
            for status, answer in operation["responses"].items():
                schemas = [content.get("schema", {}) for content in answer.get("content", {}).values()]
                if str(status).startswith("2") and any(not describes(schema) for schema in schemas):
                    untyped.append(f"{verb.upper()} {path}")
    return untyped


def describes(schema: dict[str, object]) -> bool:
    """Whether a JSON schema says more than "an object" or "anything"."""
    if schema.get("type") == "array":
        items = schema.get("items")
        return isinstance(items, dict) and describes(items)
    return bool({"$ref", "anyOf", "allOf", "oneOf", "enum", "const", "properties"} & set(schema)) or schema.get(
        "type"
    ) in ("string", "integer", "number", "boolean")


def main() -> None:
    import django

    django.setup()
    repeated = {name: paths for name, paths in repeated_names().items() if name not in listed_names()}
    print(*(f"{name}: {', '.join(paths)}" for name, paths in repeated.items()), sep="\n")
    print(f"{len(repeated)} public names that several packages define and the glossary does not list")
    untyped = untyped_answers()
    print(*untyped, f"{len(untyped)} operations with an untyped answer", sep="\n")


if __name__ == "__main__":
    import os

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    main()
