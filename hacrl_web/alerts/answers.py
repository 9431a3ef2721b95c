"""What the API answers about alerts, their rules and notifications."""

from __future__ import annotations

from datetime import datetime

from typing_extensions import TypedDict

from hacrl_web.web.schemas import Number


class AlertAnswer(TypedDict):
    id: int
    run: str
    kind: str
    title: str
    agent: str
    source: str
    attempt: int
    number: float | None
    text: str
    advice: str
    chart: str | None
    url: str
    is_open: bool
    raised_step: int
    raised_at: datetime
    cleared_step: int | None
    cleared_at: datetime | None
    cleared_reason: str


class AlertsOfRunAnswer(TypedDict):
    """A page of alerts, the open ones first."""

    items: list[AlertAnswer]
    count: int
    next: str | None
    num_open: int


class RuleAnswer(TypedDict):
    kind: str
    title: str
    help: str
    scope: str
    metric: str
    chart: str
    source: str
    advice: str
    is_low: bool
    raise_at: Number
    raise_after: int
    clear_at: Number
    clear_after: int


class RulesAnswer(TypedDict):
    rules: list[RuleAnswer]


class WishesAnswer(TypedDict):
    email_enabled: bool
    email: str
    webhook_enabled: bool
    webhook_url: str
    on_alert: bool
    on_cleared: bool
    on_failed: bool
    on_lost: bool
    on_completed: bool


class DeliveryAnswer(TypedDict):
    id: int
    channel: str
    target: str
    subject: str
    state: str
    tries: int
    reason: str
    created_at: datetime
    sent_at: datetime | None


class QueuedAnswer(TypedDict):
    queued: int
