"""The Celery application: messages that notify workers of queued runs. The job itself is a row."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hacrl_web.settings")

app = Celery("hacrl_web")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["hacrl_web.runs.worker", "hacrl_web.demo"])
