"""The tokenizer that the harness gets: its prompts follow the rules of ours.

The harness puts questions into the chat template as they are. Its tokenizer therefore has other names of the marks,
which no question holds: a question with the words of a mark is text, and the ids are the model's. In answers, marks
that are no special pieces, such as <think>, have their own words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workers.contract.spec.agent import AgentSpec
from workers.model.prompts import adds_bos
from workers.model.template_marks import marks_of, twin_of
from workers.model.thoughts import ThoughtMarks, thought_marks
from workers.tokenizer_files import read_tokenizer

# Turns whose ids must be the same by both names, so that a template which writes its marks in parts is noticed.
_PROBE = (("user", "6 * 7"), ("assistant", "forty-two"), ("user", "and 6 + 7?"))


def tokenizer_arguments(agent: AgentSpec, location: str, folder: Path, *, is_chat: bool) -> dict[str, Any]:
    """Arguments of the harness's model. A tokenizer with names of its own is written into `folder`.

    Without a tokenizer that can be read here they are those of any model: the harness says what is wrong with it.
    """
    arguments: dict[str, Any] = {"add_bos_token": False if is_chat else None}  # a template writes its own first token
    try:
        tokenizer = read_tokenizer(location, local_files_only=True)
    except Exception:  # broken files raise all kinds of exceptions here
        return arguments
    if is_chat:
        chatting = agent.model_copy(update={"prompt_format": "chat"})
        arguments["add_bos_token"] = adds_bos(tokenizer, chatting)
        arguments |= _end_of_thoughts(thought_marks(tokenizer))
    if (renamed := _renamed(tokenizer, agent)) is not None:
        renamed.save_pretrained(folder)
        arguments["tokenizer"] = str(folder)
    return arguments


def _end_of_thoughts(marks: ThoughtMarks) -> dict[str, Any]:
    """What the harness leaves out of an answer, as our verifiers do: all up to the end of the thoughts."""
    if not marks.is_known:
        return {}
    if not marks.ids:
        return {"think_end_token": marks.closing}
    return {"think_end_token": marks.ids[1][-1]}


def _renamed(tokenizer: Any, agent: AgentSpec) -> Any:
    """None where the template's marks cannot be renamed."""
    from tokenizers import decoders
    from transformers import PreTrainedTokenizerFast

    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    twin = twin_of(tokenizer, special.union(marks_of(tokenizer).ids))
    if twin is None:
        return None
    backend, names = twin
    if backend.decoder is not None:  # it gets the tokens' own words
        own_words = [decoders.Replace(name, words) for words, name in names.items() if words not in special]
        backend.decoder = decoders.Sequence([*own_words, backend.decoder])
    roles = {role: words for role, words in tokenizer.special_tokens_map.items() if isinstance(words, str)}
    own = {role: names.get(words, words) for role, words in roles.items()}
    template = tokenizer.chat_template
    renamed = PreTrainedTokenizerFast(tokenizer_object=backend, **own, padding_side="left")
    if not isinstance(template, str):
        return renamed if template is None else None
    for words in sorted(names, key=len, reverse=True):
        template = template.replace(words, names[words])
    renamed.chat_template = template
    messages = [{"role": role, "content": content} for role, content in _PROBE]
    arguments: dict[str, Any] = {**agent.template_arguments}
    texts = [
        one.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **arguments)
        for one in (tokenizer, renamed)
    ]
    ids = [one(text, add_special_tokens=False).input_ids for one, text in zip((tokenizer, renamed), texts, strict=True)]
    return renamed if ids[0] == ids[1] else None
