"""The prompt that each agent of a group reads for a question of a benchmark, as a child process encodes it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from hacrl_web.accounts.models import User
from hacrl_web.registry.agent_groups.agent_settings import agent_values
from hacrl_web.registry.base.children import PREVIEWER
from hacrl_web.registry.benchmarks.questions import QuestionRow, read_row
from hacrl_web.registry.hub_tokens.service import hub_token_for
from hacrl_web.registry.language_models.service import check_unchanged
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark
from hacrl_web.web.errors import FieldErrors

MAX_SHOWN = 4_000  # tokens of a prompt on a page


@dataclass(frozen=True)
class TokenPiece:
    """The text of a token, or of several that are one character. is_special: not of ordinary text, as <|im_end|>."""

    text: str
    is_special: bool

    @property
    def marked_text(self) -> str:
        """The text with a mark before each line break, so that a page tells it from a wrapped line."""
        return self.text.replace("\n", "↵\n")


@dataclass(frozen=True)
class AgentPrompt:
    """The prompt of one agent. `error` says why the agent cannot read it; then the rest is empty."""

    agent: Agent
    text: str
    token_ids: list[int]
    pieces: list[TokenPiece]
    notes: list[str]
    error: str

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def first_pieces(self) -> list[TokenPiece]:
        """A page shows these tokens, and the number of the others."""
        return list(islice(self.pieces, MAX_SHOWN))

    @property
    def num_hidden(self) -> int:
        return max(0, len(self.pieces) - MAX_SHOWN)


@dataclass(frozen=True)
class PromptPreview:
    """A question, and the prompts of all agents in their order."""

    question: QuestionRow
    prompts: list[AgentPrompt]


def preview_prompts(
    group: AgentGroup, benchmark: Benchmark, line: int, file: str = "train", *, user: User
) -> PromptPreview:
    """line: of the question in the training file, or in the held-out file, from 0. Error: FieldErrors."""
    file = file if benchmark.eval_path else "train"
    try:
        question = read_row(benchmark, file, line)
    except (OSError, ValueError, KeyError):
        message = "The question files of this benchmark cannot be read."
        raise FieldErrors.single("unreadable", message, "benchmark", status=409) from None
    if question is None:
        raise FieldErrors.single("not_found", f"The file has no question {line + 1:,}: choose a lower number.", "line")
    agents = list(group.agents.select_related("model"))
    for model in {agent.model for agent in agents}:
        check_unchanged(model, field="group")
    request = {
        "question": question.question,
        "template": benchmark.prompt_template,
        "system": benchmark.system_prompt,
        "agents": [agent_values(agent) for agent in agents],
    }
    token = hub_token_for(user, [agent.model for agent in agents])
    replies = PREVIEWER.ask(at="group", request=request, hub_token=token)["agents"]
    return PromptPreview(question, [_prompt(agent, reply) for agent, reply in zip(agents, replies, strict=True)])


def _prompt(agent: Agent, reply: dict[str, Any]) -> AgentPrompt:
    return AgentPrompt(
        agent=agent,
        text=reply.get("text", ""),
        token_ids=reply.get("token_ids", []),
        pieces=[TokenPiece(**piece) for piece in reply.get("pieces", ())],
        notes=reply.get("notes", []),
        error=reply.get("error", ""),
    )
