"""API of benchmarks, with the services, checks and messages of the pages."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, File, Form, ModelSchema, Query, Router, Schema, Status
from ninja.files import UploadedFile

from hacrl_web.registry.benchmarks import service
from hacrl_web.registry.benchmarks.built_in import BUILT_IN
from hacrl_web.registry.benchmarks.child_requests import ask_verifier
from hacrl_web.registry.benchmarks.questions import QuestionFilter, QuestionRow, read_page
from hacrl_web.registry.benchmarks.ready_prompts import READY_PROMPTS
from hacrl_web.registry.benchmarks.uploads import Staged
from hacrl_web.registry.models import Benchmark
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import EVERY_FIELD, PageOf, StrictBody

router = Router(tags=["benchmarks"])


class BenchmarkIn(Schema):
    """Fields beside the files. What is left out is guessed from the columns, as on the page.

    reward_function, judge: of the verifier of that kind, its name or id.
    ready_prompt: a key of GET /benchmarks/ready-prompts, in place of prompt_template and system_prompt.
    """

    name: str
    question_field: str | None = None
    answer_field: str | None = None
    answer_extraction: str | None = None
    subject_field: str | None = None
    difficulty_field: str | None = None
    id_field: str | None = None
    verifier: str | None = None
    tolerance: str | None = None
    ready_prompt: str | None = None
    prompt_template: str | None = None
    system_prompt: str | None = None
    held_out_fraction: str | None = None
    extraction: str | None = None
    reward_function: str | None = None
    judge: str | None = None


class OptionsIn(StrictBody):
    """What is left out is suggested, or stays as it is."""

    name: str = ""
    held_out_fraction: float | None = None
    extraction: str | None = None
    ready_prompt: str | None = None


class BuiltInIn(OptionsIn):
    """A key of the list; `location`: a local copy to use instead of the hub's files."""

    built_in: str
    location: str = ""


class BenchmarkCopyIn(OptionsIn):
    """What is left out stays as it is."""

    verifier: str | None = None
    tolerance: float | None = None
    prompt_template: str | None = None
    system_prompt: str | None = None
    reward_function: str | None = None


class FetchIn(BenchmarkCopyIn):
    """`kind`: hub; local for a file or folder below the model folders; generator for questions of reasoning-gym, with
    a `location` such as chain_sum?level=2&seed=7. A column that is left out is guessed.
    """

    kind: str = "hub"
    location: str
    revision: str = ""
    question_field: str | None = None
    answer_field: str | None = None
    answer_extraction: str | None = None
    subject_field: str | None = None
    difficulty_field: str | None = None
    id_field: str | None = None
    judge: str | None = None


class BenchmarkOut(ModelSchema):
    """audit: what the reward audit compares its rewards with.  edit_of: the id of the version before.

    facts: of its files: `mapping`, the columns that were chosen or guessed; `notes`, sentences about the guess;
    `left_out`, how many rows could not be used, and the places and reasons of the first.
    """

    model_config = EVERY_FIELD
    system_prompt: str
    source: str
    questions_sha: str
    id: int
    name: str
    audit: str
    edit_of: int | None = Field(alias="edit_of_id")
    reward_function_id: int | None
    judge_id: int | None
    facts: dict[str, Any]

    class Meta:
        model = Benchmark
        exclude = ("project", "owner", "edit_of", "train_path", "eval_path", "sample", "reward_function", "judge")


class BuiltInOut(Schema):
    key: str
    name: str
    about: str
    dataset: str
    config: str
    split: str
    licence: str
    verifier: str
    mapping: dict[str, str]
    ready_prompt: str
    prompt_template: str
    system_prompt: str


class ReadyPromptOut(Schema):
    """verifiers: those that read answers in the form that it asks for."""

    key: str
    name: str
    prompt_template: str
    system_prompt: str
    verifiers: list[str]


class QuestionPageOut(Schema):
    """next_start: the line at which the next page begins; null after the last page."""

    items: list[QuestionRow]
    next_start: int | None


class QuestionListQuery(Schema):
    file: str = Query("train", pattern="^(train|held_out)$")
    start: int = Query(0, ge=0, le=100_000_000)
    q: str = Query("", max_length=200)
    subject: str = Query("", max_length=200)
    difficulty: str = Query("", max_length=200)


class AnswerIn(StrictBody):
    gold: str = ""  # the service reports a missing text, after the benchmark is known to be visible
    response: str = ""


class VerdictOut(Schema):
    """reward: 1 correct, 0 incorrect, null unscorable."""

    reward: float | None
    reason: str
    extracted: str | None
    seconds: float


def _benchmark(request: HttpRequest, pk: int) -> Benchmark:
    return get_object_or_404(Benchmark.objects.visible_to(request.user), pk=pk)


@router.post("/benchmarks", response={201: BenchmarkOut}, summary="Upload a benchmark")
def create_benchmark(
    request: HttpRequest,
    payload: Form[BenchmarkIn],
    file: File[UploadedFile],
    held_out_file: UploadedFile | None = File(None),  # noqa: B008
) -> Any:
    fields = payload.dict()
    return Status(201, service.create_benchmark(request.user, file=file, held_out_file=held_out_file, **fields))


@router.get("/benchmarks", response=PageOf[BenchmarkOut])
def list_benchmarks(request: HttpRequest, query: Query[ListQuery]) -> Any:
    return listing(Benchmark.objects.visible_to(request.user), query)


@router.get("/benchmarks/built-in", response=list[BuiltInOut])
def list_built_in(request: HttpRequest) -> Any:
    return BUILT_IN


@router.get("/benchmarks/ready-prompts", response=list[ReadyPromptOut])
def list_ready_prompts(request: HttpRequest) -> Any:
    return READY_PROMPTS


@router.post("/benchmarks/built-in", response={201: BenchmarkOut})
def create_built_in(request: HttpRequest, payload: BuiltInIn) -> Any:
    """Load one of the built-in benchmarks with its own mapping."""
    staged = service.stage_built_in(request.user, payload.built_in, payload.location)
    return _create_from(request, staged, payload.dict(exclude={"built_in", "location"}))


def _create_from(request: HttpRequest, staged: Staged, changes: dict[str, Any]) -> Status[Benchmark]:
    """Make a benchmark with the suggested mapping, changed by the values that are not empty."""
    try:
        settings = {key: value for key, value in changes.items() if value not in (None, "")}
        fields = service.with_suggestions(staged, settings)
        return Status(201, service.create_from_staged(request.user, staged, fields))
    finally:
        staged.discard()


@router.post(
    "/benchmarks/fetch",
    response={201: BenchmarkOut},
    summary="Create a benchmark from the hub, a folder or a generator",
)
def fetch_benchmark(request: HttpRequest, payload: FetchIn) -> Any:
    """The three steps of the form in one request: fetch, inspect, create."""
    if payload.kind not in (kinds := ("hub", "local", "generator")):
        raise FieldErrors.single("not_a_choice", f"Choose one of: {', '.join(kinds)}.", "kind")
    place = payload.dict(include={"kind", "location", "revision"})
    staged = service.stage_from(request.user, **place, chosen=payload.dict())
    return _create_from(request, staged, payload.dict(exclude=set(place)))


@router.post(
    "/benchmarks/{int:pk}/copy",
    response={201: BenchmarkOut},
    summary="Create a benchmark of the same questions with other options; the old one and its runs stay as they are",
)
def copy_benchmark(request: HttpRequest, pk: int, payload: BenchmarkCopyIn) -> Any:
    """A newer version, as a benchmark of its own. The one that is copied, and its runs, stay as they are."""
    staged = service.stage_copy(request.user, _benchmark(request, pk))
    return _create_from(request, staged, payload.dict())


@router.get("/benchmarks/{int:pk}", response=BenchmarkOut)
def get_benchmark(request: HttpRequest, pk: int) -> Any:
    return _benchmark(request, pk)


@router.get("/benchmarks/{int:pk}/questions", response=QuestionPageOut)
def list_questions(request: HttpRequest, pk: int, query: Query[QuestionListQuery]) -> Any:
    benchmark = _benchmark(request, pk)
    try:
        page = read_page(benchmark, QuestionFilter(**query.dict()).of(benchmark))
    except (OSError, ValueError, KeyError):
        message = "The question files of this benchmark cannot be read."
        raise FieldErrors.single("unreadable", message, status=409) from None
    return {"items": page.rows, "next_start": page.next_start}


@router.post("/benchmarks/{int:pk}/try", response=VerdictOut)
def try_answer(request: HttpRequest, pk: int, payload: AnswerIn) -> Any:
    return ask_verifier(_benchmark(request, pk), gold=payload.gold, response=payload.response)
