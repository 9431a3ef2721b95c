"""The form of a user's notifications."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings

from hacrl_web.alerts.models import NotificationSettings
from hacrl_web.alerts.notifications.webhook import check_url
from workers.contract.allowed_address import AddressRefused

LABELS = {
    "email_enabled": "Send e-mail",
    "email": "E-mail address",
    "webhook_enabled": "Send to a webhook",
    "webhook_url": "Webhook address",
    "on_alert": "An alert is raised",
    "on_cleared": "An alert is cleared",
    "on_failed": "A run failed, or paused because it cannot continue",
    "on_lost": "A run is lost (it is requeued automatically)",
    "on_completed": "A run completed",
}
EVENTS = ("on_alert", "on_cleared", "on_failed", "on_lost", "on_completed")


class NotificationForm(forms.ModelForm):
    class Meta:
        model = NotificationSettings
        fields = tuple(LABELS)
        labels = LABELS
        field_classes = {"webhook_url": forms.CharField}  # webhook.check_url has better messages
        help_texts = {
            "webhook_url": "Gets a JSON object by POST. Its host must be on this installation's list.",
        }
        widgets = {
            "email": forms.EmailInput(attrs={"class": "input"}),
            "webhook_url": forms.TextInput(attrs={"class": "input", "inputmode": "url", "autocomplete": "off"}),
        }

    def clean_webhook_url(self) -> str:
        url: str = self.cleaned_data["webhook_url"]
        if url:
            try:
                check_url(url)
            except AddressRefused as refusal:
                raise forms.ValidationError(str(refusal)) from refusal
        return url

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if values.get("email_enabled") and not settings.HAS_MAIL:
            self.add_error("email_enabled", "This installation has no mail server (HACRL_EMAIL_URL).")
        for switch, address in (("email_enabled", "email"), ("webhook_enabled", "webhook_url")):
            if values.get(switch) and not values.get(address) and address not in self.errors:
                self.add_error(address, "An address is needed.")
        return values

    @property
    def events(self) -> list[forms.BoundField]:
        return [self[name] for name in EVENTS]
