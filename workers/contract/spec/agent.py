"""RunSpec's section of one agent."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import field_validator

from workers.contract.spec.fields import UNPRINTABLE, Count, Number, SettingsSection, holds_question, setting

# Parameters of apply_chat_template itself, and what it hands to every template.
NOT_OF_TEMPLATES = frozenset(
    {
        "self",
        "conversation",
        "messages",
        "tools",
        "documents",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "tokenize",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    }
)


class AgentSpec(SettingsSection):
    """One learner: a language model, and what differs between it and its peers."""

    name: str = setting(
        help="Unique within the run; the agent's name in every chart.",
        source="product",
        min_length=1,
        max_length=80,
        pattern=rf"^[^{UNPRINTABLE}/\\]+$",
    )
    model: str = setting(
        help="Folder with config.json, tokenizer and *.safetensors, or a hub id.",
        source="product",
        min_length=1,
        max_length=1000,
    )
    revision: str | None = setting(
        None,
        help="Hub revision (commit, tag or branch).",
        source="product",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$",
    )
    seed: Count | None = setting(
        None,
        help="Seed of this agent's random choices; empty: derived from its name, whatever its place in the list.",
        source="design: randomness",
        ge=0,
        le=2**31 - 1,
    )
    learning_rate: Number | None = setting(
        None, help="Learning rate of this agent alone; empty: the run's.", source="product", gt=0, le=1
    )
    prompt_format: Literal["auto", "chat", "plain"] = setting(
        "auto",
        help="chat: the tokenizer's chat template; plain: the bare prompt; auto: chat where there is a template.",
        source="design: tokenizers and text",
    )
    prompt_template: str = setting(
        "{question}",
        help="Text of the prompt; {question} is replaced by the question.",
        source="product",
        max_length=20_000,
    )
    chat_template_kwargs: dict[str, bool | int | str] = setting(
        {}, help="Extra arguments of the chat template, such as enable_thinking.", source="official recipe"
    )
    lora_rank: Count = setting(
        0,
        label="LoRA rank",
        help="Rank of LoRA matrices, trained in place of the weights; 0: all weights are trained.",
        source="LoRA, arXiv 2106.09685",
        ge=0,
        le=1024,
    )
    lora_alpha: Number = setting(
        32.0,
        label="LoRA alpha",
        help="LoRA matrices are scaled by lora_alpha / lora_rank.",
        source="arXiv 2106.09685",
        gt=0,
        le=10_000,
    )

    _template_holds_question = field_validator("prompt_template")(holds_question)

    @field_validator("chat_template_kwargs")
    @classmethod
    def _keywords_are_the_templates(cls, keywords: dict[str, bool | int | str]) -> dict[str, bool | int | str]:
        reserved = sorted(set(keywords) & NOT_OF_TEMPLATES)
        if reserved:
            raise ValueError(
                f"{reserved[0]!r} is none of the template's arguments: the trainer sets it, or cannot use it"
            )
        return keywords

    @property
    def stable_seed(self) -> int:
        """The agent's seed, or one derived from its name: independent of its place in the list."""
        if self.seed is not None:
            return self.seed
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:4], "big") >> 1
