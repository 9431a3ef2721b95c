"""Pages of benchmarks: the list, the two steps of adding one, and its own page. Views parse, call and render."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from hacrl_web.accounts.projects import for_members
from hacrl_web.registry.benchmarks import benchmarks, try_answer, uploads
from hacrl_web.registry.benchmarks.built_in import BUILT_IN
from hacrl_web.registry.benchmarks.importer import compare_with
from hacrl_web.registry.benchmarks.questions import PAGE_SIZE, QuestionSearch, read_page, read_row
from hacrl_web.registry.benchmarks.uploads import Staged
from hacrl_web.registry.locations import model_roots
from hacrl_web.registry.models import Benchmark
from hacrl_web.registry.pages.forms import MappingForm, ServiceForm, SourceForm, UploadForm
from hacrl_web.registry.pages.models_and_groups import page_of, require_page
from hacrl_web.web.errors import FieldErrors

UNREADABLE = (OSError, ValueError, KeyError)
MAX_OTHERS = 500  # benchmarks to choose from


@require_safe
def benchmark_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, Benchmark.objects.listed_for(request.user).select_related("owner"))
    return render(request, "registry/benchmark_list.html", {"page": page})


# Adding one: first the files, then what their columns mean


@for_members
@require_page
def benchmark_create(request: HttpRequest) -> HttpResponse:
    """The ways in; a POST uploads files."""
    form = UploadForm(request.POST if request.method == "POST" else None)
    if request.method != "POST":
        return _add_page(request, form, SourceForm())
    files = {field: request.FILES.get(field) for field in ("file", "held_out_file")}
    try:
        return _go_on(request, benchmarks.stage_upload(request.user, **files))
    except FieldErrors as refused:
        if _wants_json(request):
            return _refusal(refused)
        form.add_refusal(refused)
        return _add_page(request, form, SourceForm(), refused.status)


@require_POST
def benchmark_fetch(request: HttpRequest) -> HttpResponse:
    """Files that are not uploaded: `built_in`, or `kind`, `location` and `revision`."""
    form = SourceForm(request.POST)
    fields = {field: request.POST.get(field, "") for field in form.fields}
    try:
        if "built_in" in request.POST:
            staged = benchmarks.stage_built_in(request.user, request.POST["built_in"])
        else:
            staged = benchmarks.stage_from(request.user, **fields)
        return _go_on(request, staged)
    except FieldErrors as refused:
        if _wants_json(request):
            return _refusal(refused)
        form.add_refusal(refused)
        return _add_page(request, UploadForm(), form, refused.status)


def _add_page(request: HttpRequest, form: ServiceForm, source: ServiceForm, status: int = 200) -> HttpResponse:
    context = {"form": form, "source_form": source, "built_in": BUILT_IN, "roots": model_roots()}
    return render(request, "registry/benchmark_form.html", context, status=status)


@for_members
@require_page
def benchmark_map(request: HttpRequest, staged: str) -> HttpResponse:
    """What was found in the files, and what it means; a POST makes the benchmark."""
    upload = _staged_or_404(request, staged)
    values = request.POST.dict() if request.method == "POST" else benchmarks.suggested(upload)
    form = MappingForm(values, columns=upload.found["columns"], has_held_out_file=bool(upload.held_out))
    if request.method != "POST":
        return _map_page(request, upload, form)
    try:
        return _redirect(request, benchmarks.create_from_staged(request.user, upload, values).get_absolute_url())
    except FieldErrors as refused:
        if _wants_json(request):
            return _refusal(refused)
        form.add_refusal(refused)
        return _map_page(request, upload, form, refused.status)


def _map_page(request: HttpRequest, staged: Staged, form: MappingForm, status: int = 200) -> HttpResponse:
    columns = staged.found["shown"]
    rows = [[row.get(name, "") for name in columns] for row in staged.found["rows"]]
    context = {"staged": staged, "form": form, "shown": columns, "rows": rows}
    context["num_hidden"] = len(staged.found["columns"]) - len(columns)
    return render(request, "registry/benchmark_map.html", context, status=status)


@require_POST
def benchmark_discard(request: HttpRequest, staged: str) -> HttpResponse:
    _staged_or_404(request, staged).discard()
    return redirect("registry:benchmark_create")


@require_safe
def benchmark_progress(request: HttpRequest) -> HttpResponse:
    """How far the reading of this user's newest files is: `phase`, `share`, `rows`; empty while nothing is told."""
    newest = uploads.newest(request.user)
    return JsonResponse(newest.progress() if newest else {})


def _staged_or_404(request: HttpRequest, token: str) -> Staged:
    upload = uploads.find_upload(request.user, token)
    if upload is None:
        raise Http404
    return upload


def _go_on(request: HttpRequest, staged: Staged) -> HttpResponse:
    return _redirect(request, reverse("registry:benchmark_map", args=[staged.token]))


def _wants_json(request: HttpRequest) -> bool:
    """A page's own script sends the form and shows the answer itself."""
    return request.headers.get("Accept") == "application/json"


def _redirect(request: HttpRequest, address: str) -> HttpResponse:
    return JsonResponse({"location": address}) if _wants_json(request) else redirect(address)


def _refusal(refused: FieldErrors) -> HttpResponse:
    return JsonResponse({"errors": [error.as_dict() for error in refused.errors]}, status=refused.status)


# One benchmark


@require_safe
def benchmark_detail(request: HttpRequest, pk: int) -> HttpResponse:
    return _detail_page(request, _benchmark_or_404(request, pk))


@require_POST
def benchmark_try(request: HttpRequest, pk: int) -> HttpResponse:
    """The verifier's verdict on `response` against `gold`; a part of the page for htmx, else the page."""
    benchmark = _benchmark_or_404(request, pk)
    form = {key: request.POST.get(key, "") for key in ("gold", "response")}
    context: dict[str, Any] = {"tried": form}
    status = 200
    try:
        context["verdict"] = try_answer.ask_verifier(benchmark, **form)
    except FieldErrors as refused:
        context["try_errors"], status = refused.errors, refused.status
    if getattr(request, "htmx", False):
        return render(request, "registry/_verdict.html", context | {"benchmark": benchmark}, status=status)
    return _detail_page(request, benchmark, status, **context)


@require_safe
def benchmark_overlap(request: HttpRequest, pk: int) -> HttpResponse:
    """How many questions of this benchmark also stand in `other`."""
    benchmark = _benchmark_or_404(request, pk)
    beside = Benchmark.objects.filter(project=benchmark.project_id).exclude(pk=pk)
    context: dict[str, Any] = {"benchmark": benchmark, "others": beside[:MAX_OTHERS]}
    status = 200
    if other_id := request.GET.get("other", ""):
        number = int(other_id) if other_id.isascii() and other_id.isdigit() and len(other_id) < 19 else -1
        context["other"] = other = get_object_or_404(beside, pk=number)
        try:
            context["overlap"] = compare_with(benchmark, other)
        except FieldErrors as refused:
            context["errors"], status = refused.errors, refused.status
    return render(request, "registry/benchmark_overlap.html", context, status=status)


def _benchmark_or_404(request: HttpRequest, pk: int) -> Benchmark:
    return get_object_or_404(Benchmark.objects.visible_to(request.user), pk=pk)


def _detail_page(request: HttpRequest, benchmark: Benchmark, status: int = 200, **more: Any) -> HttpResponse:
    query = wanted_of(request.GET, benchmark)
    context: dict[str, Any] = {
        "benchmark": benchmark,
        "wanted": query,
        "facts": benchmark.facts,
        "mapping": benchmark.facts.get("mapping"),
    }
    try:
        page = read_page(benchmark, query)
        context["page"] = page
        context["links"] = _links(request, query, page.next_start)
        context["chosen"] = _chosen(request, benchmark, query)
    except UNREADABLE:
        context["is_gone"] = True
    context["tried"] = {"gold": context["chosen"].answer if context.get("chosen") else "", "response": ""}
    return render(request, "registry/benchmark_detail.html", context | more, status=status)


def wanted_of(parameters: Any, benchmark: Benchmark) -> QuestionSearch:
    """What a query string asks for; what cannot be used is left out."""
    return QuestionSearch(
        is_held_out_file=parameters.get("file") == "held_out" and bool(benchmark.eval_path),
        start=_line(parameters.get("start")),
        text=parameters.get("q", "").replace("\x00", "").strip()[:200],
        subject=parameters.get("subject", "").replace("\x00", "")[:200],
        difficulty=parameters.get("difficulty", "").replace("\x00", "")[:200],
    )


def _line(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else 0


def _chosen(request: HttpRequest, benchmark: Benchmark, query: QuestionSearch) -> Any:
    """The question whose answer is to be tried."""
    if "try" not in request.GET:
        return None
    return read_row(benchmark, is_held_out_file=query.is_held_out_file, line=_line(request.GET.get("try")))


def _links(request: HttpRequest, query: QuestionSearch, next_start: int | None) -> dict[str, str]:
    """Query strings of the next and the previous page, and of this one without its place."""
    parameters = {key: value for key in ("file", "q", "subject", "difficulty") if (value := request.GET.get(key))}
    links = {"kept": urlencode(parameters | ({"start": str(query.start)} if query.start else {}))}
    if next_start is not None:
        links["next"] = urlencode(parameters | {"start": str(next_start)})
    if query.start:
        # A search goes back to its beginning: where its page before began is not known.
        before = 0 if query.is_search else max(0, query.start - PAGE_SIZE)
        links["before"] = urlencode(parameters | {"start": str(before)})
    return links
