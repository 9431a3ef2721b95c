"""The lengths that the web reads before a launch are those of the trainer."""

from __future__ import annotations

import json
import sys

from tests.support.forked import run
from tests.support.workers.tiny import make_pair


def asked(agents: list[dict], **changes) -> dict:
    request = {"questions": ["1+1=", "12+10=", "3="], "template": "{question}", "system": "", "agents": agents}
    command = [sys.executable, "-m", "workers.inspection.preview_prompts"]
    request |= {"limit": 4, "enough": 2} | changes
    done = run(command, json.dumps(request))
    return json.loads(done.stdout)


def test_lengths_are_tokens_of_each_agent_until_enough_questions_are_short(tmp_path):
    # Qwen's tokenizer has characters alone, Llama's has a piece "10" too: "12+10=" is 6 or 5 tokens.
    pair = make_pair(tmp_path)
    assert asked(pair) == {"agents": ["Qwen", "Llama"], "lengths": [[4, 4], [6, 5], [2, 2]]}
    assert asked(pair, enough=1)["lengths"] == [[4, 4]]
    gone = asked([*pair, {"name": "gone", "model": str(tmp_path / "none")}])
    assert "lengths" not in gone
    assert gone["error"]
