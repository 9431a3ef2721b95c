"""The page of components, for people who develop the pages."""

from __future__ import annotations

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from hacrl_web.runs.models import State


class ExampleForm(forms.Form):
    """For the page of components."""

    name = forms.CharField(
        label="Name", help_text="Shown in lists.", widget=forms.TextInput(attrs={"class": "input"}), max_length=5
    )
    number = forms.FloatField(label="Learning rate", widget=forms.NumberInput(attrs={"class": "input"}))


@require_GET
def components(request: HttpRequest) -> HttpResponse:
    """Every component of the pages; for staff only."""
    if not request.user.is_staff:
        raise Http404
    context = {
        "states": State.values,
        "agent_names": ["Qwen3-1.7B-Base", "Llama3.2-1B-Instruct", *(f"agent {i}" for i in range(3, 8)), "n" * 80],
        "form": ExampleForm({"name": "ok", "number": "1,5"}),
        "checks": [
            {"label": "config.json is there", "status": "pass", "detail": "LlamaForCausalLM"},
            {"label": "A chat template", "status": "warn", "detail": "none: the bare prompt is used"},
            {"label": "Weights as *.safetensors", "status": "fail", "detail": "only pytorch_model.bin was found"},
            {"label": "Memory estimate", "status": "wait", "detail": ""},
        ],
    }
    return render(request, "components.html", context)
