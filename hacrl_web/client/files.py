"""A launch request from a YAML or JSON file, with the line of each setting."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hacrl_web.client.api import ApiError
from hacrl_web.client.command import ClientProblem
from hacrl_web.web.settings_file import MAX_BYTES, NoSettings, read_settings_file


@dataclass(frozen=True)
class Request:
    """What stands in a file.  lines: of each dotted path, where the file is YAML."""

    values: dict[str, Any]
    lines: dict[str, int]

    def located(self, error: ApiError) -> ApiError:
        """The same refusal, each error with the line of its field or of the section around it."""
        return ApiError(error.status, [{**one, "message": self._with_line(one)} for one in error.errors])

    def _with_line(self, error: dict[str, Any]) -> str:
        path = error.get("field") or ""
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return f"{error['message']} [line {self.lines[path]}]" if path else str(error["message"])


def read_request(file: str) -> Request:
    """A launch request of a YAML or JSON file, `-` for standard input. Errors: Problem, OSError."""
    stream = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115 - closed below
    name = "Standard input" if file == "-" else file
    with stream:
        data = stream.read(MAX_BYTES + 1)
    try:
        return Request(*read_settings_file(data, name, is_json=file.endswith(".json")))
    except NoSettings as refused:
        raise ClientProblem(str(refused)) from None
