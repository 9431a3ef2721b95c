"""Password forms, in the style of the other forms."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm

RULES = "At least 8 characters, not all digits, not a common one, and unlike your name."


class StyledForm(forms.Form):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs["class"] = "input"


class LoginForm(StyledForm, AuthenticationForm):
    """Gives one message whether the user is unknown, the password is wrong or the account is closed."""

    error_messages = dict.fromkeys(("invalid_login", "inactive"), "Wrong user name or password.")


class NewPasswordForm(StyledForm):
    """The fields of both password forms, with the labels of InvitedForm."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["new_password1"].help_text = RULES
        self.fields["new_password2"].label = "New password again"
        self.fields["new_password2"].help_text = ""


class FirstPasswordForm(NewPasswordForm, SetPasswordForm):
    """For a user who logged in by a link and has no password yet."""


class NextPasswordForm(NewPasswordForm, PasswordChangeForm):
    """For a user who has a password."""


def _password(**options: Any) -> forms.CharField:
    widget = forms.PasswordInput(attrs={"autocomplete": "new-password"})
    return forms.CharField(strip=False, max_length=4096, widget=widget, **options)


class InvitedForm(StyledForm):
    """A new account, by an invitation; `people.join_as_new` checks name and password."""

    username = forms.CharField(
        label="Username",
        max_length=150,
        help_text="Letters, digits and @ . + - _",
        widget=forms.TextInput(attrs={"autocomplete": "username"}),
    )
    password = _password(label="Password", help_text=RULES)
    repeated = _password(label="Password again")

    def clean_repeated(self) -> str:
        if self.cleaned_data["repeated"] != self.cleaned_data.get("password"):
            raise forms.ValidationError("The two passwords differ.")
        return str(self.cleaned_data["repeated"])
