"""The loop of dispatcher and watcher continues after every error."""

import threading

from django.db import OperationalError

from hacrl_web.ops.loop import repeat


def test_failed_act_ends_neither_the_loop_nor_the_next_act(db):
    ended, looks = threading.Event(), []

    def fail():
        looks.append("first")
        raise (OperationalError if len(looks) > 2 else RuntimeError)("gone")

    def note():
        looks.append("second")
        if len(looks) == 4:
            ended.set()

    repeat([fail, note], ended, 0.0)
    assert looks == ["first", "second"] * 2
