"""Types of the API's answers on people, projects, tokens and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NotRequired

from typing_extensions import TypedDict


class TokenAnswer(TypedDict):
    id: int
    name: str
    hint: str
    scopes: list[str]
    state: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewTokenAnswer(TokenAnswer):
    token: str


class MeAnswer(TypedDict):
    id: int
    name: str
    is_staff: bool
    token: TokenAnswer | None


class PersonAnswer(TypedDict):
    id: int
    name: str
    is_active: bool
    is_staff: bool


class MemberName(TypedDict):
    id: int
    name: str


class MemberAnswer(TypedDict):
    id: int
    user: MemberName
    role: str


class InvitationAnswer(TypedDict):
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


class AuditAnswer(TypedDict):
    """before, after: the recorded fields that changed."""

    id: int
    at: datetime
    actor: str
    via: str
    address: str
    action: str
    kind: str
    object_id: str
    name: str
    project_id: int | None
    before: dict[str, Any]
    after: dict[str, Any]
