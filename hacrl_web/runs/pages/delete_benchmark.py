"""The page that deletes a benchmark: it names what is lost before it asks."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from hacrl_web.accounts.projects import for_members, require_delete
from hacrl_web.registry.models import Benchmark
from hacrl_web.registry.pages.models_and_groups import require_page
from hacrl_web.runs.archive.delete_benchmark import delete_benchmark, deletion_summary
from hacrl_web.web.errors import FieldErrors


@for_members
@require_page
def benchmark_delete(request: HttpRequest, pk: int) -> HttpResponse:
    benchmark = get_object_or_404(Benchmark.objects.visible_to(request.user), pk=pk)
    errors, status = [], 200
    try:
        require_delete(request.user, benchmark)
        if request.method == "POST":
            name = benchmark.name
            delete_benchmark(benchmark)
            messages.info(request, f"{name} is deleted.")
            return redirect("registry:benchmark_list")
    except FieldErrors as refused:
        errors, status = refused.errors, refused.status
    context = {"benchmark": benchmark, "loss": deletion_summary(benchmark), "errors": errors}
    return render(request, "runs/archive/benchmark_delete.html", context, status=status)
