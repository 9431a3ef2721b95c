"""The account of a person who signed in at the provider: found or created, with the roles of the person's groups.

The provider governs what HACRL_OIDC_ROLES names: staff if a group gives it, and membership of the projects that the
mapping names. Memberships of other projects, by invitation, are left alone.
"""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from hacrl_web.accounts.models import Membership, Project, Role, User, includes
from hacrl_web.accounts.oidc.provider import SignInRefused
from hacrl_web.accounts.people.service import remove_member, set_role
from hacrl_web.ops.oidc_settings import EVERYBODY, STAFF, OidcProvider
from hacrl_web.web.errors import FieldErrors

logger = logging.getLogger(__name__)
MAX_EMAIL = 254  # characters of User.email
MAX_USERNAME = 140  # of Django's 150: a number may follow


def user_of_claims(provider: OidcProvider, claims: dict[str, Any]) -> User:
    """The user of verified claims, with roles as the provider says now. Error: SignInRefused."""
    _require_verified_address(provider, claims)
    groups = groups_of(provider, claims)
    try:
        user = _with_roles(provider, claims, groups)
    except IntegrityError:  # the person's other browser created the account a moment ago
        user = _with_roles(provider, claims, groups)
    if not user.is_active:
        raise SignInRefused("Your account here is closed: ask the staff of this installation.")
    if not user.is_staff and not user.memberships.exists():
        raise _no_role(provider)
    return user


def attach_account(provider: OidcProvider, user: User, claims: dict[str, Any]) -> None:
    """Attach the provider's account of verified claims to a user. Error: SignInRefused, and nothing is written.

    Roles stay as they are until the next sign-in at the provider.
    """
    _require_verified_address(provider, claims)
    try:
        with transaction.atomic():
            row = User.objects.select_for_update().get(pk=user.pk)
            require_unlinked(provider, row)
            row.provider_account = _account_of(provider, claims)
            row.save(update_fields=["provider_account"])
    except IntegrityError:
        raise SignInRefused(
            f"This account at {provider.name} is linked to another account here: log in there and unlink it, or ask "
            "the staff of this installation.",
            409,
        ) from None


def require_unlinked(provider: OidcProvider, user: User) -> None:
    """Error: SignInRefused (409)."""
    if user.provider_account:
        raise SignInRefused(f"Your account is linked to one at {provider.name} already: unlink that first.", 409)


def _account_of(provider: OidcProvider, claims: dict[str, Any]) -> str:
    return f"{provider.issuer} {claims['sub']}"


def _require_verified_address(provider: OidcProvider, claims: dict[str, Any]) -> None:
    """Error: SignInRefused."""
    is_verified = claims.get("email_verified") is True or claims.get("email_verified") == "true"
    if not is_verified or not _is_address(claims.get("email")):
        raise SignInRefused(
            f"{provider.name} has not verified your e-mail address: verify it there, then sign in again."
        )


def _is_address(value: Any) -> bool:
    try:
        validate_email(value)
    except ValidationError:
        return False
    return isinstance(value, str) and len(value) <= MAX_EMAIL


def groups_of(provider: OidcProvider, claims: dict[str, Any]) -> set[str]:
    """Returns the names of the person's groups, from a claim that is a list or one text; "*" is always among them."""
    claim = claims.get(provider.groups_claim)
    names = claim if isinstance(claim, list) else [claim]
    return {name for name in names if isinstance(name, str) and name != EVERYBODY} | {EVERYBODY}


def _no_role(provider: OidcProvider) -> SignInRefused:
    return SignInRefused(
        f"Your account at {provider.name} has no role here: ask your administrator for a group that has one "
        "(HACRL_OIDC_ROLES); with an account here, log in to it and link this one under Account."
    )


@transaction.atomic
def _with_roles(provider: OidcProvider, claims: dict[str, Any], groups: set[str]) -> User:
    """Error: SignInRefused; then nothing is written."""
    is_staff = any(one.role == STAFF and one.group in groups for one in provider.roles)
    roles = _project_roles(provider, groups)
    account = _account_of(provider, claims)
    user = User.objects.select_for_update().filter(provider_account=account).first()
    if user is None:
        user = _same_person(provider, str(claims["email"]), is_staff)
    if user is None:
        if not is_staff and not any(roles.values()):
            raise _no_role(provider)
        user = User(username=_free_username(claims))
        user.set_unusable_password()
    user.provider_account, user.email = account, claims["email"]
    user.provider_seen_at = timezone.now()
    _set_staff(provider, user, is_staff=is_staff)
    user.save()
    if user.is_active:
        _set_memberships(user, roles)
    return user


def without_old_roles(provider: OidcProvider, user: User) -> User:
    """The user, without the roles of groups if the last sign-in at the provider is too long ago for them."""
    oldest = timezone.now() - timedelta(days=provider.roles_d)
    if user.provider_seen_at is None or user.provider_seen_at > oldest:
        return user
    with transaction.atomic():
        row = User.objects.select_for_update().get(pk=user.pk)
        if row.provider_seen_at is not None and row.provider_seen_at <= oldest:
            row.provider_seen_at = None
            _set_staff(provider, row, is_staff=False)
            row.save(update_fields=["provider_seen_at", "is_staff"])
            _set_memberships(row, _project_roles(provider, set()))
    return row


def _set_staff(provider: OidcProvider, user: User, *, is_staff: bool) -> None:
    if any(one.role == STAFF for one in provider.roles) and not user.is_superuser:
        user.is_staff = is_staff


def _project_roles(provider: OidcProvider, groups: set[str]) -> dict[int, str | None]:
    """Returns the highest role of the groups in each project of the mapping; None: no role."""
    roles: dict[int, str | None] = {}
    for one in provider.roles:
        if one.project is not None:
            held = roles.setdefault(one.project, None)
            if one.group in groups and (held is None or includes(one.role, held)):
                roles[one.project] = one.role
    return roles


def _same_person(provider: OidcProvider, email: str, is_staff: bool) -> User | None:
    """The account with this verified address that is tied to no provider yet. Error: SignInRefused."""
    # Compared here: a database may take letters as equal that are not, such as a Turkish dotless i and an i.
    ids = [pk for pk, own in User.objects.exclude(email="").values_list("pk", "email") if is_same_address(own, email)]
    # A closed account of another subject is somebody's who had the address before.
    former = Q(is_active=False, provider_account__startswith=f"{provider.issuer} ")
    users = list(User.objects.select_for_update().filter(pk__in=ids).exclude(former))
    if not users:
        return None
    user = users[0]
    if len(users) > 1 or user.provider_account:
        raise SignInRefused("Another account here has your e-mail address: ask the staff of this installation.")
    if user.is_superuser:
        raise SignInRefused(
            "The account with your e-mail address is a superuser's: log in to it, then link this one under Account."
        )
    if user.is_staff and not is_staff:
        raise SignInRefused(
            f"The account with your e-mail address is one of staff, and no group of yours at {provider.name} makes "
            "staff: log in with its password, or ask for such a group."
        )
    return user


def is_same_address(one: str, other: str) -> bool:
    """Whether addresses differ in the case of ASCII letters alone. Folding others would take a Kelvin sign for a k."""
    return one == other or (one.isascii() and other.isascii() and one.lower() == other.lower())


def _free_username(claims: dict[str, Any]) -> str:
    """A name from the claims that nobody has."""
    text = str(claims.get("preferred_username") or str(claims["email"]).partition("@")[0])
    base = re.sub(r"[^\w.@+-]", "", User.normalize_username(text))[:MAX_USERNAME] or "user"
    name, number = base, 1
    while User.objects.filter(username__iexact=name).exists():
        number += 1
        name = f"{base}-{number}"
    return name


def _set_memberships(user: User, roles: dict[int, str | None]) -> None:
    members = {one.project_id: one for one in Membership.objects.filter(user=user, project__in=roles)}
    for project in Project.objects.filter(pk__in=roles):
        role, member = roles[project.pk], members.get(project.pk)
        try:
            if member is None:
                if role is not None:
                    Membership.objects.create(project=project, user=user, role=Role(role))
            elif role is None:
                remove_member(member)
            elif role != member.role:
                set_role(member, role)
        except FieldErrors as refusal:  # the project's only admin
            logger.warning("%s stays %s of project %s: %s", user, member and member.role, project, refusal)
