"""One question to the trained agents of a checkpoint, as a short child process of the web with limits.

`python -m workers.inspection.ask` reads {question, template and system (of the benchmark), expected (may be empty),
verifier, tolerance, extraction, temperature, seed, max_new_tokens, agents: [{name, folder, prompt_format,
prompt_template, chat_template_kwargs}]} from stdin. It prints a line for each agent: {agent, text, finish_reason,
num_tokens, seconds, verdict: {reward, reason} or null}, or {agent, error}. One agent at a time is in memory, on the
CPU: runs need the GPUs.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.judge import JudgeFile
from workers.contract.spec.reward_function import FunctionFile
from workers.verifiers.functions.function_verifier import Case, FunctionVerifier
from workers.verifiers.judges.judge_verifier import JudgeVerifier
from workers.verifiers.scoring.service import Verifier
from workers.verifiers.scoring.verdicts import Verdict


def answer(request: dict[str, Any], agent_request: dict[str, Any]) -> dict[str, Any]:
    """One agent's answer to the question. Errors: OSError, ValueError, RuntimeError."""
    import torch

    from workers.model.loading import load_model, load_tokenizer
    from workers.model.prompts import encode_question, eos_ids, textless_ids, thought_opening
    from workers.model.thoughts import thought_marks
    from workers.randomness import derived_key
    from workers.rollouts.sampler import SampleRequest, sample

    begin = time.monotonic()
    settings = {key: value for key, value in agent_request.items() if key != "folder"}
    agent = AgentSpec(model=agent_request["folder"], **settings)
    tokenizer: Any = load_tokenizer(agent.model, None)
    model = load_model(agent.model, None, torch.float32, torch.device("cpu"))
    stops = eos_ids(tokenizer, model)
    question = request["template"].replace("{question}", request["question"])
    prompt = encode_question(tokenizer, agent, question, stops, request["system"])
    if not prompt:
        raise ValueError("its tokenizer finds no token in this question")
    config = model.config.get_text_config()
    room = getattr(config, "max_position_embeddings", None)
    if room and len(prompt) >= room:
        raise ValueError(f"the question has {len(prompt):,} tokens; the model's context has {room:,}")
    limit = min(request["max_new_tokens"], room - len(prompt)) if room else request["max_new_tokens"]
    key = derived_key("ask", request["seed"], agent.stable_seed, request["question"])
    textless = textless_ids(tokenizer, config.vocab_size, stops)
    asked = SampleRequest([prompt], [0], [key], request["temperature"], limit, 1, textless=textless)
    [rollout] = sample(model, asked, stops)
    # As the agent's rollouts are read: with the thought that the prompt has opened, and without the EOS.
    ids = rollout.token_ids[:-1] if rollout.finished else rollout.token_ids
    text = thought_opening(tokenizer, agent, question) + thought_marks(tokenizer).decode(ids)
    return {
        "agent": agent.name,
        "text": text,
        "finish_reason": "stop" if rollout.finished else "length",
        "num_tokens": len(rollout.token_ids),
        "seconds": round(time.monotonic() - begin, 2),
        "verdict": None,
    }


def _verdict(request: dict[str, Any], text: str) -> Verdict:
    """Errors: VerifierError, FunctionFileError, JudgeFileError."""
    if request["verifier"] == "function":
        with FunctionVerifier(FunctionFile.read(Path(request["reward_function"]))) as function:
            return function.score_cases([Case(request["question"], request["expected"], text)])[0]
    if request["verifier"] == "judge":
        with JudgeVerifier(JudgeFile.read(Path(request["judge"])), request["judge_key"]) as judge:
            return judge.score_cases([Case(request["question"], request["expected"], text)])[0]
    with Verifier(request["verifier"], 1, request["tolerance"], request["extraction"]) as verifier:
        return verifier.score([text], [request["expected"]])[0]


def main() -> int:
    """Print a JSON line for each agent as soon as it has answered."""
    request = json.load(sys.stdin)
    for agent in request["agents"]:
        try:
            line = answer(request, agent)
            if request["expected"]:
                verdict = _verdict(request, line["text"])
                line["verdict"] = {"reward": verdict.reward, "reason": verdict.reason}
        except Exception as error:  # the other agents still answer
            line = {"agent": agent["name"], "error": f"{type(error).__name__}: {str(error)[:300]}"}
        print(json.dumps(line, ensure_ascii=True), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
