"""`python -m workers.inspection.ask`: the exported agents answer as they did in training, one line each, errors in
words."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.forked import run
from tests.support.workers.tiny import make_pair, make_spec, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("ask")
    return train(make_spec(root, make_pair(root), training={"steps": 2}), root / "run"), root / "run"


def ask(request: dict) -> list[dict]:
    done = run([sys.executable, "-m", "workers.inspection.ask"], json.dumps(request))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_agent_says_what_it_says_in_an_evaluation_and_a_broken_one_silences_nobody(trained):
    """The greedy answer of the exported folder is that of the trainer's own agent."""
    from workers.questions.dataset import Question

    trainer, run_dir = trained
    question = Question(id="q", question="7=", answer="1", subject="", template="+{question}", system="3")
    expected = [agent.evaluate(2, [question])[0].text for agent in trainer.agents]
    folders = sorted((run_dir / "checkpoints/step-000002/agents").iterdir())
    agents = [{"name": f.name, "folder": str(f), "prompt_template": "{question}"} for f in folders]
    agents.insert(1, {"name": "gone", "folder": str(run_dir / "no such folder")})
    request = {"question": "7=", "template": "+{question}", "system": "3", "expected": expected[0], "verifier": "exact"}
    request |= {"tolerance": 0.0, "extraction": "strict", "temperature": 0.0, "seed": 0}
    first, gone, second = ask({**request, "max_new_tokens": 6, "agents": agents})
    assert [first["text"], second["text"]] == expected
    assert first["num_tokens"] <= 6
    assert first["verdict"] == {"reward": 1.0, "reason": "correct"}
    assert second["verdict"]["reward"] == float(expected[1].strip() == expected[0].strip())
    assert "no such folder" in gone["error"]
