"""What two agents of a group have in common: measured once per pair of models, in a child process, and kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hacrl_web.registry.inspection import inspect
from hacrl_web.registry.models import Agent, LanguageModel, PairInspection

# Ratio length `own` divides a shared rollout's log-probability by the learner's own token count: where the two
# tokenizers cut the same text into counts this far apart, s is biased away from 1 before any learning.
MAX_DRIFT = 0.05
KINDS = {
    "same": "Same model: the agents start as one and differ by what they sample.",
    "state": "Heterogeneous state: same architecture and size, different weights.",
    "size": "Heterogeneous size: same family and tokenizer, different sizes.",
    "model": "Heterogeneous model: different architecture or tokenizer.",
}


@dataclass(frozen=True)
class Pair:
    """Two agents and what is known of their models; `facts` is None until measured."""

    first: Agent
    second: Agent
    facts: dict[str, Any] | None

    @property
    def explanation(self) -> str:
        return KINDS.get(str((self.facts or {}).get("heterogeneity")), "")

    @property
    def drift(self) -> float | None:
        """Relative difference of token counts on the same text, as a share: 0.08 is 8 %."""
        drift = (self.facts or {}).get("length_drift")
        return float(drift) if isinstance(drift, (int, float)) else None

    @property
    def warnings(self) -> list[str]:
        """What to think of before a launch."""
        found = []
        if self.drift is not None and abs(self.drift) > MAX_DRIFT:
            found.append(
                f"The same text has {abs(self.drift):.1%} more or fewer tokens for one than for the other. With ratio "
                "length “own” the sequence ratio s is biased away from 1 before any learning: consider “source”."
            )
        return found


def known_facts(first: LanguageModel, second: LanguageModel) -> dict[str, Any] | None:
    """What was measured before, without starting anything."""
    if first.pk == second.pk:
        return {"heterogeneity": "same", "same_tokenizer": True, "vocabulary_overlap": 1.0, "length_drift": 0.0}
    kept = PairInspection.objects.filter(model_a=min(first, second, key=_pk), model_b=max(first, second, key=_pk))
    return kept.values_list("facts", flat=True).first()


def measured_facts(first: LanguageModel, second: LanguageModel) -> dict[str, Any]:
    """What is known, else what a child process measures now. Error: FieldErrors."""
    known = known_facts(first, second)
    if known is not None:
        return known
    model_a, model_b = sorted((first, second), key=_pk)
    options = [f"--revision-{side}={m.revision}" for side, m in (("a", model_a), ("b", model_b)) if m.revision]
    facts = inspect("pair", model_a.location, model_b.location, *options, field="agents")
    if "heterogeneity" in facts:  # a refusal is not kept: its cause may go away
        PairInspection.objects.get_or_create(model_a=model_a, model_b=model_b, defaults={"facts": facts})
    return facts


def _pk(model: LanguageModel) -> int:
    return model.pk
