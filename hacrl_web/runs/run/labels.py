"""Tags and notes of a run: read from a form or from JSON, checked, stored. The audit log records who wrote them."""

from __future__ import annotations

import unicodedata
from typing import Any

from django.db.models import QuerySet

from hacrl_web.registry.base import values
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors

MAX_TAGS = 10
MAX_TAG = 40
MAX_NOTES = 4000


def set_labels(run: Run, tags: object, notes: object) -> None:
    """tags: a list of texts.  notes: a text of several lines. Error: FieldErrors, and nothing is written."""
    new_tags, new_notes = checked_labels(tags, notes)
    Run.objects.filter(pk=run.pk).update(tags=new_tags, notes=new_notes)
    run.refresh_from_db()


def checked_labels(tags: object, notes: object) -> tuple[str, str]:
    """Tags and notes as a run stores them. Error: FieldErrors."""
    checker = values.Checker()
    new_tags = checker.take("tags", _tags, tags)
    new_notes = checker.take("notes", _notes, notes)
    checker.finish()
    return new_tags or "", new_notes or ""


def split_tags(text: str) -> list[str]:
    """The tags of a form's field, separated by commas."""
    return [part for part in text.split(",") if part.strip()]


def _tags(tags_in_request: object) -> str:
    """Tags as Run.tags stores them: lower case, each once, in alphabetical order. Errors: ValueProblem, FieldErrors."""
    if not isinstance(tags_in_request, list):
        raise values.ValueProblem("not_a_list", "A list of tags is needed.")
    if len(tags_in_request) > 10 * MAX_TAGS:
        raise values.ValueProblem("too_many", f"At most {MAX_TAGS} tags.")
    tags = sorted({_tag(one) for one in tags_in_request})
    if len(tags) > MAX_TAGS:
        raise values.ValueProblem("too_many", f"At most {MAX_TAGS} tags; you gave {len(tags)}.")
    return f",{','.join(tags)}," if tags else ""


def _tag(value: object) -> str:
    try:
        tag = values.text(value, MAX_TAG).lower()
    except values.ValueProblem as problem:
        quote = f" Tag {value[:MAX_TAG]!r}." if isinstance(value, str) and value.strip() else ""
        raise FieldErrors.single(problem.code, f"{problem}{quote}", "tags") from None
    if "," in tag:
        raise values.ValueProblem("bad_character", "A tag has no comma: commas separate tags.")
    return tag[:MAX_TAG]  # a few capitals are longer in lower case


def _notes(value: object) -> str:
    if not isinstance(value, str):
        raise values.ValueProblem("not_text", "Text is needed.")
    text = value.replace("\r\n", "\n").replace("\r", "\n").strip()
    if len(text) > MAX_NOTES:
        raise values.ValueProblem("too_long", f"At most {MAX_NOTES} characters; you gave {len(text)}.")
    odd = (letter for letter in text if unicodedata.category(letter) in ("Cc", "Cs") or letter in values.BIDI_CONTROLS)
    if any(letter not in "\n\t" for letter in odd):
        raise values.ValueProblem("bad_character", "Control characters are not allowed.")
    return text


def labels_of(run: Run) -> dict[str, Any]:
    """The labels of a run as the API returns and accepts them."""
    return {"tags": run.tag_list, "notes": run.notes}


def tags_of(runs: QuerySet[Run]) -> list[str]:
    """All tags that these runs have."""
    texts = runs.exclude(tags="").order_by().values_list("tags", flat=True).distinct()
    return sorted({tag for tags in texts for tag in tags.split(",") if tag})
