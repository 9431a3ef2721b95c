"""How two checked models differ: tokenizers, vocabularies, lengths of the same text, and the paper's kind of pair."""

from __future__ import annotations

from typing import Any

from workers.inspection.model_checks import Report

SAMPLES = (
    "Natalia sold 48 clips in April and half as many in May: 48 / 2 = 24, so 48 + 24 = \\boxed{72}.",
    "Let $x^2 - 5x + 6 = 0$. Then $(x-2)(x-3) = 0$ and $x \\in \\{2, 3\\}$.",
    "3*4=12;17+12=\\boxed{29}",
    "(15-1)*4=56;7*(8+9)=119;128-64+1024=1088",
)


def heterogeneity(first: Report, second: Report) -> tuple[str, str]:
    """state, size or model (Definitions 2.1 to 2.3), and the reason; `identical` for a model beside itself."""
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
    """The vocabulary's texts; families mark a leading space in different ways."""
    return {piece.replace("Ġ", " ").replace("▁", " ") for piece in tokenizer.get_vocab()}


def _length(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False).input_ids)


def _survives(source: Any, learner: Any, text: str) -> bool:
    """Whether a text, sampled by one and read by the other, comes out as it went in."""
    sampled = source.decode(source(text, add_special_tokens=False).input_ids, skip_special_tokens=True)
    read = learner.decode(learner(sampled, add_special_tokens=False).input_ids, skip_special_tokens=True)
    return read == sampled


def compare_models(first: Report, second: Report) -> dict[str, Any]:
    """The report on a pair. `length_ratio` is tokens of the second by tokens of the first, over the sample texts."""
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
