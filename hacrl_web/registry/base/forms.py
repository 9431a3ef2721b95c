"""Fields of the registry's forms. They hold labels and texts; the services check the values."""

from __future__ import annotations

from collections.abc import Iterable

from django import forms

INPUT = {"class": "input"}


def text_field(label: str, most: int, help_text: str = "", *, required: bool = True) -> forms.CharField:
    """A line of text; the browser limits its length, and the service checks it."""
    widget = forms.TextInput(attrs=INPUT | {"maxlength": str(most), "autocomplete": "off", "spellcheck": "false"})
    widget.is_required = required
    return forms.CharField(label=label, help_text=help_text, required=False, strip=False, widget=widget)


def choice_field(label: str, choices: Iterable[tuple[str, str]] = (), help_text: str = "") -> forms.ChoiceField:
    widget = forms.Select(attrs=INPUT)
    return forms.ChoiceField(label=label, choices=list(choices), required=False, help_text=help_text, widget=widget)


class ServiceForm(forms.Form):
    """A form that shows a service's errors, by the names of its fields."""

    use_required_attribute = False
