"""Password forms, with the look of the other forms."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm

RULES_TOLD = "At least 8 characters, not all digits, not a common one, and unlike your name."


def _style(form: forms.Form) -> None:
    for field in form.fields.values():
        field.widget.attrs["class"] = "input"


def _name_new_password(form: forms.Form) -> None:
    """The words of an invitation's form: the same rules are told the same way everywhere."""
    form.fields["new_password1"].help_text = RULES_TOLD
    form.fields["new_password2"].label = "New password again"
    form.fields["new_password2"].help_text = ""


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
        _name_new_password(self)


class NextPasswordForm(PasswordChangeForm):
    """For a user who has one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _style(self)
        _name_new_password(self)


class InvitedForm(forms.Form):
    """For whoever comes by an invitation and has no account; the rules of both are checked where it is made."""

    username = forms.CharField(
        label="Username",
        max_length=150,
        help_text="Letters, digits and @ . + - _",
        widget=forms.TextInput(attrs={"autocomplete": "username"}),
    )
    password = forms.CharField(
        label="Password",
        strip=False,
        max_length=4096,
        help_text=RULES_TOLD,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    repeated = forms.CharField(
        label="Password again",
        strip=False,
        max_length=4096,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _style(self)

    def clean_repeated(self) -> str:
        if self.cleaned_data["repeated"] != self.cleaned_data.get("password"):
            raise forms.ValidationError("The two passwords differ.")
        return str(self.cleaned_data["repeated"])
