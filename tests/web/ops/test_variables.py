"""Each variable is read in its form, an empty one counts as not set, and an invalid one is named with its cure."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.core.exceptions import ImproperlyConfigured

from hacrl_web.ops import variables
from hacrl_web.ops.preflight import ROOT

READ = """
from django.conf import settings
print(settings.REWARD_AUTHORS, settings.HAS_TLS, settings.API_READS_PER_MINUTE, settings.CONNECTIONS_PER_ADDRESS,
      settings.TRAINER_COMMAND, settings.WEBHOOK_ALLOW, settings.MIRROR_ALLOW, settings.DEFAULT_FROM_EMAIL)
"""
NAMES = (
    *("HACRL_REWARD_AUTHORS", "HACRL_TLS_PROXY", "HACRL_API_READS_PER_MINUTE", "HACRL_CONNECTIONS_PER_ADDRESS"),
    *("HACRL_TRAINER_COMMAND", "HACRL_WEBHOOK_ALLOW", "HACRL_EMAIL_FROM", "HACRL_HSTS_S", "HACRL_LOG_FORMAT"),
    *("HACRL_DEBUG", "HACRL_BUBBLEWRAP", "HACRL_EMAIL_URL", "DATABASE_URL", "REDIS_URL"),
)


def started(folder, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = {**clean, "HACRL_DATA": str(folder), "DJANGO_SETTINGS_MODULE": "hacrl_web.settings", **environment}
    command = [sys.executable, "-c", READ]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def test_empty_values_count_as_not_set(tmp_path):
    usual, empty = started(tmp_path), started(tmp_path, **dict.fromkeys(NAMES, ""))
    assert usual.stdout == empty.stdout == "staff False 1200 256 None [] ['api.wandb.ai'] hacrl@localhost\n", (
        empty.stderr
    )
    assert started(tmp_path, HACRL_MIRROR_ALLOW="").stdout.split()[-2] == "[]"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("HACRL_REWARD_AUTHORS", "nobody", "HACRL_REWARD_AUTHORS is 'nobody': give staff, admins or members."),
        ("HACRL_TLS_PROXY", "true", "HACRL_TLS_PROXY is 'true': give 0 or 1."),
        ("HACRL_PLAIN_HTTP", "yes", "HACRL_PLAIN_HTTP is 'yes': give 0 or 1."),
        ("HACRL_BUBBLEWRAP", "off", "HACRL_BUBBLEWRAP is 'off': give 0 or 1."),
        ("HACRL_LM_EVAL_METRIC_CODE", "2", "HACRL_LM_EVAL_METRIC_CODE is '2': give 0 or 1."),
        ("HACRL_API_READS_PER_MINUTE", "abc", "HACRL_API_READS_PER_MINUTE is 'abc': give a whole number from 0"),
        ("HACRL_CONNECTIONS_PER_ADDRESS", "0", "HACRL_CONNECTIONS_PER_ADDRESS is '0': give a whole number from 1"),
        ("HACRL_HSTS_S", "-1", "HACRL_HSTS_S is '-1': give a whole number from 0"),
        ("HACRL_TRAINER_COMMAND", "python", "HACRL_TRAINER_COMMAND is 'python': give a JSON list of texts"),
        ("HACRL_TRAINER_PREFIX", "srun 'x", 'HACRL_TRAINER_PREFIX is "srun \'x": close its quotes'),
        ("HACRL_TRAINER_PLACE", "slurm", "is 'slurm': remove it and set HACRL_TRAINER_PREFIX, such as srun --gpus=1"),
        ("HACRL_TRAINER_PLACE", "kubernetes", "is 'kubernetes': remove it and train in workers that have GPUs"),
        ("HACRL_WEBHOOK_ALLOW", "https://a.example", "'https://a.example' is not a host"),
        ("HACRL_EMAIL_URL", "smtp://mail:port", "HACRL_EMAIL_URL cannot be read"),
        ("DATABASE_URL", "db.example.org", "DATABASE_URL cannot be read"),
        ("REDIS_URL", "redis:6379", "REDIS_URL must begin with redis://"),
    ],
)
def test_a_start_names_an_invalid_variable_and_what_is_allowed(tmp_path, name, value, message):
    done = started(tmp_path, **{name: value})
    assert done.returncode == 1
    assert name in done.stderr.splitlines()[-1], done.stderr
    assert message in done.stderr.splitlines()[-1]


def test_an_address_with_a_password_is_in_no_error(monkeypatch):
    monkeypatch.setenv("OWL", "http://user:hoot@mail.example.org")
    with pytest.raises(ImproperlyConfigured, match="OWL cannot be read") as refused:
        variables.read_mail_server("OWL")
    assert "hoot" not in str(refused.value)


def test_prefix_is_split_as_a_shell_splits_words(monkeypatch):
    monkeypatch.setenv("OWL", "srun --gpus=1 --comment='two words' $HOME;")
    assert variables.read_words("OWL") == ["srun", "--gpus=1", "--comment=two words", "$HOME;"]
    monkeypatch.setenv("HACRL_TRAINER_PLACE", "local")  # of the version before: as it was
    variables.refuse_replaced("HACRL_TRAINER_PLACE", {"slurm": "remove it"})


@pytest.mark.parametrize("value", ["[]", "{}", '["python", 1]', '"python"', "null"])
def test_command_is_a_list_of_texts(monkeypatch, value):
    monkeypatch.setenv("OWL", value)
    with pytest.raises(ImproperlyConfigured, match="JSON list"):
        variables.read_command("OWL")
    monkeypatch.setenv("OWL", ' ["python", "-m", "workers"]')
    assert variables.read_command("OWL") == ["python", "-m", "workers"]


@pytest.mark.parametrize("value", ["1.5", "1e3", "٣", "9" * 10])
def test_number_is_a_plain_and_whole_one(monkeypatch, value):
    monkeypatch.setenv("OWL", value)
    with pytest.raises(ImproperlyConfigured, match="OWL is"):
        variables.read_number("OWL", 1)
    monkeypatch.setenv("OWL", " 12 ")
    assert variables.read_number("OWL", 1) == 12
