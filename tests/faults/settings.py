"""Settings of a world's processes: the product's own, and an app that shortens its time-outs (apps.py)."""

import os

import hacrl_web.settings as product

globals().update({name: value for name, value in vars(product).items() if name.isupper()})
INSTALLED_APPS = [*product.INSTALLED_APPS, "tests.faults.apps.FaultsConfig"]
LOCK_WAIT_S = int(os.environ.get("FAULTS_LOCK_WAIT_S", "4"))  # instead of 15 s
if product.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    product.DATABASES["default"]["OPTIONS"]["timeout"] = LOCK_WAIT_S
