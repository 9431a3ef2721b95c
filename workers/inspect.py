"""Looks at what a user registers, before anything is stored: a model, a pair of models, a benchmark.

`python -m workers.inspect model PATH_OR_HUB_ID [--revision R]`, `pair A B`, `benchmark PATH [...]` each print one JSON
object and exit with 0 (fine) or 1 (refused, with the reason). The web runs this as a short child process. Weights are
never loaded: their sizes come from the safetensors headers. The checks themselves are in `workers.model_files`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from pydantic import ValidationError

from workers.benchmarks import BenchmarkError, split_questions
from workers.spec_sections import DataSpec

SAMPLE_ROWS = 5


def inspect_model(location: str, revision: str | None) -> tuple[dict[str, Any], bool]:
    """The report on one model, and whether it is fit."""
    from workers.model_files import check_model

    report = check_model(location, revision)
    return {"checks": [check.as_dict() for check in report.checks], "facts": report.facts}, report.ok


def inspect_pair(first: str, second: str, revisions: tuple[str | None, str | None]) -> tuple[dict[str, Any], bool]:
    """The report on two models that are to teach each other."""
    from workers.model_files import check_model
    from workers.pairs import compare

    reports = [check_model(location, revision) for location, revision in zip((first, second), revisions, strict=True)]
    for location, report in zip((first, second), reports, strict=True):
        if not report.ok:
            return {"error": f"{location}: {report.checks[-1].detail}"}, False
    return compare(reports[0], reports[1]), True


def inspect_benchmark(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Counts and sample rows of a benchmark file, or its first error with the line."""
    try:
        data = DataSpec(
            train_path=options.location,
            eval_path=options.held_out,
            question_field=options.question_field,
            answer_field=options.answer_field,
            held_out_fraction=options.held_out_fraction,
        )
        split = split_questions(data)
    except BenchmarkError as error:
        return {"error": str(error)}, False
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return {"error": f"{'.'.join(map(str, first['loc']))}: {first['msg']}"}, False
    subjects: dict[str, int] = {}
    for question in [*split.train, *split.held_out]:
        subjects[question.subject] = subjects.get(question.subject, 0) + 1
    return {
        "num_train": len(split.train),
        "num_held_out": len(split.held_out),
        "num_repeated": split.num_repeated,
        "num_overlapping": split.num_overlapping,
        "subjects": {name: count for name, count in sorted(subjects.items()) if name},
        "sample": [
            {"id": row.id, "question": row.question[:500], "answer": row.answer[:200], "subject": row.subject}
            for row in split.train[:SAMPLE_ROWS]
        ],
    }, True


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workers.inspect", description="Check a model or a benchmark.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    model = verbs.add_parser("model", help="checks and facts of one model")
    model.add_argument("location", metavar="PATH_OR_HUB_ID")
    model.add_argument("--revision")
    pair = verbs.add_parser("pair", help="how two models differ")
    pair.add_argument("first", metavar="A")
    pair.add_argument("second", metavar="B")
    pair.add_argument("--revision-a")
    pair.add_argument("--revision-b")
    benchmark = verbs.add_parser("benchmark", help="counts and sample rows of a question file")
    benchmark.add_argument("location", metavar="PATH")
    benchmark.add_argument("--held-out", metavar="PATH")
    benchmark.add_argument("--question-field", default="question")
    benchmark.add_argument("--answer-field", default="answer")
    benchmark.add_argument("--held-out-fraction", type=float, default=0.1)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Print one JSON object."""
    options = _arguments(arguments)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if options.verb == "model":
        report, ok = inspect_model(options.location, options.revision)
    elif options.verb == "pair":
        report, ok = inspect_pair(options.first, options.second, (options.revision_a, options.revision_b))
    else:
        report, ok = inspect_benchmark(options)
    print(json.dumps({"ok": ok, **report}, ensure_ascii=True))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
