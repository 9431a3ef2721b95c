"""A prompt for the agents of a checkpoint, answered in a child process with limits; one at a time per user."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings

from hacrl_web.accounts.models import User
from hacrl_web.insight.settings_diff import effective
from hacrl_web.registry.base import values
from hacrl_web.registry.base.children import run_child
from hacrl_web.registry.rewards.service import judge_keys
from hacrl_web.runs.models import Run
from hacrl_web.runs.storage.run_files import reading_files
from hacrl_web.web.errors import FieldErrors
from hacrl_web.web.page_query import whole_number
from workers.contract.checkpoint_manifest import Manifest
from workers.contract.verifier_kinds import DEFAULT_TOLERANCE

TIMEOUT_S = 60.0
CPU_S = 600  # above TIMEOUT_S: several threads share it
BASE_MEMORY_BYTES = 12 * 2**30  # address space; ML libraries map much more than they use
BESIDE_WEIGHTS_BYTES = 2**30
MAX_QUESTION = 4000
MAX_EXPECTED = 1000
MAX_NEW_TOKENS = 2048
DEFAULT_NEW_TOKENS = 256
WAIT_S = 10.0

_turns = threading.BoundedSemaphore(1)  # runs need the processors, too


def checked_question(fields: Mapping[str, str], run: Run) -> dict[str, Any]:
    """The request's values. Error: FieldErrors."""
    checker = values.Checker()
    question = checker.take("question", _text, fields.get("question", ""), MAX_QUESTION, 1)
    expected = checker.take("expected", _text, fields.get("expected", ""), MAX_EXPECTED, 0)
    temperature = checker.take(
        "temperature", partial(values.bounded_number, least=0, most=5), fields.get("temperature") or "0"
    )
    limit = most_tokens(run)
    tokens = checker.take("max_new_tokens", _whole, fields.get("max_new_tokens") or str(default_tokens(run)), 1, limit)
    seed = checker.take("seed", _whole, fields.get("seed") or "0", 0, 2**31 - 1)
    question, expected, temperature, tokens, seed = checker.finish(question, expected, temperature, tokens, seed)
    data = effective(run).get("data", {})
    return {
        "question": question,
        "template": data.get("prompt_template", "{question}"),
        "system": data.get("system_prompt", ""),
        "expected": expected,
        "temperature": temperature,
        "verifier": data.get("verifier", "math"),
        "tolerance": data.get("tolerance", DEFAULT_TOLERANCE),
        "extraction": data.get("extraction", "strict"),
        # The settings of an imported run name a file that nobody has registered here.
        "reward_function": "" if run.is_imported else data.get("reward_function", ""),
        "judge": "" if run.is_imported else data.get("judge", ""),
        "max_new_tokens": tokens,
        "seed": seed,
    }


def most_tokens(run: Run) -> int:
    return min(MAX_NEW_TOKENS, int(effective(run).get("rollout", {}).get("max_completion_length", MAX_NEW_TOKENS)))


def default_tokens(run: Run) -> int:
    return min(DEFAULT_NEW_TOKENS, most_tokens(run))


def _text(value: str, most: int, least: int) -> str:
    text = value.replace("\x00", "").replace("\r\n", "\n").strip()
    if len(text) > most:
        raise values.ValueProblem("too_long", f"At most {most:,} characters; you gave {len(text):,}.")
    if len(text) < least:
        raise values.ValueProblem("missing", "Write a question.")
    return text


def _whole(value: str, least: int, most: int) -> int:
    number = whole_number(value.strip(), most)
    if number is None or number < least:
        raise values.ValueProblem("not_whole", f"A whole number from {least:,} to {most:,} is needed.")
    return number


def ask_checkpoint(user: User, run: Run, manifest: Manifest, request: dict[str, Any]) -> list[dict[str, Any]]:
    """One object for each agent of the checkpoint, in their order: its answer, or `error`. Error: FieldErrors."""
    _check_memory(manifest)
    specs = {agent["name"]: agent for agent in run.spec["agents"]}
    names = ("prompt_format", "prompt_template", "chat_template_kwargs", "thinking", "seed")
    agents = [
        {"name": name, "folder": str(manifest.path / folder)}
        | {key: specs[name][key] for key in names if key in specs.get(name, {})}
        for name, folder in manifest.folders.items()
    ]
    keys = judge_keys(run.project, [request["judge"]] if request["judge"] else [])
    judge_key = keys.get(Path(request["judge"]).stem, "")
    body = json.dumps({**request, "agents": agents, "judge_key": judge_key}).encode()
    with _turn_of(user), reading_files(run):
        ended = run_child(
            "workers.inspection.ask",
            timeout_s=TIMEOUT_S,
            memory_bytes=BASE_MEMORY_BYTES + 3 * _largest(manifest),
            cpu_s=CPU_S,
            stdin=body,
        )
    if ended.is_late:
        missing = f"Not answered: the time limit of {TIMEOUT_S:.0f} s was over. Ask for fewer tokens."
    else:
        missing = f"Not answered: the process ended ({ended.ending}), perhaps for lack of memory."
    replies = {line.get("agent"): line for line in _lines(ended.output)}
    return [replies.get(name, {"agent": name, "error": missing}) for name in manifest.folders]


def _lines(output: bytes) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        try:
            reply = json.loads(line)
        except ValueError:  # cut off by the time limit, or a library's chatter
            continue
        if isinstance(reply, dict):
            yield reply


def _largest(manifest: Manifest) -> int:
    """Upper bound on the bytes of the largest agent's weights in float32: those on disk may be 16-bit numbers."""
    sizes = [sum(int(e["size"]) for e in manifest.files_of(name).values()) for name in manifest.folders]
    return 2 * max(sizes, default=0)


def _check_memory(manifest: Manifest) -> None:
    needed, free = _largest(manifest) + BESIDE_WEIGHTS_BYTES, psutil.virtual_memory().available
    if needed > free:
        text = f"The largest agent needs up to {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB of memory are free"
        raise FieldErrors.single("no_memory", f"{text} on this host. Download it and ask it elsewhere.", status=503)


@contextmanager
def _turn_of(user: User) -> Iterator[None]:
    """A lock: one question of the user in all web processes, one of all users in this process. Error: FieldErrors."""
    folder = settings.DATA_DIR / "asking"
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder / f"{user.pk}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = "Your last question is still being answered. Wait for it, or for its time limit."
            raise FieldErrors.single("busy", message, status=409) from None
        if not _turns.acquire(timeout=WAIT_S):
            message = "Another user's question is being answered. Try again in a minute."
            raise FieldErrors.single("busy", message, status=503)
        try:
            yield
        finally:
            _turns.release()
    finally:
        os.close(descriptor)
