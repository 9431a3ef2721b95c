"""The button that runs the demo."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from hacrl_web.demo.tasks import start_demo
from hacrl_web.web.errors import FieldErrors


@require_POST
def demo_start(request: HttpRequest) -> HttpResponse:
    """Start the demo and go to Home, which shows how far it is."""
    try:
        start_demo(request.user)
        messages.info(request, "The demo starts as soon as a worker is free.")
    except FieldErrors as refused:
        messages.error(request, refused.text)
    return redirect("home")
