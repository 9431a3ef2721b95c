"""How an agent's tokenizer encodes a question, and which tokens end a response. No weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from workers.contract.spec.agent import THINKING_ARGUMENT, AgentSpec
from workers.model.call_limits import memory_limit, time_limit
from workers.model.template_marks import MarkInText, marks_of
from workers.model.thoughts import thought_marks

LARGER_TOKENIZER = "The tokenizer has {} tokens but the model only {}: use the model's tokenizer."
NO_BOS = "The chat template does not write {}, with which this tokenizer begins a text: one is put before the prompt."
MAX_PROMPT_CHARACTERS = 20_000_000  # of a rendered chat template; its tokens take a hundred times the memory


def encode_question(
    tokenizer: Any, agent: AgentSpec, question: str, stops: Sequence[int], system: str = ""
) -> list[int]:
    """The ids of a question in an agent's own prompt format, after a system message if there is one.

    Without a chat template, and where it takes no system message, that is the text before the question. The words of
    marks are text in the question and the system message, and in all that stands within a turn of a chat; without
    chat the agent's own prompt template is the template. Errors: ValueError, if the template fails; MarkInText.
    """
    marks = marks_of(tokenizer)
    if uses_chat(tokenizer, agent):
        text = agent.prompt_template.replace("{question}", question)
        if system and takes_system(tokenizer, agent):
            ids = _chat_ids(tokenizer, agent, [("system", system), ("user", text)])
        else:
            ids = _chat_ids(tokenizer, agent, [("user", _joined(system, text))])
    else:
        guarded = marks.guard(system, question)
        text = _joined(guarded.texts[0], agent.prompt_template.replace("{question}", guarded.texts[1]))
        with tokenizer_limit(agent, text):
            ids = guarded.encode(text, add_special_tokens=True)
    if marks.bos is not None:  # exactly one, whether the template writes it or not
        start = next((place for place, token in enumerate(ids) if token != marks.bos), len(ids))
        ids = [marks.bos, *ids[start:]]
    # Some tokenizers close every text with an EOS, which would end the response before it starts.
    is_closed = not uses_chat(tokenizer, agent) and len(ids) > 1 and ids[-1] in stops
    return ids[:-1] if is_closed else ids


def adds_bos(tokenizer: Any, agent: AgentSpec) -> bool:
    """Whether the chat template leaves out what the tokenizer puts before every text, so that it is added."""
    bos = marks_of(tokenizer).bos
    if bos is None or not uses_chat(tokenizer, agent):
        return False
    text = _rendered(tokenizer, agent, [("user", "1")])
    return list(tokenizer(text, add_special_tokens=False).input_ids)[:1] != [bos]


def thought_opening(tokenizer: Any, agent: AgentSpec, question: str = "") -> str:
    """What of a thought the prompt already holds where the response begins, as in `<think>` and a line end; or empty.

    question: needed without a chat template, where a benchmark's own prompt may open a thought.
    """
    marks = thought_marks(tokenizer)
    if not uses_chat(tokenizer, agent):
        text = agent.prompt_template.replace("{question}", question)
        is_open = text.rstrip().endswith(marks.opening)
        return marks.opened_at_end(text if is_open else agent.prompt_template.rpartition("{question}")[2])
    word = "forty-two"
    try:
        text = _rendered(tokenizer, agent, [("user", word)])
    except Exception:  # said with the question that it fails at
        return ""
    return marks.opened_at_end(text.rpartition(word)[2])


def _joined(system: str, text: str) -> str:
    return f"{system}\n\n{text}" if system else text


def _chat_ids(tokenizer: Any, agent: AgentSpec, turns: Sequence[tuple[str, str]]) -> list[int]:
    """The ids of turns (role, content), up to where the answer begins. Errors: as encode_question."""
    guarded = marks_of(tokenizer).guard(*(content for _, content in turns))
    try:
        text = _rendered(tokenizer, agent, [(role, one) for (role, _), one in zip(turns, guarded.texts, strict=True)])
        with tokenizer_limit(agent, turns[-1][1]):
            return guarded.encode(text)
    except MarkInText:
        raise
    except Exception as error:  # a template may raise anything
        raise ValueError(
            f"the chat template of agent {agent.name!r} fails ({type(error).__name__}: {str(error)[:200]}) at "
            f"{turns[-1][1][:80]!r}: mend it, or set the agent's prompt_format to plain"
        ) from error


def _rendered(
    tokenizer: Any, agent: AgentSpec, turns: Sequence[tuple[str, str]], *, add_generation_prompt: bool = True
) -> str:
    """What the chat template writes of turns (role, content). Errors: what a template raises, MemoryError."""
    messages = [{"role": role, "content": content} for role, content in turns]
    with time_limit(f"the chat template of agent {agent.name!r} at {turns[-1][1][:80]!r}"), memory_limit():
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=add_generation_prompt, **agent.template_arguments
        )
    if len(text) > MAX_PROMPT_CHARACTERS:
        raise ValueError(f"it writes {len(text):,} characters, and {MAX_PROMPT_CHARACTERS:,} are possible")
    return str(text)


def tokenizer_limit(agent: AgentSpec, text: str) -> AbstractContextManager[None]:
    """Of a call of the agent's tokenizer, whose normalizer and splitter the model's files define."""
    return time_limit(f"the tokenizer of agent {agent.name!r} at {text[:80]!r}")


def takes_system(tokenizer: Any, agent: AgentSpec) -> bool:
    """Whether the chat template writes a system message; some families' refuse it, or leave it out."""
    word = "surveyor"
    try:
        return word in _rendered(tokenizer, agent, [("system", word), ("user", "1")], add_generation_prompt=False)
    except Exception:  # a template may raise anything
        return False


def uses_chat(tokenizer: Any, agent: AgentSpec) -> bool:
    """Whether questions go through the tokenizer's chat template."""
    return bool(tokenizer.chat_template) and agent.prompt_format != "plain"


def has_thinking_switch(tokenizer: Any) -> bool:
    """Whether the chat template knows the argument for thinking."""
    return THINKING_ARGUMENT in str(tokenizer.chat_template or "")


def check_format(tokenizer: Any, agent: AgentSpec, location: str) -> None:
    """Check that an agent's settings and its chat template agree. Error: ValueError."""
    if agent.prompt_format == "chat" and not tokenizer.chat_template:
        raise ValueError(
            f"agent {agent.name!r} has prompt_format chat, but the tokenizer of {location} has no chat template: "
            "choose auto or plain, or add a template"
        )
    if agent.thinking != "auto" and not has_thinking_switch(tokenizer):
        raise ValueError(
            f"agent {agent.name!r} has thinking {agent.thinking}, but the chat template of {location} has no "
            f"{THINKING_ARGUMENT}: choose auto"
        )
    if uses_chat(tokenizer, agent) and _leaves_question_out(tokenizer, agent):
        raise ValueError(
            f"the chat template of agent {agent.name!r} leaves the question out, so every prompt would be the same: "
            f"correct the template of {location}, or set the agent's prompt_format to plain"
        )


def _leaves_question_out(tokenizer: Any, agent: AgentSpec) -> bool:
    question = "forty-two"
    try:
        text = _rendered(tokenizer, agent, [("user", question)])
    except Exception:  # said with the question that it fails at, if it fails there too
        return False
    return question not in text.casefold()


def check_sizes(tokenizer: Any, agent: AgentSpec, rows: int) -> None:
    """Check that the model has a row for each token. Error: ValueError."""
    if len(tokenizer) > rows:
        reason = LARGER_TOKENIZER.format(f"{len(tokenizer):,}", f"{rows:,}")
        raise ValueError(f"agent {agent.name!r}: {reason}")


def textless_ids(tokenizer: Any, rows: int, stops: Sequence[int]) -> tuple[int, ...]:
    """The ids of a model, whose vocabulary may be rounded up, that the tokenizer has no text for, without the stops."""
    known = {*tokenizer.get_vocab().values(), *tokenizer.added_tokens_decoder, *stops}
    return tuple(one for one in range(rows) if one not in known)


def eos_ids(tokenizer: Any, model: Any) -> list[int]:
    """All ids that end a response: generation config, model config and tokenizer together."""
    ids: list[int] = []
    configs = (getattr(model, "generation_config", None), model.config)
    for value in [tokenizer.eos_token_id, *(getattr(config, "eos_token_id", None) for config in configs)]:
        ids += value if isinstance(value, list) else [] if value is None else [value]
    if not ids:
        raise ValueError("the model has no end-of-sequence token: set eos_token in its tokenizer")
    return list(dict.fromkeys(ids))


def turn_eos(tokenizer: Any, agent: AgentSpec, stops: Sequence[int]) -> int:
    """The id that ends an agent's answer: the stop that its chat template writes after one, else the tokenizer's EOS.

    Some families end a turn and a text with different tokens, such as Gemma's <end_of_turn> and <eos>.
    """
    for token in _ids_after_an_answer(tokenizer, agent) if uses_chat(tokenizer, agent) else ():
        if token in stops:
            return token
    return stops[0] if tokenizer.eos_token_id is None else int(tokenizer.eos_token_id)


def _ids_after_an_answer(tokenizer: Any, agent: AgentSpec) -> list[int]:
    answer = "forty-two"
    try:
        turns = [("user", "6 * 7"), ("assistant", answer)]
        text = _rendered(tokenizer, agent, turns, add_generation_prompt=False)
    except Exception:  # a template may raise anything, and need not support answers
        return []
    _, separator, rest = text.rpartition(answer)
    return list(tokenizer(rest, add_special_tokens=False).input_ids) if separator else []


@dataclass(frozen=True)
class TurnMarks:
    """The ids around an environment's text, between two turns of an agent.

    before: from the EOS of the agent's turn, if its chat template writes one.  after: up to its next turn.
    opening: what of a thought `after` opens.
    """

    before: list[int]
    after: list[int]
    opening: str = ""

    def around(self, text_ids: Sequence[int], stops: Sequence[int], *, has_eos: bool) -> list[int]:
        """An environment's turn. has_eos: the agent's turn ended with an EOS, which is not repeated."""
        stop = next((place for place, token in enumerate(self.before) if token in stops), -1)
        return [*self.before[stop + 1 if has_eos else 0 :], *text_ids, *self.after]


def turn_marks(tokenizer: Any, agent: AgentSpec, role: Literal["tool", "user"]) -> TurnMarks:
    """How an agent's chat template writes a turn of that role, as the user's where it knows no tools.

    In the plain format that is `<tool>...</tool>` between line ends. Error: ValueError.
    """
    if not uses_chat(tokenizer, agent):
        texts = [f"\n<{role}>", f"</{role}>\n"]
    else:
        texts = _chat_marks(tokenizer, agent, role) or _chat_marks(tokenizer, agent, "user")
    if not texts:
        raise ValueError(
            f"the chat template of agent {agent.name!r} writes no turn after an answer, so no environment can answer "
            "it: set rollout.environment to none, or the agent's prompt_format to plain"
        )
    # In the template's own marks, what looks like a special token is one.
    before, after = (list(tokenizer(text, add_special_tokens=False).input_ids) for text in texts)
    return TurnMarks(before, after, thought_marks(tokenizer).opened_at_end(texts[1]))


def _chat_marks(tokenizer: Any, agent: AgentSpec, role: str) -> list[str]:
    """The texts before and after a turn that follows an answer; empty if the template does not write it."""
    answer, content = "forty-two", "seventeen"
    turns = [("user", "6 * 7"), ("assistant", answer), (role, content)]
    try:
        text = _rendered(tokenizer, agent, turns)
    except Exception:  # a template may raise anything, and need not know tools
        return []
    _, has_answer, rest = text.partition(answer)
    before, has_content, after = rest.partition(content)
    return [before, after] if has_answer and has_content else []
