"""Links that show one run, sweep, board or report to whoever has their address."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import AuditedQuerySet, audited
from hacrl_web.accounts.models import Membership, Project, Role, User, hash_token
from hacrl_web.accounts.roles.visibility import ProjectRow, ProjectRowQuerySet

MAX_ADDRESS = 2000  # characters


class ShareLinkQuerySet(ProjectRowQuerySet["ShareLink"]):
    def make(self, owner: User, project: Project, address: str, days: int, comment: str) -> tuple[ShareLink, str]:
        """A new link and its token, which is stored nowhere. Error: FieldErrors (403) unless a member makes it."""
        token = secrets.token_urlsafe(32)
        row = self.model(owner=owner, project=project, address=address, comment=comment, token_hash=hash_token(token))
        row.expires_at = timezone.now() + timedelta(days=days)
        row.save()
        return row, token

    def open(self) -> ShareLinkQuerySet:
        """Neither ended nor revoked, of a project that allows links, by somebody who may still make one there."""
        rows = self.filter(revoked_at=None, expires_at__gt=timezone.now(), owner__is_active=True)
        roles = Membership.objects.filter(project=OuterRef("project"), user=OuterRef("owner")).exclude(role=Role.VIEWER)
        forbidden = SharingBan.objects.filter(project=OuterRef("project"))
        return rows.filter(Q(owner__is_staff=True) | Exists(roles)).exclude(Exists(forbidden))


@audited("address", "comment", "expires_at", "revoked_at")
class ShareLink(ProjectRow):
    """Opens the page at `address`, as its owner sees it, without a login. Only the SHA-256 of its token is stored."""

    section = "links"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    address = models.CharField(max_length=MAX_ADDRESS)
    comment = models.CharField(max_length=80, blank=True)  # who it is for
    token_hash = models.CharField(max_length=64, unique=True)
    created_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ShareLinkQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return self.comment or self.address

    @property
    def state(self) -> str:
        """open, ended or revoked; a ban, or an owner who left, closes an open one too."""
        if self.revoked_at:
            return "revoked"
        return "open" if self.expires_at > timezone.now() else "ended"


@audited()
class SharingBan(models.Model):
    """A project whose admins allow no links: those that it has do not open while it stands."""

    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="+")

    objects = AuditedQuerySet["SharingBan"].as_manager()

    def __str__(self) -> str:
        return f"of {self.project}"
