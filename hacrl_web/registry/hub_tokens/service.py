"""Hugging Face tokens of users and projects: stored encrypted, shown to nobody, used for requests to the hub.

The cipher's key is derived from the token's owner (web/stored_secrets.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from hacrl_web.accounts.models import Project, Role, User, includes
from hacrl_web.accounts.roles.projects import role_in
from hacrl_web.registry.base.children import HUB_ACCOUNT
from hacrl_web.registry.models import HubToken, LanguageModel
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.stored_secrets import SecretUnreadable, decrypt, encrypt

Owner = User | Project
_PLAUSIBLE = re.compile(r"[!-~]{8,200}")


def _secret_name(owner: Owner) -> str:
    return f"hub token of {'project' if isinstance(owner, Project) else 'user'} {owner.pk}"


def hub_token_of(owner: Owner) -> HubToken | None:
    """The row of a user or a project."""
    return HubToken.objects.filter(**_key(owner)).first()


def _key(owner: Owner) -> dict[str, Any]:
    return {"project" if isinstance(owner, Project) else "user": owner}


@sensitive_variables("text", "token")
def set_hub_token(owner: Owner, text: str) -> HubToken:
    """Check a token with the hub and store it in place of the owner's last one. Error: FieldErrors.

    A hub that does not answer is no reason to refuse it: `problem` says so.
    """
    token = text.strip()
    if not _PLAUSIBLE.fullmatch(token):
        message = "Paste the whole token, such as hf_…: 8 to 200 letters, digits and signs without spaces."
        raise FieldErrors.single("invalid", message, "token")
    answer = HUB_ACCOUNT.ask(at="token", hub_token=token)
    if answer.get("refused"):
        raise FieldErrors.single("refused", str(answer["refused"]), "token")
    now = timezone.now()
    values = {
        "ciphertext": encrypt(_secret_name(owner), token),
        "hub_name": str(answer.get("name") or "")[:200],
        "problem": str(answer.get("error") or "")[:300],
    }
    values |= {"set_at": now, "checked_at": now, "last_used_at": None}
    row, _ = HubToken.objects.update_or_create(**_key(owner), defaults=values)
    return row


def remove_hub_token(owner: Owner) -> None:
    """Remove the owner's token, if there is one."""
    if row := hub_token_of(owner):
        row.delete()


def usable_hub_token(user: User, project: Project) -> str:
    """The token for a user's requests in a project: the project's if the user is a member, else the user's own.

    Empty if there is neither. Error: FieldErrors if it was encrypted with another secret key.
    """
    role = role_in(user, project)
    row = hub_token_of(project) if user.is_active and role and includes(role, Role.MEMBER) else None
    row = row or (hub_token_of(user) if user.is_active else None)
    if row is None:
        return ""
    text = _read(row)
    HubToken.objects.filter(pk=row.pk).update(last_used_at=timezone.now())
    return text


def hub_token_for(user: User, models: Sequence[LanguageModel]) -> str:
    """The token for requests about models of one project; empty if none is of the hub. Error: FieldErrors."""
    is_hub = any(model.kind == LanguageModel.Kind.HUB for model in models)
    return usable_hub_token(user, models[0].project) if is_hub else ""


def is_readable(row: HubToken) -> bool:
    """Whether the installation's secret key is still the one that encrypted the token."""
    try:
        _read(row)
    except FieldErrors:
        return False
    return True


def _read(row: HubToken) -> str:
    owner = row.project or row.user
    assert owner is not None
    try:
        return decrypt(_secret_name(owner), row.ciphertext)
    except SecretUnreadable:
        message = f"The Hub token {row} cannot be read: the installation's secret key has changed. Set the token again."
        raise FieldErrors.single("unreadable_token", message, status=409) from None


def hub_token_state(owner: Owner) -> dict[str, Any]:
    """Pages and API may show this of the owner's token."""
    row = hub_token_of(owner)
    names = ("set_at", "last_used_at", "checked_at", "hub_name", "problem")
    state = {"is_set": row is not None, **{name: getattr(row, name, None) for name in names}}
    if row and not is_readable(row):
        state["problem"] = "It cannot be read: the installation's secret key has changed. Set the token again."
    state["works"] = None if row is None else bool(state["hub_name"]) and not state["problem"]
    return state
