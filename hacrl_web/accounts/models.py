"""Users, the one-time links that let them in, and the tries that did not."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils import timezone

LINK_LIFETIME = timedelta(hours=1)


class User(AbstractUser):
    """Someone who logs in. Staff see everybody's rows."""


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
        # One conditional UPDATE: of two requests at the same time one gets in.
        if link is None or not self.usable(token).update(used_at=timezone.now()):
            return None
        return link.user


class LoginLink(models.Model):
    """A link that logs its user in once, within the hour."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="login_links")
    token_hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    objects = LoginLinkQuerySet.as_manager()


class LoginTry(models.Model):
    """One wrong password: ten of them from one address for one user name close the door for a while.

    Rows, not a cache: the limit holds over several web processes and restarts.
    """

    key = models.CharField(max_length=64, db_index=True)  # SHA-256 of the user name and the address
    at = models.DateTimeField(default=timezone.now, db_index=True)
