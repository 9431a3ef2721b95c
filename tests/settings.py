"""Settings of the tests: the product's own, over a data folder that each test process makes for itself."""

import atexit
import os
import shutil
import tempfile

_folder = tempfile.mkdtemp(prefix="hacrl-test-")
os.environ["HACRL_DATA"] = _folder
_owner = os.getpid()
atexit.register(lambda: os.getpid() == _owner and shutil.rmtree(_folder, ignore_errors=True))

from hacrl_web.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Many tests are one user within a minute.
API_READS_PER_MINUTE = API_WRITES_PER_MINUTE = 0
MIDDLEWARE = [*MIDDLEWARE, "tests.support.web.unwrapped_pages.UnwrappedPages"]  # noqa: F405
