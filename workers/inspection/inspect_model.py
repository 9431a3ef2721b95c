"""Looks at what a user registers, before anything is stored: a model, or a pair of models.

`python -m workers.inspection.inspect_model model PATH_OR_HUB_ID [--revision R]` and `pair A B` each print one JSON
object and exit with 0 (fine) or 1 (refused, with the reason). The web runs this as a short child process. Weights are
never loaded: their sizes come from the safetensors headers. The checks themselves are in
`workers.inspection.model_checks`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any


def inspect_model(location: str, revision: str | None) -> tuple[dict[str, Any], bool]:
    """The report on one model, and whether it is fit."""
    from workers.inspection.model_checks import run_model_checks

    report = run_model_checks(location, revision)
    return {"checks": [check.as_dict() for check in report.checks], "facts": report.facts}, report.ok


def inspect_pair(first: str, second: str, revisions: tuple[str | None, str | None]) -> tuple[dict[str, Any], bool]:
    """The report on two models that are to teach each other."""
    from workers.inspection.model_checks import run_model_checks
    from workers.inspection.model_pairs import compare_models

    reports = [
        run_model_checks(location, revision) for location, revision in zip((first, second), revisions, strict=True)
    ]
    for location, report in zip((first, second), reports, strict=True):
        if not report.ok:
            return {"error": f"{location}: {report.checks[-1].detail}"}, False
    return compare_models(reports[0], reports[1]), True


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m workers.inspection.inspect_model", description="Check a model, or compare two."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    model = verbs.add_parser("model", help="checks and facts of one model")
    model.add_argument("location", metavar="PATH_OR_HUB_ID")
    model.add_argument("--revision")
    pair = verbs.add_parser("pair", help="how two models differ")
    pair.add_argument("first", metavar="A")
    pair.add_argument("second", metavar="B")
    pair.add_argument("--revision-a")
    pair.add_argument("--revision-b")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Print one JSON object."""
    options = _arguments(arguments)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if options.verb == "model":
        report, ok = inspect_model(options.location, options.revision)
    else:
        report, ok = inspect_pair(options.first, options.second, (options.revision_a, options.revision_b))
    print(json.dumps({"ok": ok, **report}, ensure_ascii=True))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
