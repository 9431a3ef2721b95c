"""Writes the API's answers as TypeScript types, for type checks of the browser's modules.

python -m tools.js_types > frontend/api-types.d.ts
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

HEADER = """// The schemas of /api/v1 as types. Written by: python -m tools.js_types > frontend/api-types.d.ts
declare namespace Api {"""
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def name_of(title: str) -> str:
    """PageOf_RunRow_ -> PageOfRunRow."""
    return re.sub(r"[^0-9A-Za-z]", "", title)


def type_of(schema: dict[str, Any]) -> str:
    """The TypeScript type of a JSON schema; `unknown` for an empty one."""
    if "$ref" in schema:
        return name_of(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(type_of(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        item = type_of(schema.get("items", {}))
        return f"({item})[]" if "|" in item else f"{item}[]"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {type_of(values) if isinstance(values, dict) else 'unknown'}>"
    return PLAIN.get(str(schema.get("type")), "unknown")


def type_script() -> str:
    """The content of frontend/api-types.d.ts."""
    from hacrl_web.api import api

    lines = [HEADER]
    for title, schema in sorted(api.get_openapi_schema()["components"]["schemas"].items()):
        if "properties" not in schema:
            lines.append(f"  type {name_of(title)} = {type_of(schema)};")
            continue
        lines.append(f"  interface {name_of(title)} {{")
        for field, value in schema["properties"].items():
            mark = "" if field in schema.get("required", ()) else "?"
            lines.append(f"    {field}{mark}: {type_of(value)};")
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hacrl_web.settings")
    import django

    django.setup()
    print(type_script(), end="")
