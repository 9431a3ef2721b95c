"""The audit log: every change that a person, a program or a command makes, with values before and after.

`@audited` on a model names the recorded fields. Saving, deleting, and `update` and `bulk_create` of an
`AuditedQuerySet` then write the entries, without code in views or services. Entries are never changed. They store the
ids and names of users, projects and objects, so that they remain readable after those are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, transaction
from django.db.models.signals import post_delete, post_save, pre_save
from django.utils import timezone

from hacrl_web.accounts.audit.actor import Actor, current_actor

CREATED, CHANGED, DELETED = "created", "changed", "deleted"
# Kinds are stored in lower case, as Django names models.
KIND_WORDS = {"api token": "API token", "hub token": "Hub token"}
WITHOUT_ARTICLE = ("notification settings", "retention")
MAX_TEXT = 4000  # enough for texts that users write (runs/labels.py); a traceback is cut
HIDDEN = "(hidden)"
NOTHING: tuple[Any, ...] = (None, "", {}, [])
ModelT = TypeVar("ModelT", bound=type[models.Model])
RowT = TypeVar("RowT", bound=models.Model)
Values = dict[str, Any]


class AppendOnly(TypeError):
    """An attempt to change recorded entries."""


class AuditEntryQuerySet(models.QuerySet["AuditEntry"]):
    def visible_to(self, user: AbstractBaseUser | AnonymousUser) -> AuditEntryQuerySet:
        """For staff all; else those of the projects that the user is an admin of."""
        if not user.is_authenticated:
            return self.none()
        if user.is_staff:
            return self.all()
        return self.filter(project_id__in=user.memberships.filter(role="admin").values("project_id"))

    def update(self, **_: Any) -> NoReturn:
        raise AppendOnly("Entries of the audit log are not changed.")

    def delete(self) -> NoReturn:
        raise AppendOnly("Entries of the audit log are not deleted.")


class AuditEntry(models.Model):
    """One change: who, what, when, before and after."""

    at = models.DateTimeField(default=timezone.now)
    actor_id = models.BigIntegerField(null=True)  # id of the user, if one was logged in
    actor = models.CharField(max_length=200)  # name at that time
    via = models.CharField(max_length=8)  # page, api, command, upkeep
    address = models.CharField(max_length=45, blank=True)
    action = models.CharField(max_length=32)  # created, changed, deleted, or another act, such as logged in
    kind = models.CharField(max_length=40)  # of the object, such as run or project
    object_id = models.CharField(max_length=40, blank=True)
    name = models.CharField(max_length=200, blank=True)  # of the object, at that time
    project_id = models.BigIntegerField(null=True)
    before = models.JSONField(default=dict, encoder=DjangoJSONEncoder)
    after = models.JSONField(default=dict, encoder=DjangoJSONEncoder)

    objects = AuditEntryQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["project_id", "-id"], name="audit_project"),
            models.Index(fields=["actor", "-id"], name="audit_actor"),
            models.Index(fields=["kind", "object_id", "-id"], name="audit_object"),
        ]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.kind} {self.name}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnly("Entries of the audit log are not changed.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AppendOnly("Entries of the audit log are not deleted.")

    @property
    def kind_in_words(self) -> str:
        """The kind as a sentence names it: created an API token, but logged in user."""
        words = KIND_WORDS.get(self.kind, self.kind)
        if self.kind in WITHOUT_ARTICLE or self.action not in (CREATED, CHANGED, DELETED):
            return words
        return f"{'an' if words[:1].lower() in 'aeio' else 'a'} {words}"

    @property
    def changes(self) -> list[tuple[str, Any, Any]]:
        """(field, before, after) of each changed field; for a created or deleted row, of the fields with a value."""
        names = {**self.before, **self.after}
        pairs = [(name, self.before.get(name), self.after.get(name)) for name in names]
        return [(name, old, new) for name, old, new in pairs if old not in NOTHING or new not in NOTHING]


@dataclass(frozen=True)
class _Watch:
    """The recorded fields of a model."""

    fields: tuple[str, ...]
    secrets: tuple[str, ...]  # recorded as changed, without their values
    project: str  # dotted path from a row to the id of its project; empty: no project

    def values_of(self, row: Any) -> Values:
        return {name: getattr(row, row._meta.get_field(name).attname) for name in (*self.fields, *self.secrets)}

    def project_of(self, row: Any) -> int | None:
        for name in self.project.split(".") if self.project else ():
            row = getattr(row, name, None)
        return row if self.project else None

    def as_logged(self, values: Values) -> Values:
        """The values as the log stores them: secrets hidden, long texts cut."""
        short = {name: value[:MAX_TEXT] if isinstance(value, str) else value for name, value in values.items()}
        return {name: HIDDEN if name in self.secrets and value else value for name, value in short.items()}


_watched: dict[type[models.Model], _Watch] = {}


def audited(*fields: str, secrets: Sequence[str] = (), project: str = "project_id") -> Callable[[ModelT], ModelT]:
    """Class decorator of a model whose changes are recorded. Parameters: see _Watch."""

    def watch(model: ModelT) -> ModelT:
        _watched[model] = _Watch(fields, tuple(secrets), project)
        pre_save.connect(_before_save, sender=model)
        post_save.connect(_after_save, sender=model)
        post_delete.connect(_after_delete, sender=model)
        return model

    return watch


class AuditedQuerySet(models.QuerySet[RowT]):
    """Records changes of many rows, row by row."""

    def update(self, **values: Any) -> int:
        watch = _watched.get(self.model)
        if current_actor() is None or watch is None or not {*watch.fields, *watch.secrets} & values.keys():
            return super().update(**values)
        with transaction.atomic(using=self.db):
            rows = {row.pk: watch.values_of(row) for row in self.select_for_update(of=("self",))}
            changed = super().update(**values)
            now = self.model._base_manager.filter(pk__in=list(rows))
            _write(_entry(CHANGED, row, rows[row.pk], watch.values_of(row)) for row in now)
        return changed

    def bulk_create(self, objs: Iterable[RowT], *args: Any, **kwargs: Any) -> list[RowT]:
        rows = super().bulk_create(objs, *args, **kwargs)
        watch = _watched.get(self.model)
        if current_actor() is not None and watch is not None:
            _write(_entry(CREATED, row, {}, watch.values_of(row)) for row in rows)
        return rows


def note_change(action: str, row: models.Model, **after: Any) -> None:
    """Write an entry that is not a change of a row, such as a login."""
    if current_actor() is not None:
        _write([_entry(action, row, {}, after)])


def _before_save(sender: Any, instance: Any, raw: bool = False, **_: Any) -> None:
    instance._audit_before = None
    if not raw and current_actor() is not None and not instance._state.adding:
        row = sender._base_manager.filter(pk=instance.pk).first()
        instance._audit_before = _watched[sender].values_of(row) if row else None


def _after_save(sender: Any, instance: Any, created: bool, raw: bool = False, **_: Any) -> None:
    if raw or current_actor() is None:
        return
    before = {} if created else instance._audit_before or {}
    _write([_entry(CREATED if created else CHANGED, instance, before, _watched[sender].values_of(instance))])


def note_deletion(row: models.Model) -> None:
    """Write the entry of a row that nobody sees any more, and that is removed later without an actor."""
    if current_actor() is not None:
        _write([_entry(DELETED, row, _watched[type(row)].values_of(row), {})])


def _after_delete(sender: Any, instance: Any, **_: Any) -> None:
    note_deletion(instance)


def _entry(action: str, row: models.Model, before: Values, after: Values) -> AuditEntry | None:
    """None if no recorded field has changed."""
    actor, watch = current_actor(), _watched.get(type(row))
    assert isinstance(actor, Actor)
    if action == CHANGED:
        differing = [name for name in after if before.get(name) != after[name]]
        before, after = ({name: values.get(name) for name in differing} for values in (before, after))
        if not differing:
            return None
    return AuditEntry(
        actor_id=actor.user.pk if actor.user else None,
        actor=actor.name[:200],
        via=actor.via,
        address=actor.address[:45],
        action=action,
        kind=str(row._meta.verbose_name)[:40],
        object_id=str(row.pk)[:40],
        name=str(row)[:200],
        project_id=watch.project_of(row) if watch else None,
        before=watch.as_logged(before) if watch else before,
        after=watch.as_logged(after) if watch else after,
    )


def _write(entries: Iterable[AuditEntry | None]) -> None:
    AuditEntry.objects.bulk_create([entry for entry in entries if entry is not None])
