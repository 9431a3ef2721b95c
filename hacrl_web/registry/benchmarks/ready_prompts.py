"""Ready prompts for a benchmark: each a system prompt and a prompt template that ask for what a verifier reads."""

from __future__ import annotations

from dataclasses import dataclass

from workers.contract.verifier_kinds import CODE_KINDS, VerifierKind


@dataclass(frozen=True)
class ReadyPrompt:
    """verifiers: the kinds that read answers in the form that it asks for."""

    key: str
    name: str
    prompt_template: str
    system_prompt: str = ""
    verifiers: tuple[VerifierKind, ...] = ()

    @property
    def label(self) -> str:
        """Its name, and the verifiers that fit."""
        return f"{self.name} (verifier {' or '.join(self.verifiers)})" if self.verifiers else self.name


READY_PROMPTS = (
    ReadyPrompt(
        key="boxed",
        name="Step by step, the answer in a box",
        # The field's usual prompt for mathematics (Qwen2.5-Math's, among others).
        prompt_template="{question}\n\nPlease reason step by step, and put your final answer within \\boxed{}.",
        verifiers=("math", "numeric"),
    ),
    ReadyPrompt(
        key="numeric",
        name="A number: The answer is N",
        system_prompt="You are a careful math tutor. Give one short calculation, then end with 'The answer is N.'",
        prompt_template="{question}",
        verifiers=("numeric", "math"),
    ),
    ReadyPrompt(
        key="choice",
        name="Multiple choice: The answer is X",
        prompt_template="{question}\n\nThink step by step, then end with 'The answer is X.', where X is the letter of "
        "the correct option.",
        verifiers=("choice",),
    ),
    ReadyPrompt(
        key="code",
        name="A Python function in a block of code",
        prompt_template="Write a Python function that solves this problem. Put all of its code into one block that "
        "begins with ```python.\n\n{question}",
        verifiers=CODE_KINDS,
    ),
    ReadyPrompt(
        key="countdown",
        name="Think, then one expression in a box",
        prompt_template="{question}\n\nThink step by step, then put the expression alone within \\boxed{}.",
        verifiers=("countdown",),
    ),
    ReadyPrompt(
        key="tags",
        name="Think, then the answer in <answer>",
        prompt_template="{question}\n\nThink step by step, then give the final answer alone in <answer> </answer>.",
        verifiers=("reasoning_gym",),
    ),
    ReadyPrompt(key="bare", name="The bare question", prompt_template="{question}"),
)
BY_READY_KEY = {prompt.key: prompt for prompt in READY_PROMPTS}


def ready_key(prompt_template: str, system_prompt: str) -> str:
    """The key of the ready prompt with these texts; empty if they are none's."""
    texts = (prompt_template, system_prompt)
    return next((one.key for one in READY_PROMPTS if (one.prompt_template, one.system_prompt) == texts), "")
