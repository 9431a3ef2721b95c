"""What the tests of mirrors share."""

import pytest

from hacrl_web.mirrors import process
from tests.support.web.factories import make_user


@pytest.fixture(autouse=True)
def no_process_left():
    yield
    for one in list(process._living):
        one.end()


@pytest.fixture
def owner(client, settings, tmp_path):
    settings.DATA_DIR = tmp_path
    user = make_user("ada")
    client.force_login(user)
    return user
