"""Tables of accounts: users, projects with members and invitations, login links, failed logins, API tokens."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import AbstractUser, UserManager
from django.db import models, transaction
from django.db.models import Exists, OuterRef, Q
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property

from hacrl_web.accounts.audit.audit_log import AuditedQuerySet, audited

LINK_LIFETIME = timedelta(hours=1)
INVITATION_LIFETIME = timedelta(days=7)
MAX_PROJECT_NAME = 80
MAX_LOGIN_TRIES = 10  # of one user name from one address
MAX_ADDRESS_TRIES = 30  # of one address, whatever the names
LOGIN_WINDOW = timedelta(minutes=15)
TOKEN_USE_PRECISION = timedelta(minutes=1)  # of `last_used_at`, so that few requests write
FIRST_USER = "admin"


class PeopleManager(UserManager["User"]):
    """Users that are created at the command line get a project; invited users join an existing one."""

    def _create_user(self, *args: Any, **fields: Any) -> User:
        """Called by `create_user` and `create_superuser`."""
        with transaction.atomic():
            user = super()._create_user(*args, **fields)
            Project.objects.make(own_project_name(user.username), user)
        return user


@audited("username", "email", "is_active", "is_staff", "is_superuser", "provider_account",
         secrets=("password",), project="")  # fmt: skip
class User(AbstractUser):
    """Someone who logs in. Staff administer the installation: they see and may change everything."""

    # The project that lists show and that new objects belong to. Empty: the user's first; for staff, all projects.
    chosen_project = models.ForeignKey("Project", on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    # Issuer and subject of the person at an OpenID Connect provider, with a space between (accounts/oidc).
    provider_account = models.CharField(max_length=600, unique=True, null=True, blank=True)
    # The last sign-in there, which gave the roles of its groups. Empty: there are none from it.
    provider_seen_at = models.DateTimeField(null=True, blank=True)

    objects = PeopleManager()

    @cached_property
    def own_memberships(self) -> list[Membership]:
        """The user's memberships, read once: those that allow changes first, then the older ones."""
        memberships = self.memberships.select_related("project").order_by("pk")
        return sorted(memberships, key=lambda one: one.role == Role.VIEWER)


def own_project_name(username: str) -> str:
    return f"{username[: MAX_PROJECT_NAME - 10]}'s project"


class Role(models.TextChoices):
    """Roles in a project, each with the rights of those before it."""

    VIEWER = "viewer"  # reads everything
    MEMBER = "member"  # creates and changes everything, deletes only what they made
    ADMIN = "admin"  # deletes everything too, and manages the members


def includes(role: str, needed: str) -> bool:
    """Whether `role` has all rights of `needed`."""
    return Role.values.index(role) >= Role.values.index(needed)


class ProjectQuerySet(AuditedQuerySet["Project"]):
    def visible_to(self, user: User) -> ProjectQuerySet:
        """For staff all; else those of the user."""
        if not user.is_authenticated:
            return self.none()
        return self.all() if user.is_staff else self.filter(memberships__user=user)

    def make(self, name: str, admin: User) -> Project:
        """A new project with its first admin."""
        with transaction.atomic():
            project = self.create(name=name)
            Membership.objects.create(project=project, user=admin, role=Role.ADMIN)
        return project


@audited("name", project="pk")
class Project(models.Model):
    """The owner of models, groups, benchmarks, runs and sweeps: only its members see them."""

    name = models.CharField(max_length=MAX_PROJECT_NAME)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ProjectQuerySet.as_manager()

    class Meta:
        ordering = ["name", "pk"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("accounts:project_detail", args=[self.pk])


@audited("user", "role")
class Membership(models.Model):
    """A user's role in a project."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=8, choices=Role.choices)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AuditedQuerySet["Membership"].as_manager()

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="member_once")]

    def __str__(self) -> str:
        return f"{self.user} in {self.project}"


def first_user() -> User:
    """The first active superuser; created without a usable password if no user exists.

    Error: User.DoesNotExist if users exist, but no active superuser.
    """
    if not User.objects.exists():
        User.objects.create_superuser(FIRST_USER)
    user = User.objects.filter(is_active=True, is_superuser=True).order_by("pk").first()
    if user is None:
        raise User.DoesNotExist("There is no active superuser.")
    return user


def hash_token(token: str) -> str:
    """The stored form of a token, from which the token cannot be computed."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class LoginLinkQuerySet(models.QuerySet["LoginLink"]):
    def make(self, user: User) -> str:
        """Store a new link for `user` and return its token, which is stored nowhere."""
        token = secrets.token_urlsafe(32)
        now = timezone.now()
        self.filter(expires_at__lt=now).delete()
        self.create(user=user, token_hash=hash_token(token), expires_at=now + LINK_LIFETIME)
        return token

    def usable(self, token: str) -> LoginLinkQuerySet:
        """The unused link of this token, as a query of at most one row."""
        return self.filter(
            token_hash=hash_token(token), used_at=None, expires_at__gt=timezone.now(), user__is_active=True
        )

    def use(self, token: str) -> User | None:
        """Mark the link as used and return its user; None if it was used, has expired or never existed."""
        link = self.usable(token).select_related("user").first()
        # One conditional UPDATE: of two simultaneous requests, one succeeds.
        if link is None or not self.filter(pk=link.pk, used_at=None).update(used_at=timezone.now()):
            return None
        return link.user


@audited("user", project="")
class LoginLink(models.Model):
    """A link that logs its user in once, within one hour."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="login_links")
    token_hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    objects = LoginLinkQuerySet.as_manager()

    def __str__(self) -> str:
        return f"for {self.user}"


class InvitationQuerySet(AuditedQuerySet["Invitation"]):
    def make(self, project: Project, role: str, inviter: User, comment: str = "") -> tuple[Invitation, str]:
        """Store an invitation; returns it and its token, which is stored nowhere."""
        token = secrets.token_urlsafe(32)
        values = {"project": project, "role": role, "inviter": inviter, "comment": comment}
        expires_at = timezone.now() + INVITATION_LIFETIME
        return self.create(**values, token_hash=hash_token(token), expires_at=expires_at), token

    def open(self) -> InvitationQuerySet:
        """Neither used nor expired, by an inviter who may still invite."""
        admins = Membership.objects.filter(project=OuterRef("project"), user=OuterRef("inviter"), role=Role.ADMIN)
        invitations = self.filter(used_at=None, expires_at__gt=timezone.now(), inviter__is_active=True)
        return invitations.filter(Q(inviter__is_staff=True) | Exists(admins))

    def usable(self, token: str) -> InvitationQuerySet:
        """The open invitation of this token, as a query of at most one row."""
        return self.open().filter(token_hash=hash_token(token))


@audited("role", "comment", "used_by")
class Invitation(models.Model):
    """A link that makes the first person who uses it a member of a project; a new person also gets an account."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=8, choices=Role.choices)
    comment = models.CharField(max_length=80, blank=True)  # who it is for
    inviter = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    token_hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    objects = InvitationQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return self.comment or f"to {self.project}"


class LoginTryQuerySet(models.QuerySet["LoginTry"]):
    def admit(self, limits: dict[str, int]) -> list[LoginTry]:
        """Record a try under each key; none if one has reached its limit within LOGIN_WINDOW.

        It is recorded before the password is checked, so that simultaneous tries count too.
        """
        if self.is_full(limits):
            return []
        self.filter(at__lt=timezone.now() - LOGIN_WINDOW).delete()
        tries = [self.create(key=key) for key in limits]
        return [] if self.is_full({key: limit + 1 for key, limit in limits.items()}) else tries

    def is_full(self, limits: dict[str, int]) -> bool:
        """Whether a key has reached its limit within LOGIN_WINDOW."""
        recent = self.filter(at__gt=timezone.now() - LOGIN_WINDOW)
        return any(recent.filter(key=key).count() >= limit for key, limit in limits.items())


class LoginTry(models.Model):
    """A login that failed, once under its user name and address and once under its address alone.

    Rows, not a cache: the limit applies across web processes and restarts.
    """

    key = models.CharField(max_length=64, db_index=True)  # SHA-256 of the user name and the address, or of the address
    at = models.DateTimeField(default=timezone.now, db_index=True)

    objects = LoginTryQuerySet.as_manager()


class ApiTokenQuerySet(AuditedQuerySet["ApiToken"]):
    def visible_to(self, user: User) -> ApiTokenQuerySet:
        """The user's own tokens; staff see no others either."""
        return self.filter(owner=user) if user.is_authenticated else self.none()

    def usable(self) -> ApiTokenQuerySet:
        return self.filter(revoked_at=None, expires_at__gt=timezone.now())

    def revoke(self) -> int:
        """Revoke the tokens that are not revoked yet; returns their number."""
        return self.filter(revoked_at=None).update(revoked_at=timezone.now())


@audited("owner", "name", "scopes", "expires_at", "revoked_at", project="")
class ApiToken(models.Model):
    """A secret that a script sends in place of a password. Only its SHA-256 is stored."""

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=80)
    hint = models.CharField(max_length=16)  # its first characters, to tell tokens apart
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
                fields=["owner", "name"], condition=Q(revoked_at=None), name="api_token_name_per_owner"
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
        if self.last_used_at is None or self.last_used_at < now - TOKEN_USE_PRECISION:
            ApiToken.objects.filter(pk=self.pk).update(last_used_at=now)


class LaunchKey(models.Model):
    """The Idempotency-Key of a launch, with its answer, which is sent again when the key is."""

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="launch_keys")
    key = models.CharField(max_length=200)
    request_hash = models.CharField(max_length=64)  # SHA-256 of address and body
    status = models.PositiveSmallIntegerField(default=0)
    answer = models.TextField(default="")
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="launch_key_once")]
