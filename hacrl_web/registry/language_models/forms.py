"""The form that registers a language model; the service checks its values."""

from __future__ import annotations

from django import forms

from hacrl_web.registry.base.forms import INPUT, ServiceForm, text_field
from hacrl_web.registry.base.values import MAX_NAME
from hacrl_web.registry.models import LanguageModel


class RegisterForm(ServiceForm):
    kind = forms.ChoiceField(
        label="From",
        choices=LanguageModel.Kind.choices,
        initial=LanguageModel.Kind.LOCAL,
        widget=forms.Select(attrs=INPUT),
    )
    location = text_field(
        "Location", 1000, "Absolute path of the folder with config.json, the tokenizer and *.safetensors, or a hub id."
    )
    revision = text_field("Revision", 200, "Hub only: branch, tag or commit; empty: the default.", required=False)
    name = text_field("Name", MAX_NAME, "Empty: the last part of the location.", required=False)
