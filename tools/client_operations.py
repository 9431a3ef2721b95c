"""Writes what the commands of hacrl_web/client/verbs.py need of the OpenAPI document, which they ship.

python -m tools.client_operations > hacrl_web/client/operations.json
"""

from __future__ import annotations

import json
import os
from typing import Any

FORM = "multipart/form-data"


def type_of(schema: dict[str, Any]) -> str:
    """The JSON type of a field; of a choice the first that is not null."""
    choices = schema.get("anyOf", [schema])
    return str(next(one["type"] for one in choices if one.get("type") != "null"))


def fields_of(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Fields of a body by name; an optional body is a choice of one schema and null."""
    schema = next(one for one in schema.get("anyOf", [schema]) if one.get("type") != "null")
    schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return {name: {"type": type_of(one), "help": one.get("description")} for name, one in schema["properties"].items()}


def operations() -> dict[str, Any]:
    """The operations by name, such as `POST /models`: the summary, and the fields of its body that have an option.

    page: the most rows in one answer of a list, null for a list of one answer.
    """
    from hacrl_web.api import api
    from hacrl_web.client.verbs import VALUES, VERBS

    document = api.get_openapi_schema()
    result = {}
    for verb in sorted(VERBS.values(), key=lambda verb: verb.operation):
        method, path = verb.operation.split(" ")
        operation = document["paths"][f"/api/v1{path}"][method.lower()]
        content = operation.get("requestBody", {}).get("content", {})
        fields: dict[str, Any] = {}
        for one in content.values():
            fields |= fields_of(one["schema"], document["components"]["schemas"])
        own = [token.rpartition(">")[2] for token in f"{verb.arguments} {verb.options}".split() if token not in VALUES]
        result[verb.operation] = {
            "summary": operation["summary"],
            "is_form": FORM in content,
            "page": next(
                (one["schema"]["maximum"] for one in operation.get("parameters", ()) if one["name"] == "limit"), None
            ),
            "fields": {name: fields[name] for name in own},
        }
    return result


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hacrl_web.settings")
    import django

    django.setup()
    print(json.dumps(operations(), indent=1))
