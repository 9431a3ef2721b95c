"""Page of a user's API tokens: list, create, revoke."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from hacrl_web.accounts.models import ApiToken
from hacrl_web.accounts.tokens.service import LIFETIMES_DAYS, MAX_NAME, SCOPES, USUAL_DAYS, make_token
from hacrl_web.web.errors import FieldErrors

MAX_ROWS = 200


class TokenForm(forms.Form):
    name = forms.CharField(
        max_length=MAX_NAME,
        help_text="What will use it, such as: nightly sweeps on node 3.",
        widget=forms.TextInput(attrs={"class": "input", "autocomplete": "off"}),
    )
    days = forms.TypedChoiceField(
        label="Expires after",
        coerce=int,
        choices=[(days, f"{days} days") for days in LIFETIMES_DAYS],
        initial=USUAL_DAYS,
        widget=forms.Select(attrs={"class": "input"}),
    )
    scopes = forms.MultipleChoiceField(
        label="Scopes",
        choices=[(name, f"{name}: {text}") for name, text in SCOPES.items()],
        initial=["read"],
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one."},
    )


@sensitive_variables("text")
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    """The list and a form. The answer to the form is the only page that shows the text of the token."""
    form = TokenForm(request.POST if request.method == "POST" else None)
    new_token: dict[str, Any] = {}
    if request.method == "POST" and form.is_valid():
        try:
            token, text = make_token(request.user, **form.cleaned_data)
            new_token = {"new_token": token, "text": text}
            form = TokenForm()
        except FieldErrors as refusal:
            refusal.add_to(form)
    rows = ApiToken.objects.visible_to(request.user)[:MAX_ROWS]
    context = {"form": form, "tokens": rows, "address": request.build_absolute_uri("/").rstrip("/"), **new_token}
    return render(request, "accounts/tokens/tokens.html", context, status=422 if form.errors else 200)


@require_POST
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(ApiToken.objects.visible_to(request.user), pk=pk)
    token.revoke()
    messages.success(request, f"The token “{token.name}” is revoked.")
    return redirect("accounts:tokens")
