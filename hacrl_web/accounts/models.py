"""Users, the projects that they share, the one-time links that let them in, and the tries that did not."""

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

from hacrl_web.accounts.audit_log import AuditedQuerySet, audited
from hacrl_web.accounts.token_models import ApiToken, LaunchKey

__all__ = ["ApiToken", "LaunchKey", "LoginLink", "LoginTry", "User"]
LINK_LIFETIME = timedelta(hours=1)
INVITATION_LIFETIME = timedelta(days=7)
MAX_PROJECT_NAME = 80


class PeopleManager(UserManager["User"]):
    """Whoever is made at the command line gets a project of the own; who is invited comes into one that is there."""

    def create_user(self, username: str, *args: Any, **fields: Any) -> User:
        with transaction.atomic():
            user = super().create_user(username, *args, **fields)
            Project.objects.make(own_project_name(user.username), user)
        return user

    def create_superuser(self, username: str, *args: Any, **fields: Any) -> User:
        with transaction.atomic():
            user = super().create_superuser(username, *args, **fields)
            Project.objects.make(own_project_name(user.username), user)
        return user


@audited("username", "email", "is_active", "is_staff", "is_superuser", secrets=("password",), project="")
class User(AbstractUser):
    """Someone who logs in. Staff administer the installation: they see and may change everything."""

    # The one of the own projects that lists show and new objects go to. Empty: the first; of staff, all projects.
    chosen_project = models.ForeignKey("Project", on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    objects = PeopleManager()

    @cached_property
    def own_memberships(self) -> list[Membership]:
        """Those that allow changes first, then the oldest. Read once for each user object, as Django's permissions."""
        memberships = self.memberships.select_related("project").order_by("pk")
        return sorted(memberships, key=lambda one: one.role == Role.VIEWER)


def own_project_name(username: str) -> str:
    return f"{username[: MAX_PROJECT_NAME - 10]}'s project"


class Role(models.TextChoices):
    """What somebody may do in a project, from least to most."""

    VIEWER = "viewer"  # reads everything
    MEMBER = "member"  # creates and changes everything, deletes only what they made
    ADMIN = "admin"  # deletes everything too, and manages the members


def includes(role: str, needed: str) -> bool:
    """Whether a role may do all that another may."""
    return Role.values.index(role) >= Role.values.index(needed)


class ProjectQuerySet(AuditedQuerySet["Project"]):
    def visible_to(self, user: Any) -> ProjectQuerySet:
        """All for staff, else those that the user is a member of."""
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
    """What belongs together, and who may see it: every model, group, benchmark, run and sweep is of one project."""

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
    """Somebody's role in a project."""

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


FIRST_USER = "admin"


def first_user() -> User:
    """The first active superuser; made, without a password that works, where there is no user at all.

    Error: User.DoesNotExist where there are users, but no active superuser.
    """
    if not User.objects.exists():
        User.objects.create_superuser(FIRST_USER)
    user = User.objects.filter(is_active=True, is_superuser=True).order_by("pk").first()
    if user is None:
        raise User.DoesNotExist("There is no active superuser.")
    return user


def hash_token(token: str) -> str:
    """What is stored of a link: its token cannot be had from the database."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class LoginLinkQuerySet(models.QuerySet["LoginLink"]):
    def make(self, user: User) -> str:
        """Store a new link for `user` and return its token, which is shown once."""
        token = secrets.token_urlsafe(32)
        now = timezone.now()
        self.filter(expires_at__lt=now).delete()
        self.create(user=user, token_hash=hash_token(token), expires_at=now + LINK_LIFETIME)
        return token

    def usable(self, token: str) -> LoginLinkQuerySet:
        """The unused link of this token that has not expired, as a query of one row or none."""
        return self.filter(
            token_hash=hash_token(token), used_at=None, expires_at__gt=timezone.now(), user__is_active=True
        )

    def use(self, token: str) -> User | None:
        """Spend the link: the user, or None where it was used, has expired or never was."""
        link = self.usable(token).select_related("user").first()
        # One conditional UPDATE of this row alone: of two requests at the same time one gets in.
        if link is None or not self.filter(pk=link.pk, used_at=None).update(used_at=timezone.now()):
            return None
        return link.user


@audited("user", project="")
class LoginLink(models.Model):
    """A link that logs its user in once, within the hour."""

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
        """Store an invitation; returns it and its token, which is shown once."""
        token = secrets.token_urlsafe(32)
        values = {"project": project, "role": role, "inviter": inviter, "comment": comment}
        expires_at = timezone.now() + INVITATION_LIFETIME
        return self.create(**values, token_hash=hash_token(token), expires_at=expires_at), token

    def open(self) -> InvitationQuerySet:
        """Neither used nor expired. Whoever invited must still be there, and still be one who may invite."""
        admins = Membership.objects.filter(project=OuterRef("project"), user=OuterRef("inviter"), role=Role.ADMIN)
        invitations = self.filter(used_at=None, expires_at__gt=timezone.now(), inviter__is_active=True)
        return invitations.filter(Q(inviter__is_staff=True) | Exists(admins))

    def usable(self, token: str) -> InvitationQuerySet:
        """The open invitation of this token, as a query of one row or none."""
        return self.open().filter(token_hash=hash_token(token))


@audited("role", "comment", "used_by")
class Invitation(models.Model):
    """A link that makes whoever uses it first a member of a project, with an account where there is none yet."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=8, choices=Role.choices)
    comment = models.CharField(max_length=80, blank=True)  # for whom it is
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


class LoginTry(models.Model):
    """One wrong password: ten of them from one address for one user name close the door for a while.

    Rows, not a cache: the limit holds over several web processes and restarts.
    """

    key = models.CharField(max_length=64, db_index=True)  # SHA-256 of the user name and the address
    at = models.DateTimeField(default=timezone.now, db_index=True)
