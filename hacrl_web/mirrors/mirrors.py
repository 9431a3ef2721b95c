"""Creates, changes and removes mirrors, and chooses runs; for pages and API. Error: FieldErrors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, Q
from django.utils import timezone
from typing_extensions import TypedDict

from hacrl_web.accounts.models import Project, Role
from hacrl_web.accounts.projects import require
from hacrl_web.mirrors.kinds import HAS_FILES, KINDS, checked_secret, mirror_options, whole_between
from hacrl_web.mirrors.models import Choice, Mirror, MirrorCursor, Sends
from hacrl_web.mirrors.rollout_rows import MAX_INTERVAL, MAX_ROLLOUTS
from hacrl_web.registry import values
from hacrl_web.runs.models import Run
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.stored_secrets import encrypt

MAX_MIRRORS = 20  # of a project


class MirrorState(TypedDict):
    """A mirror as its members see it.

    takes_secret: a key can be stored.  has_secret: one is; it is never shown.  folder: of its files.

    rollouts: of each agent, with their texts, at the multiples of rollout_interval steps; 0: none are sent.

    num_tries: in which the destination did not answer in time, since a run was sent; nothing is sent before
    next_try_at, which is null while it is tried.
    """

    id: int
    name: str
    kind: str
    label: str
    options: dict[str, str]
    takes_secret: bool
    has_secret: bool
    sends: str
    rollouts: int
    rollout_interval: int
    is_enabled: bool
    folder: str
    num_sent: int
    num_failing: int
    problem: str
    num_tries: int
    next_try_at: datetime | None


class RunMirrorState(TypedDict):
    """A mirror and one run. is_sent: whether the run is sent at all.  step, seq: how far.

    next_try_at: of the mirror or this run, whichever is later; null without a problem, and while it is tried.
    """

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
    next_try_at: datetime | None
    sent_at: datetime | None


def _checked(checker: values.Checker, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    sends = checker.take("sends", values.choice, fields.get("sends") or Sends.NEW, Sends.values)
    return {
        "options": mirror_options(checker, kind, fields.get("options") or {}),
        "sends": sends,
        "rollouts": checker.take("rollouts", whole_between, fields.get("rollouts"), 0, MAX_ROLLOUTS),
        "rollout_interval": checker.take(
            "rollout_interval", whole_between, fields.get("rollout_interval"), 1, MAX_INTERVAL
        ),
    }


def create_mirror(user: Any, project: Project, fields: Mapping[str, Any]) -> Mirror:
    """fields: name, kind, options, secret, sends, rollouts, rollout_interval. For admins of the project."""
    require(user, project, Role.ADMIN)
    checker = values.Checker()
    kind = checker.take("kind", values.choice, fields.get("kind"), KINDS)
    name = checker.take("name", values.name, fields.get("name") or kind or "")
    columns = _checked(checker, kind, fields) if kind else {}
    secret = checked_secret(checker, kind, fields.get("secret")) if kind else ""
    if kind:
        _check_key(checker, kind, columns["options"], has_key=bool(secret))
    checker.finish()
    if Mirror.objects.filter(project=project).count() >= MAX_MIRRORS:
        raise FieldErrors.single("too_many", f"A project has at most {MAX_MIRRORS} mirrors: remove one first.")
    try:
        with transaction.atomic():
            row = Mirror.objects.create(owner=user, project=project, kind=kind, name=name, **columns)
            if secret:
                row.ciphertext = encrypt(row.secret_name, secret)
                row.save(update_fields=["ciphertext"])
    except IntegrityError:
        raise values.name_taken(str(name)) from None
    return row


def _check_key(checker: values.Checker, kind: str, options: Mapping[str, Any], *, has_key: bool) -> None:
    if kind == "wandb" and options.get("mode") == "online" and not has_key:
        checker.add("secret", "missing", "Online mode needs an API key.")


@transaction.atomic
def change_mirror(user: Any, mirror: Mirror, fields: Mapping[str, Any]) -> Mirror:
    """fields: of options, sends, rollouts, rollout_interval, is_enabled and secret those that change.

    A new secret replaces the old one; another url removes it.
    """
    require(user, mirror.project, Role.ADMIN)
    try:  # as it is now: somebody else may have changed it since it was read
        mirror = Mirror.objects.select_for_update().get(pk=mirror.pk)
    except Mirror.DoesNotExist:
        raise FieldErrors.single("not_found", "This mirror has been removed.", status=404) from None
    checker = values.Checker()
    current = {name: getattr(mirror, name) for name in ("options", "sends", "rollouts", "rollout_interval")}
    changes = {name: fields[name] for name in current if fields.get(name) is not None}
    columns = {k: v for k, v in _checked(checker, mirror.kind, current | changes).items() if k in changes}
    secret = checked_secret(checker, mirror.kind, fields.get("secret"))
    options = columns.get("options", mirror.options)
    keeps_key = options.get("url") == mirror.options.get("url")  # a key goes only where its owner sent it
    if "options" in columns:
        _check_key(checker, mirror.kind, options, has_key=bool(secret or (keeps_key and mirror.ciphertext)))
    is_enabled = fields.get("is_enabled")
    if is_enabled is not None and not isinstance(is_enabled, bool):
        checker.add("is_enabled", "invalid", "Must be true or false.")
    checker.finish()
    if not keeps_key:
        columns["ciphertext"] = ""
    if secret:
        columns["ciphertext"] = encrypt(mirror.secret_name, secret)
    if is_enabled is not None:
        columns["is_enabled"] = is_enabled
    # A changed setting may be the cure: what failed is tried at once. The time tells a sender of the change.
    columns |= {"problem": "", "tries": 0, "next_try_at": timezone.now()}
    Mirror.objects.filter(pk=mirror.pk).update(**columns)
    mirror.refresh_from_db()
    MirrorCursor.objects.filter(mirror=mirror, tries__gt=0).update(tries=0, next_try_at=mirror.created_at)
    return mirror


def delete_mirror(user: Any, mirror: Mirror) -> None:
    """The row and its cursors. What was sent, and files that were written, stay."""
    require(user, mirror.project, Role.ADMIN)
    mirror.delete()


def choose(user: Any, run: Run, mirror: Mirror, choice: Any) -> MirrorCursor:
    """Whether the mirror sends this run: default, on or off. For members; the run is of the mirror's project."""
    require(user, run.project, Role.MEMBER)
    checker = values.Checker()
    (word,) = checker.finish(checker.take("choice", values.choice, choice, Choice.values))
    cursor, _ = MirrorCursor.objects.update_or_create(mirror=mirror, run=run, defaults={"choice": word})
    return cursor


def mirror_states(project: Project) -> list[MirrorState]:
    counts = {
        "num_sent": Count("cursors", filter=Q(cursors__sent_at__isnull=False)),
        "num_failing": Count("cursors", filter=Q(cursors__tries__gt=0)),
    }
    rows = Mirror.objects.filter(project=project).annotate(**counts)
    return [_state(row) for row in rows]


def mirror_state(mirror: Mirror) -> MirrorState:
    return next(one for one in mirror_states(mirror.project) if one["id"] == mirror.pk)


def _state(row: Any) -> MirrorState:
    failures = row.cursors.filter(tries__gt=0).order_by("-next_try_at").values_list("problem", flat=True)
    writes = row.kind in HAS_FILES or row.options.get("mode") == "offline"
    return {
        "id": row.pk,
        "name": row.name,
        "kind": row.kind,
        "label": KINDS[row.kind].label,
        "options": row.options,
        "takes_secret": bool(KINDS[row.kind].secret),
        "has_secret": bool(row.ciphertext),
        "sends": row.sends,
        "rollouts": row.rollouts,
        "rollout_interval": row.rollout_interval,
        "is_enabled": row.is_enabled,
        "folder": str(row.folder) if writes else "",
        "num_sent": row.num_sent,
        "num_failing": row.num_failing,
        "problem": row.problem or failures.first() or "",
        "num_tries": row.tries,
        "next_try_at": _next_try([row] if row.problem else []),
    }


def _next_try(waits: list[Mirror | MirrorCursor]) -> datetime | None:
    """The last of their times, if it is to come."""
    return max((one.next_try_at for one in waits if one.next_try_at > timezone.now()), default=None)


def run_mirror_states(run: Run) -> list[RunMirrorState]:
    cursors = {one.mirror_id: one for one in MirrorCursor.objects.filter(run=run)}
    return [
        _run_state(run, mirror, cursors.get(mirror.pk) or MirrorCursor(mirror=mirror, run=run))
        for mirror in Mirror.objects.filter(project=run.project_id)
    ]


def _run_state(run: Run, mirror: Mirror, cursor: MirrorCursor) -> RunMirrorState:
    is_usual = mirror.sends == Sends.NEW and run.created_at >= mirror.created_at
    is_sent = cursor.choice == Choice.ON or (is_usual and cursor.choice == Choice.DEFAULT)
    state: Any = {name: getattr(cursor, name) for name in ("choice", "is_done", "seq", "step", "sent_at")}
    is_waiting = mirror.is_enabled and is_sent and not cursor.is_done
    waits: list[Mirror | MirrorCursor] = [one for one in (mirror, cursor) if is_waiting and one.problem]
    state["problem"] = waits[0].problem if waits else ""
    state["next_try_at"] = _next_try(waits)
    url = cursor.url if cursor.url.startswith(("https://", "http://")) else ""
    state |= {"id": mirror.pk, "name": mirror.name, "kind": mirror.kind, "label": KINDS[mirror.kind].label}
    result: RunMirrorState = state | {"is_enabled": mirror.is_enabled, "is_sent": is_sent, "url": url}
    return result
