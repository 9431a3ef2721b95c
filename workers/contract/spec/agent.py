"""RunSpec's section of one agent."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import ValidationInfo, field_validator

from workers.contract.settings import UNPRINTABLE, Count, Number, PromptTemplate, SettingsSection, setting

# Parameters of apply_chat_template itself, and the values that it passes to every template.
RESERVED_KEYWORDS = frozenset(
    (
        *("self", "conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt"),
        *("continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors"),
        *("return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
    )
)
# The argument of Qwen3's chat template, and of others since, that asks for thinking before the answer.
THINKING_ARGUMENT = "enable_thinking"


class AgentSpec(SettingsSection):
    """One agent: its language model, and the settings in which it differs from its peers."""

    name: str = setting(
        help="Unique within the run; labels the agent in every chart.",
        source="product",
        min_length=1,
        max_length=80,
        pattern=rf"^[^{UNPRINTABLE}/\\]+$",
    )
    model: str = setting(
        help="Folder (config.json, tokenizer, safetensors) or hub id.", source="product", min_length=1, max_length=1000
    )
    revision: str | None = setting(
        None, help="Hub commit, tag or branch.", source="product", pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$"
    )
    seed: Count | None = setting(
        None,
        help="Seed of this agent's random choices; empty: derived from its name, whatever its place in the list.",
        source="design: randomness",
        ge=0,
        le=2**31 - 1,
    )
    learning_rate: Number | None = setting(
        None,
        help="Learning rate of this agent; empty: the run's, with LoRA times training.lora_learning_rate_factor.",
        source="product",
        gt=0,
        le=1,
    )
    prompt_format: Literal["auto", "chat", "plain"] = setting(
        "auto",
        help="chat: the tokenizer's chat template; plain: the bare prompt; auto: chat if the tokenizer has a template.",
        source="design: tokenizers and text",
    )
    prompt_template: PromptTemplate = setting(
        "{question}", help="Text of the prompt; {question} is replaced by the question.", source="product"
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
    thinking: Literal["auto", "on", "off"] = setting(
        "auto",
        help=f"Whether the chat template asks for thinking before the answer ({THINKING_ARGUMENT}); auto: as the "
        "template does by itself. on and off need a template that knows the argument.",
        source="Qwen3, arXiv 2505.09388",
    )
    temperature: Number | None = setting(
        None,
        help="Temperature of this agent's rollouts and of its log-probabilities, also of its peers' rollouts; empty: "
        "the run's.",
        source="product",
        gt=0,
        le=5,
    )
    top_p: Number | None = setting(
        None,
        label="Top-p",
        help="In training: this agent samples from the most probable tokens, which together have this probability; "
        "empty: the run's.",
        source="product",
        gt=0,
        le=1,
    )
    top_k: Count | None = setting(
        None,
        label="Top-k",
        help="In training: this agent samples from this many most probable tokens, 0: from all; empty: the run's.",
        source="product",
        unit="tokens",
        ge=0,
        le=1_000_000,
    )

    @field_validator("chat_template_kwargs")
    @classmethod
    def _no_reserved_keywords(cls, keywords: dict[str, bool | int | str]) -> dict[str, bool | int | str]:
        if reserved := sorted(set(keywords) & RESERVED_KEYWORDS):
            raise ValueError(f"{reserved[0]!r} is not an argument of the template: remove it")
        return keywords

    @field_validator("thinking", mode="before")
    @classmethod
    def _words_of_yaml(cls, thinking: object) -> object:
        """YAML 1.1 reads on and off as true and false."""
        return {True: "on", False: "off"}[thinking] if isinstance(thinking, bool) else thinking

    @field_validator("thinking")
    @classmethod
    def _thinking_is_set_once(cls, thinking: str, info: ValidationInfo) -> str:
        if thinking == "auto":
            return thinking
        if info.data.get("prompt_format") == "plain":
            raise ValueError("prompt_format plain uses no chat template: choose thinking auto, or another format")
        if THINKING_ARGUMENT in info.data.get("chat_template_kwargs", {}):
            raise ValueError(f"chat_template_kwargs sets {THINKING_ARGUMENT} too: remove it there, or choose auto here")
        return thinking

    @property
    def template_arguments(self) -> dict[str, bool | int | str]:
        """The extra arguments of the chat template."""
        if self.thinking == "auto":
            return self.chat_template_kwargs
        return {**self.chat_template_kwargs, THINKING_ARGUMENT: self.thinking == "on"}

    @property
    def stable_seed(self) -> int:
        """The agent's seed, or one derived from its name: independent of its place in the list."""
        if self.seed is not None:
            return self.seed
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:4], "big") >> 1
