"""API of projects, members, invitations, people and the audit log, with the rules of their pages."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NotRequired

from django.http import Http404, HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Field, ModelSchema, Query, Router, Schema, Status
from typing_extensions import TypedDict

from hacrl_web.accounts.audit.audit_log import AuditEntry
from hacrl_web.accounts.models import Project, Role, User
from hacrl_web.accounts.people import service as people
from hacrl_web.accounts.people.audit_views import COLUMNS, AuditFilters
from hacrl_web.accounts.roles.projects import project_for, role_in
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.pagination import ListQuery, listing
from hacrl_web.web.schemas import EVERY_FIELD, PageOf, StrictBody, query_schema

router = Router(tags=["projects"])
AuditParameters = query_schema(AuditFilters)


class MemberName(Schema):
    id: int
    name: str = Field(alias="username")


class PersonAnswer(MemberName):
    """is_linked: to an account at the sign-in provider."""

    is_active: bool
    is_staff: bool
    is_linked: bool

    @staticmethod
    def resolve_is_linked(person: User) -> bool:
        return bool(person.provider_account)


class MemberAnswer(Schema):
    id: int
    user: MemberName
    role: str


class InvitationAnswer(Schema):
    id: int
    role: str
    comment: str
    expires_at: datetime


class NewInvitationAnswer(InvitationAnswer):
    link: str


class ProjectAnswer(TypedDict):
    """role: the caller's; null for staff who are not members."""

    id: int
    name: str
    role: str | None


class ProjectDetailAnswer(ProjectAnswer):
    """invitations: the open ones, for admins."""

    members: list[MemberAnswer]
    invitations: NotRequired[list[InvitationAnswer]]


class AuditAnswer(ModelSchema):
    """before, after: the recorded fields that changed."""

    model_config = EVERY_FIELD
    id: int
    address: str
    object_id: str
    name: str
    before: dict[str, Any]
    after: dict[str, Any]

    class Meta:
        model = AuditEntry
        fields = ("id", *COLUMNS[:-2])


class Named(StrictBody):
    name: str


class RoleIn(StrictBody):
    """role: viewer, member or admin."""

    role: str


class InvitationIn(RoleIn):
    """comment: who it is for, at most 80 characters."""

    comment: str = ""


def _summary(project: Project, user: User) -> dict[str, Any]:
    return {"id": project.pk, "name": project.name, "role": role_in(user, project)}


def _detail(request: HttpRequest, project: Project) -> dict[str, Any]:
    detail = _summary(project, request.user)
    detail["members"] = list(project.memberships.select_related("user"))
    if detail["role"] == Role.ADMIN:
        detail["invitations"] = list(project.invitations.open())
    return detail


@router.get(
    "/projects", response=PageOf[ProjectAnswer], summary="List the projects that you are in, with your role; staff: all"
)
def list_projects(request: HttpRequest, query: Query[ListQuery]) -> Any:
    rows = Project.objects.visible_to(request.user)
    return listing(rows.order_by("name", "pk"), query, lambda project: _summary(project, request.user))


@router.post("/projects", response={201: ProjectDetailAnswer}, summary="Create a project (staff)")
def create_project(request: HttpRequest, payload: Named) -> Any:
    return Status(201, _detail(request, people.make_project(request.user, payload.name)))


@router.get(
    "/projects/{int:project_id}",
    response=ProjectDetailAnswer,
    summary="A project with its members; open invitations for its admins",
)
def get_project(request: HttpRequest, project_id: int) -> Any:
    return _detail(request, people.visible_project(request, project_id))


@router.post("/projects/{int:project_id}/rename", response=ProjectDetailAnswer, summary="Rename a project")
def rename_project(request: HttpRequest, project_id: int, payload: Named) -> Any:
    project = project_for(request, project_id, Role.ADMIN)
    people.rename_project(project, payload.name)
    return _detail(request, project)


@router.post(
    "/projects/{int:project_id}/members/{int:member_id}", response=MemberAnswer, summary="Give a member another role"
)
def set_role(request: HttpRequest, project_id: int, member_id: int, payload: RoleIn) -> Any:
    member = people.manageable_member(request, people.visible_project(request, project_id), member_id, is_removed=False)
    people.set_role(member, people.checked_role(payload.role))
    return member


@router.delete("/projects/{int:project_id}/members/{int:member_id}", response={204: None}, summary="Remove a member")
def remove_member(request: HttpRequest, project_id: int, member_id: int) -> Any:
    """Admins may remove others; everybody may leave."""
    people.remove_member(
        people.manageable_member(request, people.visible_project(request, project_id), member_id, is_removed=True)
    )
    return Status(204, None)


@router.post(
    "/projects/{int:project_id}/invitations", response={201: NewInvitationAnswer}, summary="Invite somebody by a link"
)
def invite(request: HttpRequest, project_id: int, payload: InvitationIn) -> Any:
    """`link` is in this answer and nowhere else."""
    project = project_for(request, project_id, Role.ADMIN)
    invitation, link = people.create_invitation(request, project, people.checked_role(payload.role), payload.comment)
    return Status(201, InvitationAnswer.from_orm(invitation).dict() | {"link": link})


@router.delete(
    "/projects/{int:project_id}/invitations/{int:invitation_id}", response={204: None}, summary="End an invitation"
)
def withdraw(request: HttpRequest, project_id: int, invitation_id: int) -> Any:
    """Withdraw an invitation. One that was used stays as it is."""
    people.withdraw_invitation(project_for(request, project_id, Role.ADMIN), invitation_id)
    return Status(204, None)


def _staff(request: HttpRequest) -> User:
    """Error: Http404 for other users, who may not know who has an account."""
    if not request.user.is_staff:
        raise Http404
    return request.user


@router.get("/people", response=PageOf[PersonAnswer], summary="List the people of the installation (staff)")
def list_people(request: HttpRequest, query: Query[ListQuery]) -> Any:
    _staff(request)
    return listing(User.objects.order_by("username"), query)


@router.post("/people/{int:user_id}/close", response=PersonAnswer, summary="Close an account (staff)")
def close_account(request: HttpRequest, user_id: int) -> Any:
    """Close an account. Its sessions, sockets, links, invitations and tokens end at once."""
    return _set_active(request, user_id, is_active=False)


@router.post("/people/{int:user_id}/open", response=PersonAnswer, summary="Open a closed account again (staff)")
def open_account(request: HttpRequest, user_id: int) -> Any:
    return _set_active(request, user_id, is_active=True)


@router.post(
    "/people/{int:user_id}/unlink",
    response=PersonAnswer,
    summary="Unlink an account from the sign-in provider's (staff)",
)
def unlink_person(request: HttpRequest, user_id: int) -> Any:
    """End its sessions and unlink it. The next sign-in finds it by its verified address. Your own: `/me/unlink`."""
    by = _staff(request)
    person = get_object_or_404(User, pk=user_id)
    if person.pk == by.pk:
        raise FieldErrors.single("self", "This is your own account: unlink it on the page Account.", None, 409)
    people.unlink(by, person)
    return person


def _set_active(request: HttpRequest, user_id: int, *, is_active: bool) -> User:
    by = _staff(request)
    person = get_object_or_404(User, pk=user_id)
    people.set_active(by, person, is_active)
    person.refresh_from_db()
    return person


@router.get(
    "/audit", response=PageOf[AuditAnswer], summary="The audit log, newest first (staff; admins of projects: theirs)"
)
def list_audit(request: HttpRequest, query: Query[ListQuery], filters: Query[AuditParameters]) -> Any:  # type: ignore[valid-type]
    """A filter that cannot be read is ignored."""
    return listing(AuditFilters.read(request.GET).entries(request), query)
