"""The keys of judges' addresses. The supervisor sends them to the trainer by a pipe; no file and no log holds them."""

from __future__ import annotations

import os
import re
from functools import cache

from workers.contract.trainer_process import read_keys

ONE_KEY = "HACRL_JUDGE_KEY"  # without the web server: of every judge, or with _NAME of one


@cache
def _sent() -> dict[str, str]:
    return read_keys()


def judge_key(name: str) -> str:
    """Of the judge of that name; empty if it has none."""
    own = f"{ONE_KEY}_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"
    return _sent().get(name) or os.environ.get(own) or os.environ.get(ONE_KEY, "")
