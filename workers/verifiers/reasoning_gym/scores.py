"""The reward of a generated question: the score of reasoning-gym for the answer in a response.

The answer is the last one in `<answer>`, in a box, or stated, else the whole response behind its thoughts.
`python -m workers.verifiers.reasoning_gym.scores MEMORY_BYTES SECONDS` is the verifier's child: each answer is scored
in a fork of its own, in the sandbox of responses' code (workers.verifiers.python.sandbox).
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from workers.contract.generators.generator import MISSING, MODULE, GeneratorError, read_generator
from workers.verifiers.children.child_server import Unscorable, serve_verifier, write_refusal
from workers.verifiers.mathematics.extraction import after_thoughts, final_answer, has_box, last_statement
from workers.verifiers.python.sandbox import SandboxUnavailable, confine
from workers.verifiers.reasoning_gym.generated_questions import data_set, generator_score
from workers.verifiers.scoring.verdicts import CORRECT, NO_ANSWER, Query, Verdict

MAX_CHARACTERS = 20_000
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)


def gym_verdict(completion: str, gold: str) -> Verdict | Query:
    """What to ask the child; no answer, or the very one of the question, needs no scorer."""
    text = after_thoughts(completion)[-MAX_CHARACTERS:]
    tagged = _ANSWER.findall(text)
    if tagged:
        answer = tagged[-1]
    elif has_box(text):
        answer = final_answer(text) or ""
    else:
        statement = last_statement(text)
        answer = statement.answer if statement else text
    answer = answer.strip()
    if not answer:
        return NO_ANSWER
    return CORRECT if answer == _own_answer(gold) else (answer, gold)


def _own_answer(gold: str) -> str | None:
    """None where several answers are right, or the gold is unclear."""
    with suppress(ValueError, KeyError, TypeError):
        return json.loads(gold)["answer"]
    return None


def unclear_entry(gold: str) -> str:
    """Why no answer can be scored; empty if one can."""
    try:
        entry = json.loads(gold)
        read_generator(entry["generator"])
        if not {"answer", "metadata"} <= entry.keys():
            raise KeyError
    except (ValueError, KeyError, TypeError, AttributeError):
        return "not what a generator of reasoning-gym wrote: add the benchmark as a generator"
    return ""


def gym_score(gold: str, answer: str, memory_bytes: int) -> tuple[float, str]:
    """The reward and its reason; this process is in the sandbox from then on. Error: Unscorable."""
    entry = json.loads(gold)
    try:
        source = data_set(read_generator(entry["generator"]), 1)
        confine(Path("/"), False, memory_bytes, cpu_seconds=None)
    except (GeneratorError, SandboxUnavailable) as error:
        raise Unscorable(str(error)) from None
    reward = generator_score(source, answer, entry)
    return reward, f"reasoning-gym scores {reward:g}"


def main(memory_bytes: int, seconds: int) -> None:
    """Serve until stdin ends."""
    if find_spec(MODULE) is None:
        write_refusal(f"{MISSING}.")
        return
    import reasoning_gym  # noqa: F401 - once, before the forks

    serve_verifier(partial(gym_score, memory_bytes=memory_bytes), memory_bytes, seconds, forks_each=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
