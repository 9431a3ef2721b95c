"""The Celery application: messages that notify workers of queued runs. The job itself is a row."""

import os

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hacrl_web.settings")

app = Celery("hacrl_web")
app.config_from_object("django.conf:settings", namespace="CELERY")
setup_logging.connect(lambda **_: None, weak=False)  # Django has set it up: Celery changes nothing
app.autodiscover_tasks(["hacrl_web.runs.worker", "hacrl_web.demo"])
