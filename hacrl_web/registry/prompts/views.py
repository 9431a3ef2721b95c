"""The page of what each agent of a group reads for a question; the new-run form shows its part too."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from pydantic import Field

from hacrl_web.registry.benchmarks.questions import LineNumber
from hacrl_web.registry.models import AgentGroup, Benchmark
from hacrl_web.registry.prompts.service import preview_prompts
from hacrl_web.web.errors import FieldError, FieldErrors
from hacrl_web.web.page_query import PageQuery, RowId

MAX_CHOICES = 500


class PromptQuery(PageQuery):
    """number: of the question in its file, from 1."""

    group: RowId | None = None
    benchmark: RowId | None = None
    file: Literal["train", "held_out"] = "train"
    number: LineNumber = Field(1, ge=1)


@require_safe
def prompt_page(request: HttpRequest) -> HttpResponse:
    """Choices of group, benchmark and question, and the prompts; for htmx the prompts alone."""
    query = PromptQuery.read(request.GET)
    groups, benchmarks = AgentGroup.objects.visible_to(request.user), Benchmark.objects.visible_to(request.user)
    group, benchmark = groups.filter(pk=query.group).first(), benchmarks.filter(pk=query.benchmark).first()
    context: dict[str, Any] = {"query": query, "group": group, "benchmark": benchmark}
    status = 200
    try:
        if group and benchmark:
            context["preview"] = preview_prompts(group, benchmark, query.number - 1, query.file, user=request.user)
    except FieldErrors as refused:
        context["errors"], status = refused.errors, refused.status
    if request.headers.get("HX-Request") == "true":
        if not (group and benchmark):
            missing = "Choose an agent group and a benchmark first."
            context["errors"] = [FieldError("missing", missing, None)]
        return render(request, "registry/prompts/_prompts.html", context)
    context["groups"] = AgentGroup.objects.listed_for(request.user)[:MAX_CHOICES]
    context["benchmarks"] = Benchmark.objects.listed_for(request.user)[:MAX_CHOICES]
    return render(request, "registry/prompts/prompt_page.html", context, status=status)
