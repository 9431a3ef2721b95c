"""What a launch has to confirm: the cautions of the settings, and of what its models do together."""

from __future__ import annotations

from collections.abc import Iterable

from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.models import Run, State
from workers.contract.spec import teaching
from workers.contract.spec.run import Caution, RunSpec

THOUGHTS_DIFFER = "thoughts_differ"


def launch_cautions(spec: RunSpec, models: Iterable[LanguageModel]) -> list[Caution]:
    """models: those of the agents, as they are registered. Of a model that was inspected before nothing is known."""
    return [*teaching.cautions_of(spec), *_differing_thoughts(spec, {model.location: model for model in models})]


def cautions_of_run(run: Run, spec: RunSpec) -> list[Caution]:
    """Those of a run that exists."""
    locations = [agent.model for agent in spec.agents]
    return launch_cautions(spec, LanguageModel.objects.filter(project=run.project_id, location__in=locations))


def confirmed_codes(run: Run, spec: RunSpec) -> list[str]:
    """The cautions that the run confirmed; those of a draft are still open."""
    return [] if run.state == State.DRAFT else [one.code for one in cautions_of_run(run, spec)]


def _differing_thoughts(spec: RunSpec, models: dict[str, LanguageModel]) -> list[Caution]:
    """One, if the prompts of some agents open a thought and those of their peers do not."""
    names: dict[bool, list[str]] = {True: [], False: []}
    for agent in spec.agents:
        opens = models[agent.model].facts.get("opens_thought") if agent.model in models else None
        if opens is not None:
            names[agent.prompt_format != "plain" and agent.thinking in opens].append(agent.name)
    if spec.sharing is None or spec.is_evaluation_only or not (names[True] and names[False]):
        return []
    kept = "and learn to go on from it" if spec.sharing.peer_thoughts == "keep" else "without it"
    message = (
        f"The chat template of {names[True][0]} opens a thought before each answer, and that of {names[False][0]} does "
        f"not: answers with a thought reach such peers {kept}. Choose peer_thoughts, or the same thinking for all."
    )
    return [Caution(code=THOUGHTS_DIFFER, field="algorithm.peer_thoughts", message=message)]
