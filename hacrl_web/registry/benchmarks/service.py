"""Creates benchmarks, for the pages, the API and the demo.

Files are staged (uploaded, copied from a folder, or fetched from the hub), inspected, and made canonical with a mapping
of their columns. Errors are raised as FieldErrors; then neither a row nor a file of a benchmark is left.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile

from hacrl_web.accounts.models import User
from hacrl_web.accounts.roles.projects import project_of_new
from hacrl_web.registry.base import locations, values
from hacrl_web.registry.benchmarks import child_requests, uploads
from hacrl_web.registry.benchmarks.built_in import BY_KEY, BuiltIn
from hacrl_web.registry.benchmarks.ready_prompts import BY_READY_KEY, ready_key
from hacrl_web.registry.benchmarks.uploads import Staged
from hacrl_web.registry.hub_tokens.service import usable_hub_token
from hacrl_web.registry.models import VERIFIERS, Benchmark, Judge, RewardFunction
from hacrl_web.registry.rewards.service import chosen_source
from hacrl_web.web.errors import FieldError, FieldErrors
from workers.contract.settings import MAX_TEMPLATE
from workers.contract.spec.data import CANONICAL_HELD_OUT_FILE, CANONICAL_TRAIN_FILE, MAX_COLUMN_NAME
from workers.contract.verifier_kinds import FORMAT_KINDS, RESPONSE_EXTRACTIONS, not_flexible

MAX_HELD_OUT_FRACTION = 0.9
GENERATED = "reasoning_gym"  # the verifier of a generator's questions
EXTRACTIONS = {
    "as_is": "the whole cell",
    "hashes": "what follows the last ####",
    "boxed": "the last \\boxed{}",
    "tests": "tests in HumanEval's or MBPP's columns",
    "options": "the letter of an option in ARC's, MMLU's or GPQA's columns",
    "countdown": "numbers and a target in Countdown's columns",
    "instructions": "instructions in IFEval's columns",
}
# The ready prompt of the formats that have verifiers of their own, of which the first is proposed.
FORMAT_PROMPTS = {"tests": "code", "options": "choice", "countdown": "countdown", "instructions": "bare"}
COUNTED = (
    "num_repeated",
    "num_overlapping",
    "left_out",
    "notes",
    "subjects",
    "difficulties",
    "near",
    "held_out_limit",
    "trials",
)
QUESTION = "{question}"
# What a copy begins with, by the fields of the form.
OWN_OPTIONS = {name: name for name in ("verifier", "extraction", "held_out_fraction", "tolerance")}
OWN_OPTIONS |= {"reward_function": "reward_function_id", "judge": "judge_id"}
CANONICAL = {f"{part}_field": part for part in ("question", "answer", "subject", "difficulty", "id")}
CANONICAL |= {"answer_extraction": "as_is"}  # what the stored files have
_DEFAULTS = {"prompt_template": QUESTION, "system_prompt": ""}
COLUMNS = ("question", "answer", "subject", "difficulty", "id")
# The parts of a guess and the fields in which a request may choose them.
GUESSED = {part: f"{part}_field" for part in COLUMNS} | {"extraction": "answer_extraction", "verifier": "verifier"}


# From the user's files to staged files


def stage_upload(owner: User, file: UploadedFile | None, held_out_file: UploadedFile | None = None) -> Staged:
    """Store uploaded files for an hour, and inspect their columns. Error: FieldErrors; then nothing is stored."""
    if file is None:
        raise FieldErrors.single("missing", "Choose a file: JSONL, CSV or Parquet.", "file")
    with _uploaded(owner, file, held_out_file) as staged:
        staged.name = Path(staged.train[0]["name"]).stem[: values.MAX_NAME]
        _inspect(staged, "file", "held_out_file")
    return staged


@contextmanager
def _uploaded(owner: User, file: UploadedFile, held_out_file: UploadedFile | None) -> Iterator[Staged]:
    with uploads.staging(owner) as staged:
        uploads.store(file, staged, "train", "file")
        if held_out_file:
            uploads.store(held_out_file, staged, "held_out", "held_out_file")
        staged.source = ", ".join(f["name"] for f in staged.train + staged.held_out)
        yield staged


def stage_built_in(owner: User, key: object, location: str = "") -> Staged:
    """A built-in benchmark from the hub, or from a local copy. Error: FieldErrors."""
    entry = BY_KEY.get(key) if isinstance(key, str) else None
    if entry is None:
        raise FieldErrors.single("not_a_choice", f"Choose one of: {', '.join(BY_KEY)}.", "built_in")
    if location.strip():
        return _stage_fetched(owner, location, "", "local", "location", entry)
    return _stage_fetched(owner, entry.dataset, "", "hub", "built_in", entry)


def stage_from(
    owner: User, *, kind: str, location: str, revision: str = "", chosen: Mapping[str, Any] | None = None
) -> Staged:
    """A data set of the hub (kind "hub"), a local file or folder ("local"), or questions that a generator of
    reasoning-gym makes ("generator": location is its text). Error: FieldErrors.

    chosen: fields of the form that the user has given; the others are guessed to fit them.
    """
    if kind == "generator":
        return _stage_generated(owner, location)
    return _stage_fetched(owner, location, revision, kind, "location", None, chosen)


def _stage_generated(owner: User, text: str) -> Staged:
    with uploads.staging(owner) as staged:
        request = {"verb": "fetch", "generator": text, "folder": str(staged.folder)}
        request |= {"progress": str(staged.folder / uploads.PROGRESS)}
        answer = child_requests.ask_importer(request, "location")
        staged.train, staged.held_out = answer["train"], answer["held_out"]
        staged.source = f"reasoning-gym {answer['commit']}: {answer['generator']}"
        staged.name = text.partition("?")[0].strip()[: values.MAX_NAME]
        _inspect(staged, "location", "location", chosen=CANONICAL)
        staged.found |= {"verifier": GENERATED, "generator": answer["generator"]}
        staged.found |= {"prompt_template": BY_READY_KEY["tags"].prompt_template}
        staged.note()
    return staged


def stage_copy(owner: User, benchmark: Benchmark) -> Staged:
    """The questions of a benchmark again, for other options. Error: FieldErrors; then nothing is stored."""
    with uploads.staging(owner) as staged:
        for side, path in zip(("train", "held_out"), benchmark.paths, strict=False):
            uploads.copy_in(Path(path), staged, side)
        staged.source = benchmark.source or f"copy of {benchmark.name}"
        staged.name = f"{benchmark.name[: values.MAX_NAME - len(values.COPY)]}{values.COPY}"
        staged.is_evaluation_only = bool(benchmark.facts.get("is_evaluation_only"))
        staged.edit_of = benchmark.pk
        _inspect(staged, "benchmark", "benchmark", chosen=CANONICAL)
        own = {name: getattr(benchmark, column) for name, column in OWN_OPTIONS.items()}
        staged.found["own"] = {name: "" if value is None else value for name, value in own.items()}
        staged.found |= {"prompt_template": benchmark.prompt_template, "system_prompt": benchmark.system_prompt}
        staged.found |= {"generator": benchmark.facts.get("generator", "")}
        staged.note()
    return staged


def _stage_fetched(
    owner: User,
    location: str,
    revision: str,
    kind: str,
    field: str,
    entry: BuiltIn | None,
    chosen: Mapping[str, Any] | None = None,
) -> Staged:
    if kind == "hub":
        request: dict[str, Any] = {
            "dataset": locations.checked_hub_id(location),
            "revision": locations.checked_revision(revision),
        }
    else:
        place = locations.checked_file_or_folder(location)
        request = {"place": str(place), "roots": [str(root) for root in locations.model_roots()]}
    if entry and kind == "hub":
        request |= {"train": list(entry.train), "held_out": list(entry.held_out)}
    with uploads.staging(owner) as staged:
        request |= {"verb": "fetch", "folder": str(staged.folder), "most_bytes": uploads.MAX_UPLOAD_BYTES}
        token = usable_hub_token(owner, project_of_new(owner)) if kind == "hub" else ""
        request |= {"progress": str(staged.folder / uploads.PROGRESS)}
        answer = child_requests.ask_importer(request, field, hub_token=token)
        staged.train, staged.held_out = answer["train"], answer["held_out"]
        staged.source = f"{request['dataset']} at {answer['commit']}" if kind == "hub" else Path(request["place"]).name
        staged.name = (entry.name if entry else Path(location).stem)[: values.MAX_NAME]
        staged.is_evaluation_only = bool(entry and entry.is_evaluation_only)
        _inspect(staged, field, field, entry, chosen)
    return staged


def _inspect(
    staged: Staged,
    field: str,
    held_out_field: str,
    entry: BuiltIn | None = None,
    chosen: Mapping[str, Any] | None = None,
) -> None:
    """Read the columns and first rows of the files, and guess what is not chosen. Error: FieldErrors at the file."""
    given = {part: value for part, field in GUESSED.items() if (value := (chosen or {}).get(field))}
    staged.found = child_requests.ask_importer({"verb": "look", "files": staged.train, "given": given}, field)
    if entry and set(entry.mapping.values()) <= {*staged.found["columns"], *EXTRACTIONS}:
        none = dict.fromkeys(COLUMNS, "") | {"extraction": "as_is"}
        staged.found["guess"] = none | {"id": staged.found["guess"]["id"]} | entry.mapping
        staged.found |= {"missing": {}, "notes": []}
    if entry:
        staged.found |= {"prompt_template": entry.prompt_template, "system_prompt": entry.system_prompt}
        staged.found |= {"verifier": entry.verifier, "licence": entry.licence, "held_out_share": entry.held_out_share}
    if staged.held_out:
        child_requests.ask_importer({"verb": "look", "files": staged.held_out}, held_out_field)
    staged.note()


# From staged files to a benchmark


def create_benchmark(
    owner: User, *, file: UploadedFile | None, held_out_file: UploadedFile | None = None, **fields: Any
) -> Benchmark:
    """Upload, map and check in one call; what is left out is guessed. Errors: FieldErrors; then nothing is left."""
    given = {name: value for name, value in fields.items() if value is not None}
    errors: list[FieldError] = []
    columns = mapping = None
    try:
        columns, mapping = checked_options(owner, _with_format(given), bool(held_out_file))
    except FieldErrors as refused:
        errors = refused.errors
    if file is None:
        errors.append(FieldError("missing", "Choose a file: JSONL, CSV or Parquet.", "file"))
    if errors or file is None or columns is None or mapping is None:
        raise FieldErrors(errors)
    with _uploaded(owner, file, held_out_file) as staged:
        if not {"question_field", "answer_field", "answer_extraction"} <= set(given):
            _inspect(staged, "file", "held_out_file", chosen=given)
            suggestions = with_suggestions(staged, given)
            columns, mapping = checked_options(owner, suggestions, bool(held_out_file))
        return _create(owner, staged, columns, mapping, is_upload=True)


def _with_format(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields, and the verifier that reads the chosen answer format."""
    readers = FORMAT_KINDS.get(str(fields.get("answer_extraction")), ())
    return {"verifier": readers[0], **fields} if readers else fields


def create_from_staged(owner: User, staged: Staged, fields: Mapping[str, Any]) -> Benchmark:
    """Create the benchmark. If it is refused, the staged files stay for another attempt. Error: FieldErrors."""
    columns, mapping = checked_options(owner, fields, bool(staged.held_out))
    if staged.found.get("generator") and columns["verifier"] != GENERATED:
        message = f"The answers of a generator are for the verifier {GENERATED}: choose it."
        raise FieldErrors.single("not_a_choice", message, "verifier")
    with uploads.still_there(staged):
        return _create(owner, staged, columns, mapping, is_upload=False)


def suggested(staged: Staged) -> dict[str, Any]:
    """The initial values of the mapping form, and the defaults of the API."""
    guess = staged.found["guess"]
    verifier = FORMAT_KINDS.get(guess["extraction"], ("math",))[0]
    ready = FORMAT_PROMPTS.get(guess["extraction"], "")
    usual = BY_READY_KEY[ready].prompt_template if ready else QUESTION
    template, system = staged.found.get("prompt_template", usual), staged.found.get("system_prompt", "")
    return {f"{part}_field": guess[part] for part in COLUMNS} | {
        "name": staged.name,
        "answer_extraction": guess["extraction"],
        "verifier": staged.found.get("verifier", verifier),
        "tolerance": "",
        "ready_prompt": ready_key(template, system),
        "prompt_template": template,
        "system_prompt": system,
        "extraction": "strict",
        "held_out_fraction": "0" if staged.is_evaluation_only else f"{staged.found.get('held_out_share') or 0.1:g}",
        **staged.found.get("own", {}),
    }


def with_suggestions(staged: Staged, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, and what is suggested for those left out; a ready prompt writes both texts."""
    left_out = ["prompt_template", "system_prompt"] if "ready_prompt" in settings else ["ready_prompt"]
    settings = _with_format(settings)
    values = suggested(staged)
    for part, message in staged.found["missing"].items():
        if not settings.get(f"{part}_field", values[f"{part}_field"]):
            raise FieldErrors.single("no_column", message, f"{part}_field")
    if settings.get("verifier", values["verifier"]) != values["verifier"]:  # what gave its rewards was of that verifier
        left_out += ["reward_function", "judge"]
    return {name: value for name, value in values.items() if name not in left_out} | dict(settings)


def checked_options(
    owner: User, fields: Mapping[str, Any], has_held_out_file: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """Columns of a benchmark and its mapping (workers.questions.columns.QuestionMapping), from a request's fields.

    Error: FieldErrors with all errors.
    """
    checker = values.Checker()
    named = checker.take("name", values.name, fields.get("name", ""))
    columns = _checked_mapping(checker, fields)
    extraction = checker.take(
        "answer_extraction", values.choice, fields.get("answer_extraction", "as_is"), list(EXTRACTIONS)
    )
    verifier = checker.take("verifier", values.choice, fields.get("verifier", "math"), VERIFIERS)
    tolerance = None
    readers = FORMAT_KINDS.get(extraction or "", ())
    if readers and verifier and verifier not in readers:
        named_format = "Tests are" if extraction == "tests" else f"The answer format {extraction} is"
        message = f"{named_format} for the verifier {' or '.join(readers)}: choose both or neither."
        checker.add("answer_extraction", "not_a_choice", message)
    if verifier == "numeric" and fields.get("tolerance") not in (None, ""):
        tolerance = checker.take("tolerance", values.bounded_number, fields["tolerance"], least=0, most=1)
    reading = checker.take(
        "extraction", values.choice, fields.get("extraction") or "strict", list(RESPONSE_EXTRACTIONS)
    )
    if verifier and reading and (message := not_flexible(verifier, reading)):
        checker.add("extraction", "not_a_choice", f"{message[0].upper()}{message[1:]}.")
    project = project_of_new(owner)
    named_function, named_judge = fields.get("reward_function", ""), fields.get("judge", "")
    function = checker.take("reward_function", chosen_source, RewardFunction, project, verifier, named_function)
    judge = checker.take("judge", chosen_source, Judge, project, verifier, named_judge)
    prompts = checker.take("ready_prompt", _with_ready_prompt, fields) or fields
    template = checker.take("prompt_template", _template, prompts.get("prompt_template", QUESTION))
    system = checker.take("system_prompt", _system_prompt, prompts.get("system_prompt") or "")
    share = fields.get("held_out_fraction", 0.1)
    fraction = checker.take("held_out_fraction", values.bounded_number, share, least=0, most=MAX_HELD_OUT_FRACTION)
    if named is not None:
        checker.take("name", values.check_name_is_free, Benchmark, project_of_new(owner), named)
    named, verifier, template, system, fraction, extraction, reading = checker.finish(
        named, verifier, template, system, fraction, extraction, reading
    )
    own = {"name": named, "verifier": verifier, "tolerance": tolerance, "extraction": reading}
    own |= {"prompt_template": template, "system_prompt": system, "reward_function": function, "judge": judge}
    own["held_out_fraction"] = 0.0 if has_held_out_file else fraction
    return own, columns | {"extraction": extraction}


def _checked_mapping(checker: values.Checker, fields: Mapping[str, Any]) -> dict[str, str]:
    columns = {part: _column(checker, part, fields) for part in COLUMNS}
    if columns["question"] and columns["question"] == columns["answer"]:
        checker.add("answer_field", "same_key", "The question and the answer need two different columns.")
    return columns


def _column(checker: values.Checker, part: str, fields: Mapping[str, Any]) -> str:
    """The name of a column; only those of question and answer are required."""
    field = f"{part}_field"
    name = fields.get(field, part)
    if part not in ("question", "answer") and name in ("", None):
        return ""
    return checker.take(field, values.text, name, MAX_COLUMN_NAME) or ""


def _with_ready_prompt(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields with the texts of the ready prompt that they name, if any; own texts beside it are an error."""
    key = fields.get("ready_prompt")
    if key in (None, ""):
        return fields
    ready = BY_READY_KEY[values.choice(key, BY_READY_KEY)]
    texts = {"prompt_template": ready.prompt_template, "system_prompt": ready.system_prompt}
    given = {name: str(fields.get(name) or "").replace("\r\n", "\n").strip() for name in texts}  # as a form sends it
    own = [name for name, text in texts.items() if given[name] not in ("", text.strip(), _DEFAULTS[name])]
    if own:
        message = f"The ready prompt {ready.key} has its own {own[0]}: leave yours out, or choose no ready prompt."
        raise values.ValueProblem("own_text", message)
    return {**fields, **texts}


def _template(value: object) -> str:
    text = _prompt_text(value)
    if QUESTION not in text:
        raise values.ValueProblem("no_question", "The template must contain {question}.")
    values.check_fields(text)
    return text


def _system_prompt(value: object) -> str:
    text = _prompt_text(value)
    if QUESTION in text:
        raise values.ValueProblem("has_question", "{question} is replaced in the prompt template only: move it there.")
    values.check_fields(text)
    return text


def _prompt_text(value: object) -> str:
    if not isinstance(value, str):
        raise values.ValueProblem("not_text", "Text is needed.")
    text = value.replace("\r\n", "\n").strip()
    if len(text) > MAX_TEMPLATE:
        raise values.ValueProblem("too_long", f"At most {MAX_TEMPLATE} characters; you gave {len(text)}.")
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise values.ValueProblem("bad_character", "NUL and unpaired surrogates are not allowed.")
    return text


def _create(
    owner: User, staged: Staged, columns: dict[str, Any], mapping: dict[str, str], *, is_upload: bool
) -> Benchmark:
    """Write the canonical files and the row, or neither. is_upload: errors belong to the file, else to the column."""
    folder = staged.folder / f"canonical-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    try:
        answer = _read(staged, columns, mapping, folder, is_upload)
        row = Benchmark(owner=owner, project=project_of_new(owner), **columns)
        row.edit_of = Benchmark.objects.filter(pk=staged.edit_of, project=row.project).first()
        row.num_train, row.num_held_out = answer["num_train"], answer["num_held_out"]
        row.sample, row.questions_sha, row.source = answer["sample"], answer["sha256"], staged.source[:1000]
        row.facts = {key: answer.get(key) for key in COUNTED} | {"mapping": mapping}
        row.facts |= {"is_evaluation_only": staged.is_evaluation_only, "licence": staged.found.get("licence", "")}
        row.facts |= {"generator": staged.found.get("generator", "")}
        _keep(row, folder, bool(staged.held_out))
    finally:
        uploads.discard(folder)
    staged.discard()
    return row


def _read(
    staged: Staged, columns: dict[str, Any], mapping: dict[str, str], folder: Path, is_upload: bool
) -> dict[str, Any]:
    """Import the files in the child process; returns its counts. Error: FieldErrors."""
    request = {
        "verb": "import",
        "train": staged.train,
        "held_out": staged.held_out,
        "mapping": mapping,
        "verifier": columns["verifier"],
        "held_out_fraction": columns["held_out_fraction"],
        "folder": str(folder),
        "progress": str(staged.folder / uploads.PROGRESS),
    }
    if is_upload:
        return child_requests.ask_importer(request, "file", "held_out_file")
    return _ask_at_columns(request)


def previewed(staged: Staged, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What the first rows become with these columns: `question`, `answer`, `num_odd` of `num_rows`, the first `odd`
    one, `notes`. Error: FieldErrors at the column that cannot be."""
    checker = values.Checker()
    columns = _checked_mapping(checker, fields)
    extraction = checker.take("answer_extraction", values.choice, fields.get("answer_extraction"), list(EXTRACTIONS))
    checker.finish(extraction)
    with uploads.still_there(staged):
        return _ask_at_columns(
            {"verb": "preview", "files": staged.train, "mapping": columns | {"extraction": extraction}}
        )


def _ask_at_columns(request: dict[str, Any]) -> dict[str, Any]:
    """The importer's answer. Error: FieldErrors at the column that the message names."""
    mapping = request["mapping"]
    try:
        return child_requests.ask_importer(request, "question_field")
    except FieldErrors as refused:
        places = {repr(name): f"{part}_field" for part in COLUMNS if (name := mapping[part])}
        errors = [
            replace(error, field=next((field for name, field in places.items() if name in error.message), error.field))
            for error in refused.errors
        ]
        raise FieldErrors(errors, refused.status) from None


def _keep(row: Benchmark, staged_folder: Path, has_eval_file: bool) -> None:
    """Write the row and move its files to the folder of its id; if the row is not committed, no folder is left."""
    folder: Path | None = None
    try:
        with values.unique_name(row.name):
            row.train_path = "-"  # unknown until the row has its id
            row.save(force_insert=True)
            folder = settings.BENCHMARKS_DIR / str(row.pk)
            row.train_path = str(folder / CANONICAL_TRAIN_FILE)
            row.eval_path = str(folder / CANONICAL_HELD_OUT_FILE) if has_eval_file else ""
            row.save(update_fields=["train_path", "eval_path"])
            uploads.keep(staged_folder, folder)
    except BaseException:
        if folder is not None:
            uploads.discard(folder)
        raise


def remove_files(benchmark: Benchmark) -> None:
    """Delete the benchmark's folder; files in any other place are kept."""
    folder = settings.BENCHMARKS_DIR / str(benchmark.pk)
    if Path(benchmark.train_path).parent == folder:
        uploads.discard(folder)
