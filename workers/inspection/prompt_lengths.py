"""How many tokens the prompts of many questions have for each agent of a group; a short child process of the web.

`python -m workers.inspection.prompt_lengths` reads {questions: [text], template and system (of the benchmark), agents:
[their AgentSpec], limit, enough} from stdin and prints {agents: [name], lengths: [[tokens of each agent] of each
question]}. It ends once `enough` questions have at most `limit` tokens for every agent. An agent whose tokenizer
cannot be read is an {error}. The lengths are those of the trainer. Models of the hub are read from the cache alone.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from workers.contract.spec.agent import AgentSpec
from workers.inspection.preview_prompts import prompt_ids
from workers.questions.dataset import Question


def prompt_lengths(request: dict[str, Any]) -> list[list[int]]:
    """Tokens of each agent for each question, up to the one with which enough are short. Errors: as prompt_ids."""
    agents = [AgentSpec.model_validate(settings) for settings in request["agents"]]
    lengths: list[list[int]] = []
    num_short = 0
    for text in request["questions"]:
        question = Question("", text, "", template=request["template"], system=request["system"])
        lengths.append([len(prompt_ids(question, agent)) for agent in agents])
        num_short += max(lengths[-1]) <= request["limit"]
        if num_short == request["enough"]:
            break
    return lengths


def main() -> int:
    """Print one JSON object."""
    request = json.load(sys.stdin)
    os.environ["HF_HUB_OFFLINE"] = "1"  # read at the first import of the hub's library
    from transformers.utils import logging

    logging.set_verbosity_error()
    try:
        answer: dict[str, Any] = {"lengths": prompt_lengths(request)}
    except Exception as error:  # a chat template may raise anything
        answer = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    print(json.dumps(answer | {"agents": [settings["name"] for settings in request["agents"]]}))
    return 0


if __name__ == "__main__":
    sys.modules["torch"] = None  # type: ignore[assignment] # transformers imports it for seconds; tokenizers need none
    sys.exit(main())
