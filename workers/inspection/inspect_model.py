"""The inspection of a model, or of a pair of models, before it is registered; a short child process of the web.

`python -m workers.inspection.inspect_model model PATH_OR_HUB_ID [--revision R]` and `pair A B` print one JSON object;
the exit status is 1 if a model is refused. A pair is compared by tokenizers, vocabularies, lengths of the same text
and the paper's kinds of pair. `workers.inspection.model_checks` has the checks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from workers.hub.client import use_token
from workers.inspection.model_checks import Report, run_model_checks

SAMPLES = (
    "Natalia sold 48 clips in April and half as many in May: 48 / 2 = 24, so 48 + 24 = \\boxed{72}.",
    "Let $x^2 - 5x + 6 = 0$. Then $(x-2)(x-3) = 0$ and $x \\in \\{2, 3\\}$.",
    "3*4=12;17+12=\\boxed{29}",
    "(15-1)*4=56;7*(8+9)=119;128-64+1024=1088",
)


def heterogeneity(first: Report, second: Report) -> tuple[str, str]:
    """state, size or model (Definitions 2.1 to 2.3), or identical, and the reason."""
    a, b = first.facts, second.facts
    if (first.folder, first.revision) == (second.folder, second.revision):
        return "identical", "The same model twice: only its random choices differ."
    if a["model_type"] != b["model_type"]:
        return "model", f"Different families: {a['model_type']} and {b['model_type']}."
    if a["tokenizer_hash"] != b["tokenizer_hash"]:
        return "model", f"The same family ({a['model_type']}) with different tokenizers."
    if a["sizes"] != b["sizes"] or a["num_parameters"] != b["num_parameters"]:
        return "size", f"One family and tokenizer, {a['num_parameters']:,} and {b['num_parameters']:,} parameters."
    return "state", "One architecture, size and tokenizer; other weights."


def _pieces(tokenizer: Any) -> set[str]:
    """The texts of the vocabulary, with a space for each family's mark of a leading space."""
    return {piece.replace("Ġ", " ").replace("▁", " ") for piece in tokenizer.get_vocab()}


def _length(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False).input_ids)


def _survives(source: Any, learner: Any, text: str) -> bool:
    """Whether the learner's tokenizer preserves a text of the source."""
    sampled = source.decode(source(text, add_special_tokens=False).input_ids, skip_special_tokens=True)
    read = learner.decode(learner(sampled, add_special_tokens=False).input_ids, skip_special_tokens=True)
    return read == sampled


def compare_models(first: Report, second: Report) -> dict[str, Any]:
    """The report on a pair. length_ratio: tokens of the second over tokens of the first, in the sample texts."""
    kind, reason = heterogeneity(first, second)
    ours, theirs = _pieces(first.tokenizer), _pieces(second.tokenizer)
    lengths = [(_length(first.tokenizer, text), _length(second.tokenizer, text)) for text in SAMPLES]
    return {
        "kind": kind,
        "reason": reason,
        "same_tokenizer": first.facts["tokenizer_hash"] == second.facts["tokenizer_hash"],
        "vocabulary_overlap": len(ours & theirs) / len(ours | theirs),
        "shared_pieces": len(ours & theirs),
        "length_ratio": sum(after for _, after in lengths) / sum(before for before, _ in lengths),
        "texts": [
            {
                "text": text,
                "lengths": list(pair),
                "survives": _survives(first.tokenizer, second.tokenizer, text)
                and _survives(second.tokenizer, first.tokenizer, text),
            }
            for text, pair in zip(SAMPLES, lengths, strict=True)
        ],
        "models": [first.facts, second.facts],
    }


def inspect_model(location: str, revision: str | None) -> tuple[dict[str, Any], bool]:
    """The report on one model, and whether it is fit."""
    report = run_model_checks(location, revision)
    return {"checks": [vars(check) for check in report.checks], "facts": report.facts}, report.ok


def inspect_pair(first: str, second: str, revisions: tuple[str | None, str | None]) -> tuple[dict[str, Any], bool]:
    """The report on two models that may train together, and whether both are fit."""
    reports = [
        run_model_checks(location, revision) for location, revision in zip((first, second), revisions, strict=True)
    ]
    for location, report in zip((first, second), reports, strict=True):
        if not report.ok:
            return {"error": f"{location}: {report.checks[-1].detail}"}, False
    return compare_models(reports[0], reports[1]), True


def main(arguments: list[str] | None = None) -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.inspection.inspect_model", description="Check a model, or compare two."
    )
    parser.add_argument("--token-on-stdin", action="store_true", help="standard input is {hub_token}, as JSON")
    verbs = parser.add_subparsers(dest="verb", required=True)
    model = verbs.add_parser("model", help="checks and facts of one model")
    model.add_argument("location", metavar="PATH_OR_HUB_ID")
    model.add_argument("--revision")
    pair = verbs.add_parser("pair", help="how two models differ")
    pair.add_argument("first", metavar="A")
    pair.add_argument("second", metavar="B")
    pair.add_argument("--revision-a")
    pair.add_argument("--revision-b")
    options = parser.parse_args(arguments)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if options.token_on_stdin:
        use_token(json.load(sys.stdin))
    if options.verb == "model":
        report, ok = inspect_model(options.location, options.revision)
    else:
        report, ok = inspect_pair(options.first, options.second, (options.revision_a, options.revision_b))
    print(json.dumps({"ok": ok, **report}, ensure_ascii=True))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
