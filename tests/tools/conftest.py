"""The fixtures of the web tests: folders of each test's own, users, a client."""

from tests.web.conftest import _forget_redis, _own_folders, ada, fake_trainer, folder, make_run, owner, user, web

__all__ = ["_forget_redis", "_own_folders", "ada", "fake_trainer", "folder", "make_run", "owner", "user", "web"]
