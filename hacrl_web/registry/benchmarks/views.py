"""Pages of benchmarks: the list, the two steps of adding one, and its own page. Views parse, call and render."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from pydantic import Field

from hacrl_web.accounts.roles.projects import for_members
from hacrl_web.registry.base.forms import ServiceForm
from hacrl_web.registry.base.locations import model_roots
from hacrl_web.registry.base.pages import require_page, versions_page
from hacrl_web.registry.benchmarks import service, uploads
from hacrl_web.registry.benchmarks.built_in import BUILT_IN
from hacrl_web.registry.benchmarks.child_requests import ask_verifier
from hacrl_web.registry.benchmarks.forms import GeneratorForm, MappingForm, SourceForm, UploadForm
from hacrl_web.registry.benchmarks.questions import PAGE_SIZE, LineNumber, QuestionFilter, read_page, read_row
from hacrl_web.registry.benchmarks.ready_prompts import READY_PROMPTS
from hacrl_web.registry.benchmarks.uploads import Staged
from hacrl_web.registry.models import Benchmark
from hacrl_web.web.errors import FieldErrors
from workers.contract.generators.generator import INSTALL, MODULE


@require_safe
def benchmark_list(request: HttpRequest) -> HttpResponse:
    rows = Benchmark.objects.listed_for(request.user).select_related("owner")
    return render(request, "registry/benchmarks/benchmark_list.html", versions_page(request, rows))


# Adding one: first the files, then what their columns mean


@for_members
@require_page
def benchmark_create(request: HttpRequest) -> HttpResponse:
    """The page with every way to add files; a POST uploads them."""
    if request.method != "POST":
        return _add_page(request, UploadForm(), SourceForm())
    form = UploadForm(request.POST)
    files = {field: request.FILES.get(field) for field in ("file", "held_out_file")}
    return _submit(
        request,
        form,
        lambda: _mapping_url(service.stage_upload(request.user, **files)),
        lambda status: _add_page(request, form, SourceForm(), status),
    )


@require_POST
def benchmark_fetch(request: HttpRequest) -> HttpResponse:
    """Files that are not uploaded: `built_in`; the fields of a generator; or `kind`, `location` and `revision`."""
    generator = GeneratorForm(request.POST) if "more" in request.POST else None
    form = generator or SourceForm(request.POST)

    def stage() -> str:
        if "built_in" in request.POST:
            return _mapping_url(service.stage_built_in(request.user, request.POST["built_in"]))
        if generator:
            return _mapping_url(service.stage_from(request.user, kind="generator", location=generator.generator))
        fields = {field: request.POST.get(field, "") for field in form.fields}
        return _mapping_url(service.stage_from(request.user, **fields))

    return _submit(request, form, stage, lambda status: _add_page(request, UploadForm(), form, status))


@require_POST
def benchmark_copy(request: HttpRequest, pk: int) -> HttpResponse:
    """To the mapping form with the questions and options of a benchmark; the benchmark stays as it is."""
    benchmark = get_object_or_404(Benchmark.objects.visible_to(request.user), pk=pk)
    try:
        staged = service.stage_copy(request.user, benchmark)
    except FieldErrors as refused:
        messages.error(request, refused.text)
        return redirect(benchmark)
    return redirect(_mapping_url(staged))


def _add_page(request: HttpRequest, form: ServiceForm, source: ServiceForm, status: int = 200) -> HttpResponse:
    is_generator = isinstance(source, GeneratorForm)
    context = {
        "form": form,
        "built_in": BUILT_IN,
        "roots": model_roots(),
        "missing": None if find_spec(MODULE) else INSTALL,
    }
    context |= {"source_form": SourceForm() if is_generator else source}
    context |= {"generator_form": source if is_generator else GeneratorForm()}
    return render(request, "registry/benchmarks/benchmark_form.html", context, status=status)


def _mapping_url(staged: Staged) -> str:
    return reverse("registry:benchmark_map", args=[staged.token])


@for_members
@require_page
def benchmark_map(request: HttpRequest, staged: str) -> HttpResponse:
    """The columns of the files and what each means; a POST makes the benchmark."""
    upload = _staged_or_404(request, staged)
    values = request.POST.dict() if request.method == "POST" else service.suggested(upload)
    form = MappingForm(values, columns=upload.found["columns"], has_held_out_file=bool(upload.held_out))
    if request.method != "POST":
        return _map_page(request, upload, form)
    return _submit(
        request,
        form,
        lambda: service.create_from_staged(request.user, upload, values).get_absolute_url(),
        lambda status: _map_page(request, upload, form, status),
    )


@require_POST
def benchmark_preview(request: HttpRequest, staged: str) -> JsonResponse:
    """The first question as the chosen columns give it, or why they cannot; nothing is stored."""
    try:
        return JsonResponse(service.previewed(_staged_or_404(request, staged), request.POST.dict()))
    except FieldErrors as refused:
        return JsonResponse(refused.as_body(), status=refused.status)


def _map_page(request: HttpRequest, staged: Staged, form: MappingForm, status: int = 200) -> HttpResponse:
    columns = staged.found["shown"]
    rows = [[row.get(name, "") for name in columns] for row in staged.found["rows"]]
    context = {"staged": staged, "form": form, "shown": columns, "rows": rows}
    context["ready_prompts"] = {one.key: asdict(one) for one in READY_PROMPTS}
    context["num_hidden"] = len(staged.found["columns"]) - len(columns)
    return render(request, "registry/benchmarks/benchmark_map.html", context, status=status)


def _submit(
    request: HttpRequest, form: ServiceForm, act: Callable[[], str], page: Callable[[int], HttpResponse]
) -> HttpResponse:
    """Redirect to the address that `act` returns, or show the form with its errors; JSON for the page's own script."""
    wants_json = request.headers.get("Accept") == "application/json"
    try:
        address = act()
    except FieldErrors as refused:
        if wants_json:
            return JsonResponse({"errors": [error.as_dict() for error in refused.errors]}, status=refused.status)
        refused.add_to(form)
        return page(refused.status)
    return JsonResponse({"location": address}) if wants_json else redirect(address)


@require_POST
def benchmark_discard(request: HttpRequest, staged: str) -> HttpResponse:
    _staged_or_404(request, staged).discard()
    return redirect("registry:benchmark_create")


@require_safe
def benchmark_progress(request: HttpRequest) -> HttpResponse:
    """Progress of reading this user's newest files: `phase`, `share`, `rows`; empty before the first report."""
    newest = uploads.newest(request.user)
    return JsonResponse(newest.progress() if newest else {})


def _staged_or_404(request: HttpRequest, token: str) -> Staged:
    upload = uploads.find_upload(request.user, token)
    if upload is None:
        raise Http404
    return upload


# One benchmark


class BenchmarkQuery(QuestionFilter):
    """try: line of the question whose answer the verifier is to check."""

    try_line: LineNumber | None = Field(None, alias="try")


@require_safe
def benchmark_detail(request: HttpRequest, pk: int) -> HttpResponse:
    return _detail_page(request, _benchmark_or_404(request, pk))


@require_POST
def benchmark_try(request: HttpRequest, pk: int) -> HttpResponse:
    """The verifier's verdict on `response` against `gold`; a part of the page for htmx, else the page."""
    benchmark = _benchmark_or_404(request, pk)
    answer = {key: request.POST.get(key, "") for key in ("gold", "response")}
    context: dict[str, Any] = {"answer": answer}
    status = 200
    try:
        context["verdict"] = ask_verifier(benchmark, **answer)
    except FieldErrors as refused:
        context["try_errors"], status = refused.errors, refused.status
    if getattr(request, "htmx", False):
        return render(request, "registry/benchmarks/_verdict.html", context | {"benchmark": benchmark}, status=status)
    return _detail_page(request, benchmark, status, **context)


def _benchmark_or_404(request: HttpRequest, pk: int) -> Benchmark:
    return get_object_or_404(Benchmark.objects.visible_to(request.user), pk=pk)


def _detail_page(request: HttpRequest, benchmark: Benchmark, status: int = 200, **more: Any) -> HttpResponse:
    query = BenchmarkQuery.read(request.GET).of(benchmark)
    context: dict[str, Any] = {
        "benchmark": benchmark,
        "filter": query,
        "facts": benchmark.facts,
        "mapping": benchmark.facts.get("mapping"),
    }
    try:
        context["page"] = page = read_page(benchmark, query)
        context["links"] = _links(query, page.next_start)
        if query.try_line is not None:
            context["question"] = read_row(benchmark, query.file, query.try_line)
    except (OSError, ValueError, KeyError):
        context["is_gone"] = True
    question = context.get("question")
    context["answer"] = {"gold": question.answer if question else "", "response": ""}
    return render(request, "registry/benchmarks/benchmark_detail.html", context | more, status=status)


def _links(query: BenchmarkQuery, next_start: int | None) -> dict[str, str]:
    """Query strings of this page, the next and the previous one, all without `try`."""
    links = {"here": query.encode(**{"try": None})}
    if next_start is not None:
        links["next"] = query.encode(start=next_start, **{"try": None})
    if query.start:
        # Where the previous page of a search began is not known, so it goes back to its first.
        before = 0 if query.is_search else max(0, query.start - PAGE_SIZE)
        links["before"] = query.encode(start=before, **{"try": None})
    return links
