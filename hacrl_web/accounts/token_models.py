"""Rows of the API's callers: their tokens, and the launches that they may ask for again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from hacrl_web.accounts.audit_log import AuditedQuerySet, audited

SEEN_EVERY = timedelta(minutes=1)  # `last_used_at` is no more exact than this: reading must not mean writing


class ApiTokenQuerySet(AuditedQuerySet["ApiToken"]):
    def visible_to(self, user: Any) -> ApiTokenQuerySet:
        """The user's own: nobody, staff neither, needs to know another's."""
        return self.filter(owner=user) if user.is_authenticated else self.none()

    def usable(self) -> ApiTokenQuerySet:
        return self.filter(revoked_at=None, expires_at__gt=timezone.now())

    def revoke(self) -> int:
        """From now on they let nobody in; revoking twice keeps the first time. Returns how many it were."""
        return self.filter(revoked_at=None).update(revoked_at=timezone.now())


@audited("owner", "name", "scopes", "expires_at", "revoked_at", project="")
class ApiToken(models.Model):
    """What a script shows in place of a password. Only the SHA-256 of its text is kept."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=80)
    hint = models.CharField(max_length=16)  # how its text begins, to tell it from others
    token_hash = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)  # of tokens.SCOPES
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"], condition=models.Q(revoked_at=None), name="api_token_name_per_owner"
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def state(self) -> str:
        """usable, expired or revoked."""
        if self.revoked_at:
            return "revoked"
        return "usable" if self.expires_at > timezone.now() else "expired"

    def revoke(self) -> None:
        ApiToken.objects.filter(pk=self.pk).revoke()

    def note_use(self) -> None:
        now = timezone.now()
        if self.last_used_at is None or self.last_used_at < now - SEEN_EVERY:
            ApiToken.objects.filter(pk=self.pk).update(last_used_at=now)


class LaunchKey(models.Model):
    """A launch with an Idempotency-Key, and what was answered: asked again, it is answered and not launched."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="launch_keys")
    key = models.CharField(max_length=200)
    request_hash = models.CharField(max_length=64)  # SHA-256 of address and body
    status = models.PositiveSmallIntegerField(default=0)
    answer = models.TextField(default="")
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="launch_key_once")]
