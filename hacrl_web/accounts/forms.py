"""Password forms, with the look of the other forms."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm


def _style(form: forms.Form) -> None:
    for field in form.fields.values():
        field.widget.attrs["class"] = "input"


class LoginForm(AuthenticationForm):
    """The same words whether the user is unknown, the password wrong, or the account closed."""

    error_messages = {
        "invalid_login": "Wrong user name or password.",
        "inactive": "Wrong user name or password.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _style(self)


class FirstPasswordForm(SetPasswordForm):
    """For a user who came by a link and has no password yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _style(self)


class NextPasswordForm(PasswordChangeForm):
    """For a user who has one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _style(self)
