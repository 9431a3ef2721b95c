"""The prompts that the agents of a group read, token by token, or how long they are; a short child process of the web.

`python -m workers.inspection.preview_prompts` reads {question, template and system (of the benchmark), agents: [their
AgentSpec]} from stdin and prints {agents: [{agent, text, token_ids, pieces: [{text, is_special}], notes} or {agent,
error}]}. The ids are those of the trainer, made by the same functions. No weights are loaded.

With {questions: [text], limit, enough} in place of the question it prints {agents: [name], lengths: [[tokens of each
agent] of each question]}, and ends once `enough` questions have at most `limit` tokens for every agent; or {error} for
an agent whose tokenizer cannot be read. There models of the hub are read from the cache alone.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError

from workers.contract.spec.agent import AgentSpec
from workers.hub.client import ModelUnfit, fetch_small_files, use_token
from workers.model.prompts import (
    NO_BOS,
    adds_bos,
    check_format,
    encode_question,
    eos_ids,
    takes_system,
    thought_opening,
    uses_chat,
)
from workers.model.template_marks import MarkInText, marks_of
from workers.questions.dataset import Question
from workers.tokenizer_files import read_tokenizer

INCOMPLETE = "\ufffd"  # what decoding writes for a part of a character
NO_TEMPLATE = "The tokenizer has no chat template: the prompt is plain text."
OPENS_THOUGHT = "The prompt opens a thought: the answer begins within it."
NO_SYSTEM = "The chat template takes no system message: the system prompt is put before the question."


def preview(question: Question, agent: AgentSpec) -> dict[str, Any]:
    """The prompt of one agent. Errors: as prompt_ids."""
    ids = prompt_ids(question, agent)
    tokenizer = _tokenizer(str(_folder(agent.model, agent.revision)))
    notes = [] if tokenizer.chat_template else [NO_TEMPLATE]
    if question.system and uses_chat(tokenizer, agent) and not takes_system(tokenizer, agent):
        notes.append(NO_SYSTEM)
    if adds_bos(tokenizer, agent):
        notes.append(NO_BOS.format(tokenizer.bos_token))
    if thought_opening(tokenizer, agent, question.prompt):
        notes.append(OPENS_THOUGHT)
    return {
        "agent": agent.name,
        "text": _decoded(tokenizer, ids),
        "token_ids": ids,
        "pieces": token_pieces(tokenizer, ids),
        "notes": notes,
    }


def prompt_ids(question: Question, agent: AgentSpec) -> list[int]:
    """The ids that one agent reads. Errors: ModelUnfit, OSError, ValueError, and what a chat template raises."""
    folder = _folder(agent.model, agent.revision)
    tokenizer = _tokenizer(str(folder))
    check_format(tokenizer, agent, agent.model)
    return encode_question(tokenizer, agent, question.prompt, _stops(str(folder)), question.system)


@cache
def _folder(model: str, revision: str | None) -> Path:
    return Path(model) if model.startswith("/") else fetch_small_files(model, revision)


@cache
def _stops(folder: str) -> list[int]:
    return eos_ids(_tokenizer(folder), _configs(Path(folder)))


@cache  # agents often share a model
def _tokenizer(folder: str) -> Any:
    return read_tokenizer(folder, local_files_only=True)


def _configs(folder: Path) -> SimpleNamespace:
    """What names the ids that end a response, in place of the model."""
    from transformers import AutoConfig, GenerationConfig

    has_own = (folder / "generation_config.json").is_file()
    return SimpleNamespace(
        config=AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False),
        generation_config=GenerationConfig.from_pretrained(folder, local_files_only=True) if has_own else None,
    )


def token_pieces(tokenizer: Any, ids: list[int]) -> list[dict[str, Any]]:
    """The text of each token; tokens that are parts of one character are one piece. Joined: the text of all ids."""
    special = {*marks_of(tokenizer).ids.values()}  # also <think>, which is text to its model
    result: list[dict[str, Any]] = []
    before: list[int] = []  # some tokenizers write the space between two words only where both are decoded
    pending: list[int] = []
    for place, token in enumerate(ids):
        pending.append(token)
        text = _decoded(tokenizer, before + pending).removeprefix(_decoded(tokenizer, before))
        if text.endswith(INCOMPLETE) and place + 1 < len(ids) and ids[place + 1] not in special:
            continue
        result.append({"text": text, "is_special": token in special})
        before, pending = pending, []
    return result


def _decoded(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def answer(question: Question, settings: dict[str, Any]) -> dict[str, Any]:
    """The prompt of one agent, or why there is none."""
    try:
        return preview(question, AgentSpec.model_validate(settings))
    except ValidationError as error:
        reason = "; ".join(item["msg"] for item in error.errors(include_url=False))
    except ModelUnfit as refusal:
        reason = str(refusal)
    except ValueError as error:
        reason = str(error)[:300]
    except Exception as error:  # a chat template may raise anything
        reason = f"{type(error).__name__}: {str(error)[:300]}"
    return {"agent": settings["name"], "error": reason}


def prompt_lengths(request: dict[str, Any]) -> list[list[int]]:
    """Tokens of each agent for each question, up to the one with which enough are short. Errors: as prompt_ids."""
    agents = [AgentSpec.model_validate(settings) for settings in request["agents"]]
    lengths: list[list[int]] = []
    num_short = 0
    for text in request["questions"]:
        question = Question("", text, "", template=request["template"], system=request["system"])
        lengths.append([_num_tokens(question, agent, request["limit"] + 1) for agent in agents])
        num_short += max(lengths[-1]) <= request["limit"]
        if num_short == request["enough"]:
            break
    return lengths


def _num_tokens(question: Question, agent: AgentSpec, if_unreadable: int) -> int:
    try:
        return len(prompt_ids(question, agent))
    except MarkInText:  # a run leaves it out as it does with what is too long
        return if_unreadable


def main() -> int:
    """Print one JSON object."""
    request = json.load(sys.stdin)
    if "questions" in request:
        os.environ["HF_HUB_OFFLINE"] = "1"  # read at the first import of the hub's library
    use_token(request)
    from transformers.utils import logging

    logging.set_verbosity_error()
    result: dict[str, Any]
    if "questions" in request:
        result = {"agents": [settings["name"] for settings in request["agents"]]}
        try:
            result["lengths"] = prompt_lengths(request)
        except Exception as error:  # a chat template may raise anything
            result["error"] = f"{type(error).__name__}: {str(error)[:300]}"
    else:
        question = Question("preview", request["question"], "", template=request["template"], system=request["system"])
        result = {"agents": [answer(question, settings) for settings in request["agents"]]}
    print(json.dumps(result, ensure_ascii=True))
    return 0


if __name__ == "__main__":
    sys.modules["torch"] = None  # type: ignore[assignment] # transformers imports it for seconds; tokenizers need none
    sys.exit(main())
