"""Optional features are switched off by their line in settings.FEATURES; a new one is a folder and a line."""

import os
import subprocess
import sys

import pytest
from django.conf import settings

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    ("name", "features"), [("core_alone", ""), ("with_throw_away", "tests.web.features.throw_away")]
)
def test_product_without_its_features(name, features):
    arguments = [
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--ds=tests.web.features.settings",
        f"tests/web/features/{name}.py",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=settings.BASE_DIR, env={**os.environ, "FEATURES": features}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
