"""Unsafe combinations of settings are refused with their cure, and those of a deployment pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from hacrl_web.ops import checks
from hacrl_web.ops.preflight import ROOT
from hacrl_web.ops.secret_files import BadSecret, secret, with_password

POSTGRESQL = {"ENGINE": "django.db.backends.postgresql", "NAME": "hacrl"}
STRONG = "".join(chr(65 + place % 50) for place in range(60))


@pytest.fixture(autouse=True)
def sound(settings, monkeypatch, tmp_path):
    """The settings of a safe public site; each test changes one."""
    settings.ALLOWED_HOSTS = ["hacrl.example.org"]
    settings.DEBUG = False
    settings.SECRET_KEY = STRONG
    monkeypatch.setitem(settings.DATABASES, "default", POSTGRESQL)
    settings.REDIS_URL = "redis://:password@redis:6379/0"
    settings.PUBLIC_URL = "https://hacrl.example.org"
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True
    settings.DATA_DIR = tmp_path
    settings.PLAIN_HTTP = False
    for name in ("HACRL_SECRET_KEY", "HACRL_SECRET_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


def found() -> dict[str, str]:
    return {message.id: message.msg for message in [*checks.safe_settings(), *checks.safe_deployment()]}


def test_safe_settings_pass():
    assert found() == {}
    checks.refuse_unsafe_settings()


def test_this_machine_alone_needs_neither_tls_nor_a_long_key(settings):
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
    settings.DEBUG, settings.SECRET_KEY, settings.PUBLIC_URL = True, "short", "http://127.0.0.1:8000"
    settings.SECURE_PROXY_SSL_HEADER = None
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False
    assert checks.safe_settings() == []


@pytest.mark.parametrize(("name", "value", "cure"), [("SECRET_KEY", "short", "random"), ("DEBUG", True, "unset it")])
def test_container_needs_both_for_every_host_name(settings, name, value, cure):
    settings.ALLOWED_HOSTS = ["localhost"]
    assert found() == {}
    setattr(settings, name, value)
    assert cure in found()["hacrl.E011"]


@pytest.mark.parametrize("key", ["short", "a" * 80])
def test_weak_key_is_refused(settings, key):
    settings.SECRET_KEY = key
    assert "The secret key is weak" in found()["hacrl.E002"]
    assert key not in found()["hacrl.E002"]


@pytest.mark.parametrize(
    ("changes", "code", "cure"),
    [
        ({"DEBUG": True}, "hacrl.E001", "unset it"),
        ({"ALLOWED_HOSTS": ["*"]}, "hacrl.E003", "list the names"),
        ({"ALLOWED_HOSTS": ["a.example.org", "."]}, "hacrl.E003", "list the names"),
        ({"REDIS_URL": "redis://redis:6379/0"}, "hacrl.E006", "REDIS_PASSWORD_FILE"),
        ({"REDIS_URL": "rediss://user@10.0.0.7:6379/0"}, "hacrl.E006", "REDIS_PASSWORD_FILE"),
        ({"SECURE_PROXY_SSL_HEADER": None}, "hacrl.E007", "HACRL_TLS_PROXY=1"),
        ({"SESSION_COOKIE_SECURE": False}, "hacrl.E008", "COOKIE_SECURE"),
        ({"CSRF_COOKIE_SECURE": False}, "hacrl.E008", "COOKIE_SECURE"),
    ],
)
def test_each_unsafe_setting_is_refused_with_its_cure(settings, changes, code, cure):
    for name, value in changes.items():
        setattr(settings, name, value)
    assert cure in found()[code]
    with pytest.raises(ImproperlyConfigured, match=cure.replace("(", r"\(")):
        checks.refuse_unsafe_settings()


@pytest.mark.parametrize("url", ["redis://127.0.0.1:6379/0", "redis://localhost/0", "unix:///run/redis.sock?db=0"])
def test_redis_of_this_machine_needs_no_password(settings, url):
    settings.REDIS_URL = url
    assert found() == {}


def test_sqlite_is_for_one_host_and_a_local_disk(settings, tmp_path, monkeypatch):
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}
    monkeypatch.setitem(settings.DATABASES, "default", sqlite)
    assert set(found()) == {"hacrl.E005"}
    settings.REDIS_URL = "unix:///run/redis.sock"
    assert found() == {}
    mounts = [("/", "ext4"), (str(tmp_path), "nfs4"), (f"{tmp_path}-other", "ext4")]
    kinds = [type("Mount", (), {"mountpoint": point, "fstype": kind}) for point, kind in mounts]
    monkeypatch.setattr(checks.psutil, "disk_partitions", lambda all: kinds)
    assert "network folder (nfs4)" in found()["hacrl.E004"]


def test_key_file_that_others_can_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "secret_key"
    path.write_text(STRONG)
    path.chmod(0o644)
    assert f"chmod 600 {path}" in found()["hacrl.E009"]
    monkeypatch.setenv("HACRL_SECRET_KEY_FILE", "/run/secrets/secret_key")  # then the file is not used
    assert found() == {}
    monkeypatch.delenv("HACRL_SECRET_KEY_FILE")
    path.chmod(0o600)
    assert found() == {}


def test_plain_http_is_refused_in_a_deployment_unless_allowed(settings):
    settings.PUBLIC_URL, settings.SECURE_PROXY_SSL_HEADER = "http://hacrl.example.org", None
    assert checks.safe_settings() == []  # ./hacrl up --host in a laboratory goes on
    assert "HACRL_TLS_PROXY=1" in found()["hacrl.E010"]
    settings.PLAIN_HTTP = True
    assert found() == {}


# ---- the settings themselves, in a process of their own ------------------------------------------------------------


def checked(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    variables = {**clean, "HACRL_DATA": str(tmp_path), "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120)


def test_deployment_behind_a_tls_proxy_has_no_finding_at_all(tmp_path):
    for name, text in (("database", "p/w:d@"), ("redis", "r#d"), ("key", STRONG)):
        (tmp_path / name).write_text(f"{text}\n")
    done = checked(
        tmp_path,
        HACRL_ALLOWED_HOSTS="hacrl.example.org",
        HACRL_PUBLIC_URL="https://hacrl.example.org",
        HACRL_TLS_PROXY="1",
        HACRL_SECRET_KEY_FILE=str(tmp_path / "key"),
        DATABASE_URL="postgres://hacrl@database:5432/hacrl",
        DATABASE_PASSWORD_FILE=str(tmp_path / "database"),
        REDIS_URL="redis://redis:6379/0",
        REDIS_PASSWORD_FILE=str(tmp_path / "redis"),
    )
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout
    done = checked(tmp_path, HACRL_ALLOWED_HOSTS="hacrl.example.org", HACRL_DEBUG="1")
    assert done.returncode == 1
    assert {"hacrl.E001", "hacrl.E010"} <= {word.strip("():") for word in done.stderr.split()}


# ---- secrets -------------------------------------------------------------------------------------------------------


def test_secret_comes_from_its_file(tmp_path, monkeypatch):
    assert secret("OWL") == ""
    monkeypatch.setenv("OWL_FILE", str(tmp_path / "owl"))
    with pytest.raises(BadSecret, match=r"OWL_FILE=.* cannot be read \(No such file"):
        secret("OWL")
    (tmp_path / "owl").write_text("\n")
    with pytest.raises(BadSecret, match="is empty"):
        secret("OWL")
    (tmp_path / "owl").write_bytes(b"\xff\xfe")
    with pytest.raises(BadSecret, match="not text"):
        secret("OWL")
    (tmp_path / "owl").write_text("hoot\n")
    assert secret("OWL") == "hoot"
    monkeypatch.setenv("OWL", "other")
    with pytest.raises(BadSecret, match="both set"):
        secret("OWL")
    monkeypatch.delenv("OWL_FILE")
    assert secret("OWL") == "other"


@pytest.mark.parametrize(
    ("url", "joined"),
    [
        ("redis://redis:6379/0", "redis://:p%2Fw%40@redis:6379/0"),
        ("redis://user@redis/0?a=b", "redis://user:p%2Fw%40@redis/0?a=b"),
        ("redis://:own@redis:6379/0", "redis://:own@redis:6379/0"),
        ("unix:///run/redis.sock?db=0", "unix:///run/redis.sock?db=0"),
    ],
)
def test_password_is_put_into_an_address_without_one(url, joined):
    assert with_password(url, "p/w@") == joined
    assert with_password(url, "") == url
