"""Asks the trained agents of a checkpoint one question: `python -m workers.inspection.ask < request.json`, a line an
agent.

The request: {question, template (of the benchmark), expected (may be empty), verifier, tolerance, temperature, seed,
max_new_tokens, agents: [{name, folder, prompt_format, prompt_template, chat_template_kwargs}]}. Each line of the answer
is {agent, text, finish_reason, num_tokens, seconds, verdict: {reward, reason} or null}, or {agent, error}. One agent at
a time is in memory, on the CPU: the devices are the runs'. The web runs this as a short child process with limits.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from workers.contract.spec.agent import AgentSpec


def answer(request: dict[str, Any], folder_and_settings: dict[str, Any]) -> dict[str, Any]:
    """What one agent says to the question. Errors: OSError, ValueError, RuntimeError."""
    import torch
    from transformers import AutoTokenizer

    from workers.model.loading import load_model
    from workers.model.prompts import encode_question, eos_ids
    from workers.randomness import derived_key
    from workers.rollouts.sampler import SampleRequest, sample

    began = time.monotonic()
    agent = AgentSpec(
        model=folder_and_settings["folder"],
        **{key: value for key, value in folder_and_settings.items() if key != "folder"},
    )
    tokenizer: Any = AutoTokenizer.from_pretrained(agent.model, local_files_only=True, trust_remote_code=False)
    model = load_model(agent.model, None, torch.float32, torch.device("cpu"))
    stops = eos_ids(tokenizer, model)
    asked_text = request["template"].replace("{question}", request["question"])
    prompt = encode_question(tokenizer, agent, asked_text, stops)
    if not prompt:
        raise ValueError("its tokenizer makes no token of this question")
    room = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if room and len(prompt) >= room:
        raise ValueError(f"the question has {len(prompt):,} tokens; the model can place {room:,}")
    limit = min(request["max_new_tokens"], room - len(prompt)) if room else request["max_new_tokens"]
    key = derived_key("ask", request["seed"], agent.stable_seed, request["question"])
    [rollout] = sample(model, SampleRequest([prompt], [0], [key], request["temperature"], limit, 1), stops)
    text = str(tokenizer.decode(rollout.token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
    return {
        "agent": agent.name,
        "text": text,
        "finish_reason": "stop" if rollout.finished else "length",
        "num_tokens": len(rollout.token_ids),
        "seconds": round(time.monotonic() - began, 2),
        "verdict": None,
    }


def verdict_of(request: dict[str, Any], text: str) -> dict[str, Any]:
    """What the run's verifier says of an answer."""
    from workers.verifiers.service import Verifier

    with Verifier(request["verifier"], tolerance=request["tolerance"]) as verifier:
        [result] = verifier.score([text], [request["expected"]])
    return {"reward": result.reward, "reason": result.reason}


def main() -> int:
    """One JSON line for each agent, as soon as it has answered."""
    request = json.load(sys.stdin)
    for agent in request["agents"]:
        try:
            line = answer(request, agent)
            if request["expected"]:
                line["verdict"] = verdict_of(request, line["text"])
        except Exception as error:  # one agent that cannot answer must not silence its peers
            line = {"agent": agent["name"], "error": f"{type(error).__name__}: {str(error)[:300]}"}
        print(json.dumps(line, ensure_ascii=True), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
