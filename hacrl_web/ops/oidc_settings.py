"""The settings of sign-in at an OpenID Connect provider, read from the environment. No other part reads them there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from hacrl_web.ops.preflight import is_loopback
from hacrl_web.ops.secret_files import secret

NAMES = ("CLIENT_ID", "CLIENT_SECRET", "CLIENT_SECRET_FILE", "NAME", "ROLES", "GROUPS_CLAIM", "SCOPES", "SESSION_H")
STAFF = "staff"
ROLES_IN_PROJECTS = ("viewer", "member", "admin")
EVERYBODY = "*"  # in place of a group: all accounts of the provider
MAX_SESSION_H = 24 * 14


@dataclass(frozen=True)
class GroupRole:
    """What the members of a group of the provider may do here. project: its id; None: the role is staff."""

    group: str
    role: str
    project: int | None


@dataclass(frozen=True)
class OidcProvider:
    """A provider, and this installation as its client. name: for people, such as "Lab login"."""

    issuer: str
    client_id: str
    client_secret: str
    name: str = "single sign-on"
    groups_claim: str = "groups"
    scopes: str = "openid email profile"
    roles: tuple[GroupRole, ...] = ()
    session_h: float = 12


def provider_of_environment() -> OidcProvider | None:
    """None without HACRL_OIDC_ISSUER. Error: ImproperlyConfigured, with the variable and what to do."""
    issuer = _value("ISSUER").rstrip("/")
    if not issuer:
        stray = [name for name in NAMES if _value(name)]
        if stray:
            raise ImproperlyConfigured(f"HACRL_OIDC_{stray[0]} is set without HACRL_OIDC_ISSUER: set both, or neither.")
        return None
    client_id, client_secret = _value("CLIENT_ID"), secret("HACRL_OIDC_CLIENT_SECRET")
    if not client_id or not client_secret:
        raise ImproperlyConfigured(
            "HACRL_OIDC_ISSUER needs HACRL_OIDC_CLIENT_ID and HACRL_OIDC_CLIENT_SECRET (or ..._SECRET_FILE), which the "
            "provider gives out for a client."
        )
    scopes = _value("SCOPES") or OidcProvider.scopes
    if not {"openid", "email"} <= set(scopes.split()):
        raise ImproperlyConfigured(f"HACRL_OIDC_SCOPES is {scopes!r}: it must name openid and email.")
    return OidcProvider(
        issuer=_checked_issuer(issuer),
        client_id=client_id,
        client_secret=client_secret,
        name=_value("NAME") or OidcProvider.name,
        groups_claim=_value("GROUPS_CLAIM") or OidcProvider.groups_claim,
        scopes=scopes,
        roles=roles_of_text(_value("ROLES")),
        session_h=_hours(_value("SESSION_H")),
    )


def roles_of_text(text: str) -> tuple[GroupRole, ...]:
    """Such as "lab-admins=staff,nlp=member@1,*=viewer@2". Error: ImproperlyConfigured."""
    return tuple(_group_role(entry.strip()) for entry in text.split(",") if entry.strip())


def _group_role(entry: str) -> GroupRole:
    group, equals, rest = entry.rpartition("=")  # a group may be a path or a name with "="
    role, at, project = rest.partition("@")
    if group and equals and role == STAFF and not at and group != EVERYBODY:
        return GroupRole(group, STAFF, None)
    if group and equals and role in ROLES_IN_PROJECTS and project.isascii() and project.isdecimal():
        return GroupRole(group, role, int(project))
    raise ImproperlyConfigured(
        f"HACRL_OIDC_ROLES has {entry!r}: write GROUP=staff or GROUP=ROLE@PROJECT, where ROLE is viewer, member or "
        "admin and PROJECT is the number in the address of the project's page."
    )


def _checked_issuer(issuer: str) -> str:
    parts = urlsplit(issuer)
    is_plain = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if not parts.hostname or parts.query or parts.fragment or not (parts.scheme == "https" or is_plain):
        raise ImproperlyConfigured(
            f"HACRL_OIDC_ISSUER is {issuer!r}: give the https address of the provider, the one before "
            "/.well-known/openid-configuration."
        )
    return issuer


def _hours(text: str) -> float:
    try:
        hours = float(text or OidcProvider.session_h)
    except ValueError:
        hours = 0
    if not 0 < hours <= MAX_SESSION_H:
        raise ImproperlyConfigured(
            f"HACRL_OIDC_SESSION_H is {text!r}: give hours, more than 0, at most {MAX_SESSION_H}."
        )
    return hours


def _value(name: str) -> str:
    return os.environ.get(f"HACRL_OIDC_{name}", "").strip()
