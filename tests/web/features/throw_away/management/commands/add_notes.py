from typing import Any

from django.core.management.base import BaseCommand

from hacrl_web.runs.models import Run
from tests.web.features.throw_away.models import Note


class Command(BaseCommand):
    def handle(self, *args: Any, **options: Any) -> None:
        Note.objects.bulk_create(Note(run=run, text=f"note on {run.name}") for run in Run.objects.all())
