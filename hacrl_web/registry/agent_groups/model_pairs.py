"""What two agents of a group have in common: measured once per pair of models, in a child process, and stored."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from hacrl_web.accounts.models import User
from hacrl_web.registry.base.children import INSPECTOR, TOKEN_OPTION
from hacrl_web.registry.hub_tokens.service import hub_token_for
from hacrl_web.registry.models import Agent, LanguageModel, PairInspection
from hacrl_web.web.errors import FieldErrors

# Ratio length `own` divides a shared rollout's log-probability by the learner's own token count: if two tokenizers
# differ by more than this share in the token count of a text, s is biased away from 1 before any learning.
MAX_DRIFT = 0.05
KINDS = {
    "identical": "Identical: the same model twice",
    "state": "Heterogeneous state: same architecture and size, other weights",
    "size": "Heterogeneous size: same family and tokenizer, other size",
    "model": "Heterogeneous model: other family or tokenizer",
}
SAME_MODEL = {
    "kind": "identical",
    "reason": "Only their random choices differ.",
    "same_tokenizer": True,
    "vocabulary_overlap": 1.0,
    "length_ratio": 1.0,
}


@dataclass(frozen=True)
class ModelPair:
    """Two agents, and the measured facts of their models; None until measured."""

    first: Agent
    second: Agent
    facts: dict[str, Any] | None

    @property
    def kind(self) -> str:
        """Definitions 2.1 to 2.3, in words."""
        return KINDS.get(str((self.facts or {}).get("kind")), "unknown")

    @property
    def length_ratio(self) -> float | None:
        """Tokens of the second agent for one of the first, on the same text."""
        ratio = (self.facts or {}).get("length_ratio")
        if not isinstance(ratio, (int, float)) or ratio <= 0:
            return None
        return ratio if self.first.model_id <= self.second.model_id else 1 / ratio

    @property
    def rereadings(self) -> list[tuple[Agent, Agent, float]]:
        """(learner, source, tokens of the learner for one of the source on the same text), both ways."""
        ratio = self.length_ratio
        return [] if ratio is None else [(self.second, self.first, ratio), (self.first, self.second, 1 / ratio)]

    @property
    def drift(self) -> float | None:
        """How far apart the token counts of the same text are, as a share of the smaller: 0.08 is 8 %."""
        ratio = self.length_ratio
        return None if ratio is None else max(ratio, 1 / ratio) - 1

    @property
    def warnings(self) -> list[str]:
        """Problems to consider before a launch."""
        result = []
        if self.drift is not None and self.drift > MAX_DRIFT:
            longer, shorter, _ = max(self.rereadings, key=lambda reading: reading[2])
            result.append(
                f"“{longer.name}” needs {100 * self.drift:.1f} % more tokens than “{shorter.name}” for the same text: "
                "with ratio length “own”, the sequence ratio s is biased away from 1 before any learning. Consider "
                "“source”."
            )
        texts = (self.facts or {}).get("texts") or []
        lost = sum(1 for text in texts if isinstance(text, dict) and text.get("survives") is False)
        if lost:
            result.append(
                f"{lost} of {len(texts)} sample texts change when one agent reads what the other wrote: "
                "a tokenizer lacks some of their characters."
            )
        return result


def known_facts(first: LanguageModel, second: LanguageModel) -> dict[str, Any] | None:
    """The stored facts, None if not yet measured. Ratios are those of the larger id to the smaller."""
    if first.pk == second.pk:
        return SAME_MODEL
    model_a, model_b = sorted((first, second), key=attrgetter("pk"))
    return PairInspection.objects.filter(model_a=model_a, model_b=model_b).values_list("facts", flat=True).first()


def measured_facts(first: LanguageModel, second: LanguageModel, user: User) -> dict[str, Any]:
    """The stored facts, or those that a child process measures now. Error: FieldErrors, 409 if it could not."""
    stored_facts = known_facts(first, second)
    if stored_facts is not None:
        return stored_facts
    model_a, model_b = sorted((first, second), key=attrgetter("pk"))
    options = [f"--revision-{side}={m.revision}" for side, m in (("a", model_a), ("b", model_b)) if m.revision]
    hub_token = hub_token_for(user, [model_a, model_b])
    verb = [*TOKEN_OPTION[: bool(hub_token)], "pair"]
    facts = INSPECTOR.ask(*verb, model_a.location, model_b.location, *options, at="agents", hub_token=hub_token)
    if facts.get("kind") not in KINDS:  # not stored, since its cause may go away
        message = str(facts.get("error") or "The two models could not be compared.")
        raise FieldErrors.single("not_measured", message, status=409)
    PairInspection.objects.get_or_create(model_a=model_a, model_b=model_b, defaults={"facts": facts})
    return facts
