"""Changes of members, invitations and accounts, with the rules that keep each project and the installation governed.

A project always keeps an admin, and staff cannot close their own account. If the account of a project's only admin
is closed, staff, who are admins of all projects, can appoint another one. Refusals are FieldErrors; then nothing is
written.
"""

from __future__ import annotations

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from hacrl_web.accounts.login.sessions import end_sessions
from hacrl_web.accounts.models import (
    MAX_PROJECT_NAME,
    ApiToken,
    Invitation,
    LoginLink,
    Membership,
    Project,
    Role,
    User,
    includes,
)
from hacrl_web.accounts.roles.projects import forbidden, require
from hacrl_web.web.errors import FieldError, FieldErrors

LAST_ADMIN = "A project needs an admin: make another member an admin first."


def checked_name(text: str) -> str:
    """The name of a project. Error: FieldErrors."""
    name = " ".join(text.split())
    if not name or len(name) > MAX_PROJECT_NAME or not name.isprintable():
        raise FieldErrors.single("name", f"Give 1 to {MAX_PROJECT_NAME} printable characters.", "name")
    return name


def checked_role(text: str) -> str:
    """Error: FieldErrors."""
    if text not in Role.values:
        raise FieldErrors.single("role", f"Choose one of: {', '.join(Role.values)}.", "role")
    return text


def visible_project(request: HttpRequest, project_id: int) -> Project:
    return get_object_or_404(Project.objects.visible_to(request.user), pk=project_id)


def make_project(user: User, name: str) -> Project:
    """A new project with `user` as admin. Error: FieldErrors (403) for a user who is not staff."""
    if not user.is_staff:
        raise forbidden("Only staff may create projects.")
    return Project.objects.make(checked_name(name), user)


def rename_project(project: Project, name: str) -> None:
    """Error: FieldErrors."""
    project.name = checked_name(name)
    project.save(update_fields=["name"])


# Members


def manageable_member(request: HttpRequest, project: Project, member_id: int, *, is_removed: bool) -> Membership:
    """A member that the user may change or remove; users may remove themselves. Errors: Http404; FieldErrors (403)."""
    member = project.memberships.select_related("user", "project").filter(pk=member_id).first()
    if not (is_removed and member is not None and member.user_id == request.user.pk):
        require(request.user, project, Role.ADMIN)
    if member is None:
        raise Http404
    return member


def set_role(member: Membership, role: str) -> None:
    """Error: FieldErrors (409) if the project would be left without an admin."""
    with transaction.atomic():
        _keep_admin(member, role)
        if role != Role.ADMIN:
            _withdraw_invitations(member)
        member.role = role
        member.save(update_fields=["role"])


def remove_member(member: Membership) -> None:
    """The person no longer sees the project; the person's objects stay. Error: FieldErrors (409)."""
    with transaction.atomic():
        _keep_admin(member, None)
        User.objects.filter(pk=member.user_id, chosen_project=member.project).update(chosen_project=None)
        _withdraw_invitations(member)
        member.delete()


def _withdraw_invitations(member: Membership) -> None:
    """End the invitations by a former admin."""
    Invitation.objects.open().filter(project=member.project, inviter=member.user_id).delete()


def active_admins(project: Project) -> set[int]:
    """Ids of the memberships of admins with an open account. The last one can neither leave nor be demoted."""
    admins = Membership.objects.filter(project=project, role=Role.ADMIN, user__is_active=True)
    return set(admins.values_list("pk", flat=True))


def _keep_admin(member: Membership, role: str | None) -> None:
    Project.objects.select_for_update().get(pk=member.project_id)  # of two admins who demote each other, one is refused
    if role != Role.ADMIN and not active_admins(member.project) - {member.pk}:
        raise FieldErrors.single("last_admin", LAST_ADMIN, "role", 409)


# Invitations


def create_invitation(request: HttpRequest, project: Project, role: str, comment: str) -> tuple[Invitation, str]:
    """A new invitation and its link, which cannot be shown again."""
    printable = "".join(letter for letter in comment[:80] if letter.isprintable()).strip()
    new_invitation, token = Invitation.objects.make(project, role, request.user, printable)
    return new_invitation, request.build_absolute_uri(reverse("accounts:invitation", args=[token]))


def withdraw_invitation(project: Project, invitation_id: int) -> bool:
    """Delete an invitation; False if it was used already. Error: Http404."""
    row = get_object_or_404(project.invitations, pk=invitation_id)
    if row.used_at is None:
        row.delete()
    return row.used_at is None


def join(token: str, user: User) -> Project | None:
    """Use an invitation: returns its project, or None if it is not usable. A higher role of the user stays."""
    with transaction.atomic():
        invitation = Invitation.objects.usable(token).select_related("project").first()
        if invitation is None:
            return None
        # One conditional UPDATE: of two simultaneous requests, one succeeds.
        unused = Invitation.objects.filter(pk=invitation.pk, used_at=None)
        if not unused.update(used_at=timezone.now(), used_by=user):
            return None
        project, role = invitation.project, invitation.role
        member = Membership.objects.filter(project=project, user=user).first()
        if member is None:
            Membership.objects.create(project=project, user=user, role=role)
        elif includes(role, member.role):
            member.role = role
            member.save(update_fields=["role"])
        User.objects.filter(pk=user.pk).update(chosen_project=project)
        return project


def join_as_new(token: str, username: str, password: str) -> User:
    """A new account with the membership of the invitation. Error: FieldErrors, and the link stays usable."""
    user = User(username=User.normalize_username(username.strip()))
    errors = []
    for field, check in (("username", lambda: user.clean_fields(exclude=["password"])),
                         ("password", lambda: validate_password(password, user))):  # fmt: skip
        try:
            check()
        except ValidationError as error:
            errors += [FieldError("invalid", message, field) for message in error.messages]
    if errors:
        raise FieldErrors(errors)
    user.set_password(password)
    try:
        with transaction.atomic():
            if User.objects.filter(username__iexact=user.username).exists():
                raise IntegrityError
            user.save()
            if join(token, user) is None:
                raise FieldErrors.single("gone", "This invitation has been used or has expired.", None, 410)
    except IntegrityError:
        raise FieldErrors.single(
            "taken", "This user name is taken. If it is yours, log in first.", "username"
        ) from None
    return user


# Accounts


def set_active(by: User, user: User, is_active: bool) -> None:
    """Close an account and end its sessions, sockets, tokens and links, or open it again.

    Error: FieldErrors (403 or 409).
    """
    if not is_active and user.pk == by.pk:
        raise FieldErrors.single("self", "You cannot close your own account: ask other staff.", None, 409)
    if user.is_superuser and not by.is_superuser:
        raise forbidden("Only a superuser may close or open the account of a superuser.")
    with transaction.atomic():
        # Of two staff who close each other's account, one is refused.
        staff = User.objects.select_for_update().filter(is_staff=True).order_by("pk")
        if not any(one.pk == by.pk and one.is_active for one in staff):
            raise forbidden("Only staff may close and open accounts.")
        user.is_active = is_active
        user.save(update_fields=["is_active"])
        if not is_active:
            LoginLink.objects.filter(user=user, used_at=None).delete()
            Invitation.objects.filter(inviter=user, used_at=None).delete()
            # A stolen token must not work again when the account is opened again.
            ApiToken.objects.filter(owner=user).revoke()
    if not is_active:
        end_sessions(user)


def unlink(by: User, user: User, *, but: str | None = None) -> None:
    """Part an account from the one at the sign-in provider, and end its sessions. but: key of one to keep.

    Whoever unlinks the own account also forgets its address, by which the next sign-in would find it again; after
    staff did, it is found so, for a provider that has got another issuer. Error: FieldErrors (403 or 409).
    """
    if user.is_superuser and not by.is_superuser:
        raise forbidden("Only a superuser may unlink the account of a superuser.")
    if not user.provider_account:
        raise FieldErrors.single("not_linked", "This account is not linked to one at a provider.", None, 409)
    is_own = user.pk == by.pk
    if is_own and not user.has_usable_password():
        raise FieldErrors.single(
            "no_password", "You have no password: unlinked, you could not log in. Ask staff to unlink you.", None, 409
        )
    user.provider_account = None  # provider_seen_at stays: the roles of groups end in their time
    if is_own:
        user.email = ""
    user.save(update_fields=["provider_account", "email"])
    end_sessions(user, but=but)
