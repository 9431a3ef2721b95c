"""`manage.py login_link`: prints a one-time login link, or only its path if HACRL_PUBLIC_URL is not set."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from hacrl_web.accounts.models import LoginLink, User, first_user


class Command(BaseCommand):
    help = "Print a login link that works once, within one hour. Creates the first user if none exists."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", help="user name; default: the first active superuser")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options.get("user")
        try:
            user = User.objects.get(username=name, is_active=True) if name else first_user()
        except User.DoesNotExist as error:
            raise CommandError(f"There is no active user {name!r}." if name else str(error)) from None
        path = reverse("accounts:login_link", args=[LoginLink.objects.make(user)])
        self.stdout.write(settings.PUBLIC_URL + path)
