"""The settings of sign-in at an OpenID Connect provider, read from the environment. No other part reads them there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from hacrl_web.ops.preflight import is_loopback
from hacrl_web.ops.secret_files import secret

NAMES = (
    "CLIENT_ID",
    "CLIENT_SECRET",
    "CLIENT_SECRET_FILE",
    "NAME",
    "ROLES",
    "GROUPS_CLAIM",
    "SCOPES",
    "SESSION_H",
    "ROLES_D",
)
STAFF = "staff"
ROLES_IN_PROJECTS = ("viewer", "member", "admin")
EVERYBODY = "*"  # in place of a group: all accounts of the provider
MAX_SESSION_H = 24 * 14
MAX_ROLES_D = 366


@dataclass(frozen=True)
class GroupRole:
    """What the members of a group of the provider may do here. project: its id; None: the role is staff."""

    group: str
    role: str
    project: int | None


@dataclass(frozen=True)
class OidcProvider:
    """A provider, and this installation as its client.

    name: for people, such as "Lab login".  session_h: hours until a person signs in again.
    roles_d: days after a person's last sign-in until what its groups gave ends.
    """

    issuer: str
    client_id: str
    client_secret: str
    name: str = "single sign-on"
    groups_claim: str = "groups"
    scopes: str = "openid email profile"
    roles: tuple[GroupRole, ...] = ()
    session_h: float = 12
    roles_d: float = 30


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
    session_h = _number("SESSION_H", OidcProvider.session_h, "hours", 0, MAX_SESSION_H)
    return OidcProvider(
        issuer=_checked_issuer(issuer),
        client_id=client_id,
        client_secret=client_secret,
        name=_value("NAME") or OidcProvider.name,
        groups_claim=_value("GROUPS_CLAIM") or OidcProvider.groups_claim,
        scopes=scopes,
        roles=roles_of_text(_value("ROLES")),
        session_h=session_h,
        roles_d=_number("ROLES_D", OidcProvider.roles_d, "days", session_h / 24, MAX_ROLES_D),
    )


def roles_of_text(text: str) -> tuple[GroupRole, ...]:
    """The roles of a text such as "lab-admins=staff,nlp=member@1,*=viewer@2". Error: ImproperlyConfigured."""
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


def _number(name: str, usual: float, unit: str, above: float, most: float) -> float:
    """Error: ImproperlyConfigured for a value that is not more than `above` and at most `most`."""
    text = _value(name)
    try:
        number = float(text or usual)
    except ValueError:
        number = 0
    if not above < number <= most:
        raise ImproperlyConfigured(
            f"HACRL_OIDC_{name} is {text!r}: give {unit}, more than {above:g}, at most {most:g}."
        )
    return number


def _value(name: str) -> str:
    return os.environ.get(f"HACRL_OIDC_{name}", "").strip()
