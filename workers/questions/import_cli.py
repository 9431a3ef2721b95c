"""The import of a benchmark's files, as a short child process of the web with limits on time and memory.

`python -m workers.questions.import_cli` reads one JSON object with a `verb` from stdin and prints one JSON object,
`{"error": text}` if the files are refused.

look     {files: [{path, name}], given}: the columns, the first rows, and a guess of the columns' meaning, with what the
         user has chosen (`given`), sentences about it, and why a column is not guessed
preview  {files: [{path, name}], mapping}: question and answer of the first row that these columns give, how many of the
         first rows cannot be used and why the first of them, and notes
import   {train, held_out: [{path, name}], mapping, verifier, held_out_fraction, folder, progress}: canonical files and
         counts; of the verifier python, reference answers that reward anything are refused
fetch    {dataset, revision} or {place, roots}, and {train, held_out: [patterns], folder, most_bytes, progress}: files
         from the hub or from a folder (`workers.questions.hub_files`); or {generator, folder, progress}: files of a
         generator's questions (`workers.questions.generated`)
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from workers.contract.spec.data import (
    CANONICAL_HELD_OUT_FILE,
    CANONICAL_TRAIN_FILE,
    MAX_COLUMN_NAME,
    held_out_limit,
    split_position,
)
from workers.contract.verifier_kinds import CODE_KINDS
from workers.hub.client import use_token
from workers.questions.canonical import MAX_ODD, CanonicalSet, canonical_texts, write_canonical
from workers.questions.columns import JOIN, QuestionMapping, guess, notes_on
from workers.questions.files import MAX_COLUMNS, BenchmarkError, QuestionFileError, Source
from workers.questions.generated import write_generated
from workers.questions.hub_files import fetch
from workers.questions.options import check_places
from workers.questions.overlap import KnownQuestions, count_overlap
from workers.verifiers.python.bubblewrap import sandbox_name
from workers.verifiers.python.degenerate.reference_check import ReferenceTrial, in_one_process, try_references

PREVIEW_ROWS = 100  # whose columns are offered
SHOWN_ROWS = 5
SHOWN_CHARACTERS = 2000
MAX_SHOWN_COLUMNS = 50
SAMPLE_ROWS = 5
SHOWN_KEYS = 400  # characters of the names in an error
REPORT_EVERY_S = 0.3
TRIALS_LIMIT_S = 400.0  # for trying reference answers, within the time of the whole import


class ImportProgress:
    """A small file with the progress of the work, which the web reads while it waits."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None
        self._reported_at = 0.0

    def report(self, phase: str, share: float, rows: int = 0) -> None:
        if self._path is None or time.monotonic() - self._reported_at < REPORT_EVERY_S:
            return
        self._reported_at = time.monotonic()
        self._path.write_text(json.dumps({"phase": phase, "share": round(share, 4), "rows": rows}))


def look(request: dict[str, Any]) -> dict[str, Any]:
    """Columns, first rows and a guess for the first file. Error: BenchmarkError if any file is unsuitable."""
    sources = _sources(request["files"])
    records, columns = _first_rows(sources[0])
    guessed = guess(columns, records, request.get("given"))
    joined = guessed.mapping.question
    columns += [joined] if joined and joined not in columns else []
    columns_in_order = list(dict.fromkeys([joined, *guessed.mapping.columns, *columns]))[:MAX_SHOWN_COLUMNS]
    return {
        "kind": sources[0].kind,
        "columns": columns,
        "shown": [name for name in columns if name in columns_in_order],
        "rows": [_shown_row(record, columns_in_order) for record in records[:SHOWN_ROWS]],
        "guess": vars(guessed.mapping),
        "notes": guessed.notes,
        "missing": guessed.missing,
    }


def _first_rows(source: Source) -> tuple[list[dict[str, Any]], list[str]]:
    """The first rows, and the names of what they hold, dotted in nested objects. Error: BenchmarkError."""
    odd: list[BenchmarkError] = []

    def leave_out(number: int, error: QuestionFileError) -> None:
        odd.append(BenchmarkError(f"{source.name}, {source.row_word} {number}: {error}"))

    records = [record for _, record in islice(source.rows(odd=leave_out), PREVIEW_ROWS)]
    if not records:
        raise odd[0] if odd else BenchmarkError(f"{source.name}: no questions in it")
    columns = list(dict.fromkeys(chain.from_iterable(records)))
    # An object is chosen by what it holds.
    columns = [name for name in columns if not all(isinstance(one.get(name), dict | None) for one in records)]
    names = [name for name in columns if "." not in name]
    if len(names) > MAX_COLUMNS:
        many = f"{len(names)} columns in its first {PREVIEW_ROWS} rows, {MAX_COLUMNS} at most"
        raise BenchmarkError(f"{source.name}: {many}: remove some")
    longest = max(map(len, columns), default=0)
    if longest > MAX_COLUMN_NAME:
        text = f"a column's name has {longest} characters, {MAX_COLUMN_NAME} at most: shorten it"
        raise BenchmarkError(f"{source.name}: {text}")
    return records, columns[:MAX_COLUMNS]


def _shown_row(record: dict[str, Any], columns: list[str]) -> dict[str, str]:
    joined = {name: [record.get(part) for part in name.split(JOIN)] for name in columns if name not in record}
    texts = {name: "\n\n".join(str(one) for one in parts if one) for name, parts in joined.items()}
    return {name: texts.get(name) or _preview(record.get(name)) for name in columns}


def _checked_columns(source: Source, mapping: QuestionMapping) -> list[str]:
    """Notes on the mapping of a file's columns.

    Error: BenchmarkError, if no row has the columns of question and answer, or the answers count options from 1.
    """
    records, columns = _first_rows(source)
    for name in (*mapping.question.split(JOIN), mapping.answer):
        if not any(name in record for record in records):
            keys = ", ".join(sorted(columns))[:SHOWN_KEYS]
            where = f"{source.name}, {source.row_word} 1"
            raise BenchmarkError(f"{where}: no key {name!r} (keys here: {keys or 'none'})")
    if mapping.extraction == "options":
        try:
            check_places(records, mapping.answer)
        except QuestionFileError as error:
            raise BenchmarkError(f"{source.name}: {error}") from None
    return notes_on(mapping, columns, records)


def preview_rows(request: dict[str, Any]) -> dict[str, Any]:
    """What the first rows become. Error: BenchmarkError, if most of them cannot be used."""
    source, mapping = _sources(request["files"])[0], QuestionMapping(**request["mapping"])
    notes = _checked_columns(source, mapping)
    questions, odd = [], []
    for number, record in islice(source.rows(odd=lambda number, error: odd.append((number, error))), PREVIEW_ROWS):
        try:
            questions.append(mapping.question_of(record))
        except QuestionFileError as error:
            odd.append((number, error))
    places = [f"{source.name}, {source.row_word} {number}: {error}" for number, error in odd[:1]]
    if places and len(odd) > len(questions):
        raise BenchmarkError(f"{places[0]}{f' (and {len(odd) - 1} more such rows)' if len(odd) > 1 else ''}")
    shown = {name: getattr(questions[0], name)[:SHOWN_CHARACTERS] for name in ("question", "answer")}
    return {**shown, "num_odd": len(odd), "num_rows": len(odd) + len(questions), "odd": places, "notes": notes}


def _preview(value: Any) -> str:
    text = (
        "" if value is None else value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    )
    return text[:SHOWN_CHARACTERS]


def _sources(files: list[dict[str, str]]) -> list[Source]:
    return [Source(Path(file["path"]), file.get("name", "")) for file in files]


def make_canonical(request: dict[str, Any]) -> dict[str, Any]:
    """Write the canonical files into `folder`, the held-out one first, whose questions the other leaves out."""
    folder, mapping = Path(request["folder"]), QuestionMapping(**request["mapping"])
    progress = ImportProgress(request.get("progress"))
    train = _sources(request["train"])
    digest = hashlib.sha256()
    held_out: list[Source] = []
    rest = CanonicalSet()
    if request.get("held_out"):
        try:
            held_out = _sources(request["held_out"])
            _checked_columns(held_out[0], mapping)
            report = _reporter(progress, "held-out questions", held_out)
            rest = write_canonical(held_out, mapping, folder / CANONICAL_HELD_OUT_FILE, digest, report=report)
        except BenchmarkError as error:
            error.is_held_out = True
            raise
    notes = _checked_columns(train[0], mapping)
    report = _reporter(progress, "questions", train)
    main = write_canonical(train, mapping, folder / CANONICAL_TRAIN_FILE, digest, excluded=rest.keys, report=report)
    if not main.num_questions:
        both = f"{train[0].name}: every question is also in {held_out[0].name}"
        raise BenchmarkError(f"{both}: nothing left to train on")
    trials = _tried_references(folder, mapping.answer, progress) if request.get("verifier") in CODE_KINDS else None
    limit = -1.0 if held_out else held_out_limit(main.positions, request["held_out_fraction"])
    num_held_out = rest.num_questions + sum(position <= limit for position in main.positions)
    main.keys.clear()
    rest.keys.clear()
    return {
        "num_repeated": main.num_repeated + rest.num_repeated,
        "num_overlapping": main.num_overlapping,
        "notes": notes,
        "left_out": {"num": main.num_odd + rest.num_odd, "rows": (rest.odd + main.odd)[:MAX_ODD]},
        "subjects": dict(sorted((main.subjects + rest.subjects).items())),
        "difficulties": dict(sorted((main.difficulties + rest.difficulties).items())),
        "num_train": main.num_questions + rest.num_questions - num_held_out,
        "num_held_out": num_held_out,
        "held_out_limit": limit,
        "sha256": digest.hexdigest(),
        "near": _near(folder, limit, bool(held_out), progress, main.num_questions) if num_held_out else None,
        "sample": _sample(folder / CANONICAL_TRAIN_FILE, limit),
        "trials": trials,
    }


def _tried_references(folder: Path, column: str, progress: ImportProgress) -> dict[str, Any]:
    """Try degenerate solutions against each reference answer: {num_tried, num_questions, sandbox, unavailable,
    num_one_process, one_process (why the first of them needs it), num_rewarded, rewarded (what the first rewards)}.

    Error: BenchmarkError that names the question whose tests reward it.
    """
    paths = [folder / name for name in (CANONICAL_TRAIN_FILE, CANONICAL_HELD_OUT_FILE) if (folder / name).exists()]
    rows = [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]
    trial = ReferenceTrial(0)
    for trial in try_references([row["answer"] for row in rows], TRIALS_LIMIT_S):
        progress.report("trying the tests with an empty solution", trial.num_tried / len(rows), trial.num_tried)
        if trial.refusal:
            question = rows[trial.num_tried]
            text = f"{column!r} of question {question['id']!r} cannot be verified: {trial.refusal}"
            raise BenchmarkError(f"{text}. It begins: {question['question'][:80]!r}")
    together = in_one_process([row["answer"] for row in rows])
    return {
        "num_one_process": len(together),
        "one_process": _first(rows, together),
        "num_rewarded": len(trial.rewarded),
        "rewarded": _first(rows, trial.rewarded, "reward code that returns"),
        "num_tried": trial.num_tried,
        "num_questions": len(rows),
        "sandbox": sandbox_name() if not trial.unavailable else "",
        "unavailable": trial.unavailable,
    }


def _first(rows: list[dict[str, Any]], places: Sequence[tuple[int, str]], before: str = "") -> str:
    """What is said of the first of some references; empty if there is none."""
    if not places:
        return ""
    place, text = places[0]
    return " ".join(filter(None, ["those of question", repr(rows[place]["id"]), before, text]))


def _reporter(progress: ImportProgress, what: str, sources: list[Source]) -> Callable[[Source, int], None]:
    def report(source: Source, number: int) -> None:
        if number % 100 == 0:
            share = (sources.index(source) + source.share_read) / len(sources)
            progress.report(f"reading the {what}", share, number)

    return report


def _near(folder: Path, limit: float, has_file: bool, progress: ImportProgress, total: int) -> dict[str, Any]:
    """The training questions that are (nearly) the same as held-out ones."""

    def held_out() -> Iterator[str]:
        if has_file:
            return canonical_texts(folder / CANONICAL_HELD_OUT_FILE)
        return (text for text in canonical_texts(folder / CANONICAL_TRAIN_FILE) if split_position(text) <= limit)

    def trained() -> Iterator[str]:
        for number, text in enumerate(canonical_texts(folder / CANONICAL_TRAIN_FILE)):
            if number % 100 == 0:
                progress.report("comparing with the held-out questions", number / max(total, 1), number)
            if split_position(text) > limit:
                yield text

    return count_overlap(trained(), KnownQuestions(held_out())).as_dict(held_out())


def _sample(path: Path, limit: float) -> list[dict[str, str]]:
    """The first training questions, shortened."""
    with open(path, encoding="utf-8") as file:
        rows = (row for row in map(json.loads, file) if split_position(row["question"]) > limit)
        keys = ("question", "answer", "subject")
        return [{key: row[key][:SHOWN_CHARACTERS] for key in keys} for row in islice(rows, SAMPLE_ROWS)]


def fetch_files(request: dict[str, Any]) -> dict[str, Any]:
    """Copy a data set's files into `folder`, or make those of a generator."""
    report = ImportProgress(request.get("progress")).report
    if "generator" in request:
        return write_generated(request["generator"], Path(request["folder"]), report)
    return fetch(request, report)


VERBS = {"look": look, "preview": preview_rows, "import": make_canonical, "fetch": fetch_files}


def main() -> int:
    """Answer the request on stdin; exit status 1 for an error."""
    request = json.load(sys.stdin)
    use_token(request)
    try:
        answer = VERBS[request["verb"]](request)
    except BenchmarkError as error:
        answer = {"error": str(error), "is_held_out": error.is_held_out}
    except (MemoryError, RecursionError) as error:
        answer = {"error": f"The files need more memory than is allowed ({type(error).__name__}): split them"}
    except OSError as error:  # a full disk
        answer = {"error": f"The files cannot be read or written ({error.strerror})"}
    print(json.dumps(answer, ensure_ascii=True))
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
