"""Django settings: by default one data folder with SQLite and Redis; environment variables change them.

docs/environment.md describes the variables. A secret may also be in a file, named by NAME_FILE.
"""

import os
import secrets
import sys
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

try:  # SQLite 3.40 to 3.51.2 can corrupt a WAL with several writers; the wheel has a newer one
    import pysqlite3

    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
except ImportError:
    pass

import dj_database_url
from django.core.exceptions import ImproperlyConfigured
from pythonjsonlogger.core import RESERVED_ATTRS

from hacrl_web.ops.oidc_settings import provider_of_environment
from hacrl_web.ops.secret_files import secret, with_password
from hacrl_web.ops.variables import (
    read_choice,
    read_command,
    read_hosts,
    read_mail_server,
    read_number,
    read_switch,
    read_text,
    read_words,
    refuse_replaced,
)
from workers.contract.spec.harness import METRIC_CODE_VARIABLE, PYTHON_VARIABLE, TASKS_VARIABLE
from workers.contract.spec.reward_function import NETWORK_VARIABLE

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(os.environ.get("HACRL_DATA") or BASE_DIR / "var").expanduser().resolve()
DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
RUNS_DIR = DATA_DIR / "runs"
BENCHMARKS_DIR = DATA_DIR / "benchmarks"
MODELS_DIR = DATA_DIR / "models"
REWARD_FUNCTIONS_DIR = DATA_DIR / "reward_functions"
JUDGES_DIR = DATA_DIR / "judges"
# Who may register reward functions, which are code: staff, admins (of a project) or members.
REWARD_AUTHORS = read_choice("HACRL_REWARD_AUTHORS", ("staff", "admins", "members"), "staff")
# Whether reward functions that ask for it may use the network.
REWARD_NETWORK = read_switch(NETWORK_VARIABLE)
read_switch("HACRL_BUBBLEWRAP", default=True)  # is read by trainers and only checked here
# Folders that may contain local models.
MODEL_ROOTS = [MODELS_DIR, *(Path(p) for p in os.environ.get("HACRL_MODEL_ROOTS", "").split(os.pathsep) if p)]
# The Python that has lm-evaluation-harness, the operator's folder of its tasks, and whether tasks may fetch code of
# metrics.
LM_EVAL_PYTHON = os.environ.get(PYTHON_VARIABLE) or str(DATA_DIR / "lm_eval" / "bin" / "python")
LM_EVAL_TASKS = os.environ.get(TASKS_VARIABLE) or ""
LM_EVAL_METRIC_CODE = "1" if read_switch(METRIC_CODE_VARIABLE) else ""
# Replaces the trainer's command, `python -m workers` (the fake trainer of the tests), and words before it.
TRAINER_COMMAND = read_command("HACRL_TRAINER_COMMAND")
TRAINER_PREFIX = read_words("HACRL_TRAINER_PREFIX")
refuse_replaced(
    "HACRL_TRAINER_PLACE",
    {
        "slurm": "remove it and set HACRL_TRAINER_PREFIX, such as srun --gpus=1 with the words of HACRL_SLURM_OPTIONS",
        "kubernetes": "remove it and train in workers that have GPUs, with worker.gpus of the Helm chart",
    },
)


def _secret_key() -> str:
    path = DATA_DIR / "secret_key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text()
    key = secrets.token_urlsafe(50)
    with open(descriptor, "w") as file:
        file.write(key)
    return key


SECRET_KEY_NAME = "HACRL_SECRET_KEY"  # noqa: S105 - a name
SECRET_KEY = secret(SECRET_KEY_NAME) or _secret_key()
DEBUG = read_switch("HACRL_DEBUG")
ALLOWED_HOSTS = [h for h in read_text("HACRL_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",") if h]

# Optional features: packages that nothing imports (hacrl_web/features.py). Without its line, one is not there.
FEATURES = [
    "hacrl_web.accounts.oidc",
    "hacrl_web.alerts",
    "hacrl_web.mirrors",
    "hacrl_web.insight.harness",
    "hacrl_web.reports",
    "hacrl_web.runs.limits",
    "hacrl_web.sharing",
]
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "csp",
    "django_htmx",
    "ninja",  # for the scripts of the API reference
    "hacrl_web.accounts",
    "hacrl_web.registry",
    "hacrl_web.runs",
    "hacrl_web.insight",
    "hacrl_web.leaderboard",
    "hacrl_web.demo",
    *FEATURES,
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "hacrl_web.web.middleware.Unstored",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "hacrl_web.web.middleware.LoginRequired",
    "hacrl_web.accounts.middleware.TokenAuth",
    "hacrl_web.accounts.middleware.AuditActor",
    *(f"{one}.middleware.RolesOfGroups" for one in FEATURES if one == "hacrl_web.accounts.oidc"),
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "hacrl_web.web.middleware.ReadableForms",
    "hacrl_web.web.middleware.WrongVerb",
    "hacrl_web.accounts.middleware.ProjectRoleGuard",
    "hacrl_web.web.middleware.RefusalPages",
]
ROOT_URLCONF = "hacrl_web.urls"
ASGI_APPLICATION = "hacrl_web.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "frontend" / "templates"],
        "APP_DIRS": True,  # of a feature that brings its own
        "OPTIONS": {
            "builtins": ["hacrl_web.features"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

try:
    _database = dj_database_url.parse(read_text("DATABASE_URL", f"sqlite:///{DATA_DIR / 'db.sqlite3'}"))
except ValueError as error:
    raise ImproperlyConfigured(f"DATABASE_URL cannot be read: {error}") from None
DATABASES = {"default": _database}
DATABASES["default"]["PASSWORD"] = DATABASES["default"]["PASSWORD"] or secret("DATABASE_PASSWORD")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOCK_WAIT_S = 15  # of a write that waits for another: with its own work it answers within 20 s
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "timeout": LOCK_WAIT_S,
        "transaction_mode": "IMMEDIATE",  # with several writers, DEFERRED transactions fail when they start to write
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON",
    }
    DATABASES["default"]["TEST"] = {"NAME": DATA_DIR / "test.sqlite3"}  # a file, shared by threads and processes
else:
    DATABASES["default"]["CONN_MAX_AGE"] = 60
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    # A server that vanished without a word: the request that finds it so, and connects again, is a 503 within 20 s.
    _waits = {"connect_timeout": 5, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
    _database["OPTIONS"] = _waits | {"tcp_user_timeout": 10_000} | _database.get("OPTIONS", {})

REDIS_URL = read_text("REDIS_URL", f"unix://{DATA_DIR / 'redis' / 'redis.sock'}?db=0")
if not REDIS_URL.startswith(("redis://", "rediss://", "unix://")):
    raise ImproperlyConfigured("REDIS_URL must begin with redis://, rediss:// or unix://.")
REDIS_URL = with_password(REDIS_URL, secret("REDIS_PASSWORD"))


def _broker_url(url: str) -> str:
    """A Redis URL as Celery writes it: redis+socket:// for a Unix socket."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    return f"redis+socket://{parts.path}?virtual_host={parse_qs(parts.query).get('db', ['0'])[0]}"


CELERY_BROKER_URL = _broker_url(REDIS_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# Time-outs for sending: a frozen Redis must not block a launch.
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_timeout": 5, "socket_connect_timeout": 2, "retry_on_timeout": True}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False  # the row is the job: the dispatcher sends a lost message again
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_PUBLISH_RETRY = False  # the dispatcher sends it again

# Requests of one user to the API per minute, counted by each web process; 0: no limit.
API_READS_PER_MINUTE = read_number("HACRL_API_READS_PER_MINUTE", 1200)
API_WRITES_PER_MINUTE = read_number("HACRL_API_WRITES_PER_MINUTE", 120)
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 10_000}},
    # Apart, so that many runs push out no limit of requests (runs/telemetry/ended_run_cache.py).
    "ended_runs": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": "ended_runs",
        "TIMEOUT": 3600,
        "OPTIONS": {"MAX_ENTRIES": 5_000},  # of some 10 KB
    },
}

# Notifications: the base of their links, allowed addresses of webhooks, the mail server (smtp[+tls]://, smtps://).
PUBLIC_URL = read_text("HACRL_PUBLIC_URL").rstrip("/")
# Hosts of judges: trainers and try-outs send questions and responses to no others.
JUDGE_ALLOW = read_hosts("HACRL_JUDGE_ALLOW")
WEBHOOK_ALLOW = read_hosts("HACRL_WEBHOOK_ALLOW")
# Mirrors of runs (hacrl_web/mirrors): hosts that they may send to, and the Python that has their packages.
# Set and empty: none.
MIRROR_ALLOW = read_hosts("HACRL_MIRROR_ALLOW", "" if "HACRL_MIRROR_ALLOW" in os.environ else "api.wandb.ai")
MIRRORS_PYTHON = os.environ.get("HACRL_MIRRORS_PYTHON") or sys.executable
_mail = read_mail_server("HACRL_EMAIL_URL")
HAS_MAIL = bool(_mail.hostname)
EMAIL_HOST = _mail.hostname or "localhost"
EMAIL_USE_TLS = _mail.scheme == "smtp+tls"
EMAIL_USE_SSL = _mail.scheme == "smtps"
EMAIL_PORT = _mail.port or (587 if EMAIL_USE_TLS else 465 if EMAIL_USE_SSL else 25)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_mail.username or ""), unquote(_mail.password or "")
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = read_text("HACRL_EMAIL_FROM", "hacrl@localhost")

AUTH_USER_MODEL = "accounts.User"
OIDC = (
    provider_of_environment() if "hacrl_web.accounts.oidc" in FEATURES else None
)  # sign-in at a provider; None: by password and link only
LOGIN_URL = "accounts:login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "accounts:login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
# Only behind a proxy that ends TLS and sets this header: otherwise any client could set it.
HAS_TLS = read_switch("HACRL_TLS_PROXY")
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HAS_TLS else None
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HAS_TLS
# Browsers then refuse plain http for this name: for 30 days, so that a mistake ends.
HSTS_S = read_number("HACRL_HSTS_S", 30 * 24 * 3600)
SECURE_HSTS_SECONDS = HSTS_S if HAS_TLS else 0
PLAIN_HTTP = read_switch("HACRL_PLAIN_HTTP")  # containers may serve other machines without TLS
CONNECTIONS_PER_ADDRESS = read_number("HACRL_CONNECTIONS_PER_ADDRESS", 256, least=1)  # without WebSockets
# HSTS for subdomains and in browsers' preload lists is a decision of the domain's owner.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME = "hacrl_session"
CSRF_COOKIE_NAME = "hacrl_csrf"
CSRF_FAILURE_VIEW = "hacrl_web.web.middleware.csrf_failure"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 5 * 2**20
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2000

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "style-src-attr": ["'unsafe-inline'"],  # the chart libraries position their layers by style attributes
        "img-src": ["'self'", "data:", "blob:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
        "base-uri": ["'none'"],
    }
}

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "frontend" / "static", ("docs", BASE_DIR / "docs" / "pictures")]
WHITENOISE_USE_FINDERS = True  # served from the source folders, without collectstatic
WHITENOISE_AUTOREFRESH = DEBUG

TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False

LOG_FORMAT = read_choice("HACRL_LOG_FORMAT", ("text", "json"), "text")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "text": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
        "json": {
            "()": "pythonjsonlogger.json.JsonFormatter",
            "fmt": "%(asctime)s %(levelname)s %(name)s %(process)d %(message)s",
            "rename_fields": {"asctime": "time", "levelname": "level", "name": "logger"},
            "datefmt": "%Y-%m-%dT%H:%M:%S%z",
            "reserved_attrs": [*RESERVED_ATTRS, "color_message"],  # the web server's text for terminals
        },
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        "django": {"level": "INFO"},
        # Of the web server, which otherwise has a format of its own.
        **{name: {"handlers": ["stderr"], "propagate": False} for name in ("uvicorn", "uvicorn.access")},
        "httpx2": {"level": "WARNING"},  # at INFO it logs whole addresses; those of webhooks are secrets
    },
}
