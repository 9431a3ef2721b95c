"""Creates, changes and removes mirrors, and chooses runs; for pages and API. Error: FieldErrors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from typing_extensions import TypedDict

from hacrl_web.accounts.models import Project, Role, User
from hacrl_web.accounts.roles.projects import project_for, require
from hacrl_web.mirrors.kinds import KINDS, checked_mirror_options, checked_secret
from hacrl_web.mirrors.models import Choice, Mirror, MirrorCursor, Sends
from hacrl_web.registry.base import values
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import whole_number
from hacrl_web.web.stored_secrets import encrypt

MAX_MIRRORS = 20  # of a project
# What a request may set; from page and API.
FIELDS = ("options", "sends", "rollouts", "rollout_interval")
BOUNDS = {"rollouts": (0, 20), "rollout_interval": (1, 100_000)}  # of each agent in a row; steps


class RunMirrorState(TypedDict):
    """A mirror and one run. is_sent: whether the run is sent at all.  step, seq: how far."""

    id: int
    name: str
    kind: str
    label: str
    is_enabled: bool
    choice: str
    is_sent: bool
    is_done: bool
    seq: int
    step: int
    url: str
    problem: str
    sent_at: datetime | None


def mirror_of(request: HttpRequest, project_id: int, mirror_id: int) -> Mirror:
    """A mirror of a project, for its admins. Errors: Http404, FieldErrors (403)."""
    return get_object_or_404(Mirror, project=project_for(request, project_id, Role.ADMIN), pk=mirror_id)


def _bounded(value: Any, least: int, most: int) -> int:
    """A whole number within its bounds, from a number or its text; `least` without one."""
    number = least if value in (None, "") else whole_number(str(value).strip(), most)
    if number is None or number < least or isinstance(value, bool):
        raise values.ValueProblem("out_of_bounds", f"A whole number from {least} to {most:,} is needed.")
    return number


def _checked(checker: values.Checker, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of FIELDS."""
    return {
        "options": checked_mirror_options(checker, kind, fields.get("options") or {}),
        "sends": checker.take("sends", values.choice, fields.get("sends") or Sends.NEW, Sends.values),
        **{name: checker.take(name, _bounded, fields.get(name), *bounds) for name, bounds in BOUNDS.items()},
    }


def _check_key(checker: values.Checker, kind: str, options: Mapping[str, Any], *, has_key: bool) -> None:
    if kind == "wandb" and options.get("mode") == "online" and not has_key:
        checker.add("secret", "missing", "Online mode needs an API key.")


def create_mirror(user: User, project: Project, fields: Mapping[str, Any]) -> Mirror:
    """fields: kind, name, secret, and those of FIELDS. For admins of the project."""
    require(user, project, Role.ADMIN)
    checker = values.Checker()
    (kind,) = checker.finish(checker.take("kind", values.choice, fields.get("kind"), KINDS))
    name = checker.take("name", values.name, fields.get("name") or kind)
    columns, secret = _checked(checker, kind, fields), checked_secret(checker, kind, fields.get("secret"))
    _check_key(checker, kind, columns["options"], has_key=bool(secret))
    checker.finish()
    if Mirror.objects.filter(project=project).count() >= MAX_MIRRORS:
        raise FieldErrors.single("too_many", f"A project has at most {MAX_MIRRORS} mirrors: remove one first.")
    with values.unique_name(str(name)):
        row = Mirror.objects.create(owner=user, project=project, kind=kind, name=name, **columns)
        if secret:
            row.ciphertext = encrypt(row.secret_name, secret)
            row.save(update_fields=["ciphertext"])
    return row


@transaction.atomic
def change_mirror(user: User, mirror: Mirror, fields: Mapping[str, Any]) -> Mirror:
    """fields: of FIELDS, is_enabled and secret those that change.

    A new secret replaces the old one; another url removes it.
    """
    require(user, mirror.project, Role.ADMIN)
    # As it is now: somebody else may have changed it since it was read.
    current = Mirror.objects.select_for_update().filter(pk=mirror.pk).first()
    if current is None:
        raise FieldErrors.single("not_found", "This mirror has been removed.", status=404)
    mirror, checker = current, values.Checker()
    changes = {name: fields[name] for name in FIELDS if fields.get(name) is not None}
    checked = _checked(checker, mirror.kind, {name: getattr(mirror, name) for name in FIELDS} | changes)
    columns: dict[str, Any] = {name: checked[name] for name in changes}
    secret = checked_secret(checker, mirror.kind, fields.get("secret"))
    options = columns.get("options", mirror.options)
    if options.get("url") != mirror.options.get("url"):  # a key goes only where its owner sent it
        columns["ciphertext"] = ""
    if secret:
        columns["ciphertext"] = encrypt(mirror.secret_name, secret)
    if "options" in columns:
        _check_key(checker, mirror.kind, options, has_key=bool(columns.get("ciphertext", mirror.ciphertext)))
    if fields.get("is_enabled") is not None:
        columns["is_enabled"] = fields["is_enabled"]
    checker.finish()
    Mirror.objects.filter(pk=mirror.pk).update(**columns, silence="")  # the change may be the cure
    mirror.cursors.update(problem="")
    mirror.refresh_from_db()
    return mirror


def delete_mirror(user: User, mirror: Mirror) -> None:
    """The row and its cursors. What was sent, and files that were written, stay."""
    require(user, mirror.project, Role.ADMIN)
    mirror.delete()


def choose(user: User, run: Run, mirror_id: int, choice: Any) -> None:
    """Whether a mirror of the run's project sends it: default, on or off. For members. Error: also Http404."""
    mirror = get_object_or_404(Mirror, project=run.project_id, pk=mirror_id)
    require(user, run.project, Role.MEMBER)
    checker = values.Checker()
    (word,) = checker.finish(checker.take("choice", values.choice, choice, Choice.values))
    MirrorCursor.objects.update_or_create(mirror=mirror, run=run, defaults={"choice": word})


def run_mirror_states(run: Run) -> list[RunMirrorState]:
    cursors = {one.mirror_id: one for one in MirrorCursor.objects.filter(run=run)}
    mirrors = Mirror.objects.filter(project=run.project_id)
    return [_run_state(run, one, cursors.get(one.pk) or MirrorCursor(mirror=one, run=run)) for one in mirrors]


def _run_state(run: Run, mirror: Mirror, cursor: MirrorCursor) -> RunMirrorState:
    is_usual = mirror.sends == Sends.NEW and run.created_at >= mirror.created_at
    is_sent = cursor.choice == Choice.ON or (is_usual and cursor.choice == Choice.DEFAULT)
    is_waiting = mirror.is_enabled and is_sent and not cursor.is_done
    state: Any = {name: getattr(cursor, name) for name in ("choice", "is_done", "seq", "step", "sent_at")}
    state |= {name: getattr(mirror, name) for name in ("id", "name", "kind", "label", "is_enabled")}
    state["problem"] = (mirror.silence or cursor.problem) if is_waiting else ""
    state["url"] = cursor.url if cursor.url.startswith(("https://", "http://")) else ""
    result: RunMirrorState = state | {"is_sent": is_sent}
    return result
