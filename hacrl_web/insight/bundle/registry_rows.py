"""The agent group and the benchmark of an imported run: those of the project that are the same, or new ones.

A local model is registered without its files: no run can start from it before it is registered again, but results are
listed and compared by its group. A reward function is code, so none is created.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from pydantic import ValidationError

from hacrl_web.accounts.models import Project, User
from hacrl_web.insight.bundle.export import facts_of_agent, facts_of_model
from hacrl_web.insight.bundle.layout import (
    HELD_OUT_NAME,
    TRAIN_NAME,
    AgentFacts,
    BenchmarkFacts,
    GroupFacts,
    ModelFacts,
)
from hacrl_web.insight.bundle.reader import Bundle, bundle_refusal
from hacrl_web.registry.base.locations import checked_hub_id, checked_revision
from hacrl_web.registry.benchmarks.service import create_benchmark
from hacrl_web.registry.models import AGENT_SETTINGS, Agent, AgentGroup, Benchmark, LanguageModel, RewardFunction
from hacrl_web.web.errors import FieldErrors
from workers.contract.spec.agent import AgentSpec

NAME_CHARACTERS = 80
# What two benchmarks share that ask the same questions and verify answers alike.
SAME = ("questions_sha", "verifier", "extraction", "tolerance", "prompt_template", "system_prompt")


def group_for(user: User, project: Project, facts: GroupFacts) -> AgentGroup:
    """A group of the project with these agents. Error: FieldErrors for agents that no group can have."""
    _check_agents(facts)
    agents = sorted(facts.agents, key=lambda agent: agent.position)
    for group in AgentGroup.objects.filter(project=project).order_by("pk"):
        own = [facts_of_agent(agent) for agent in group.agents.select_related("model")]
        if [_identity(agent) for agent in own] == [_identity(agent) for agent in agents]:
            return group
    with transaction.atomic():
        group = AgentGroup.objects.create(owner=user, project=project, name=_free_name(AgentGroup, project, facts.name))
        for agent in agents:
            Agent.objects.create(
                group=group,
                model=_model_for(user, project, agent.model),
                **{name: getattr(agent, name) for name in ("name", "position", "learning_rate", "settings")},
                prompt_format=agent.prompt_format,
            )
    return group


def _check_agents(facts: GroupFacts) -> None:
    names, places = [agent.name for agent in facts.agents], sorted(agent.position for agent in facts.agents)
    if len(set(names)) < len(names) or places != list(range(len(places))):
        raise bundle_refusal("The agents of the group have the same name or place twice.")
    for agent in facts.agents:
        if unknown := set(agent.settings) - set(AGENT_SETTINGS):
            raise bundle_refusal(f"The agent {agent.name} has an unknown setting: {min(unknown)[:80]!r}.")
        values = agent.settings | {"name": agent.name, "model": "-", "prompt_format": agent.prompt_format}
        if agent.learning_rate is not None:
            values["learning_rate"] = agent.learning_rate
        try:
            AgentSpec.model_validate(values)
        except ValidationError as error:
            raise bundle_refusal(f"The agent {agent.name}: {error.errors()[0]['msg']}.") from None
        if agent.model.kind == "hub":
            checked_hub_id(agent.model.place)
            checked_revision(agent.model.revision)


def _identity(agent: AgentFacts) -> tuple[Any, ...]:
    settings_text = json.dumps(agent.settings, sort_keys=True)
    return agent.name, agent.learning_rate, agent.prompt_format, settings_text, *_model_identity(agent.model)


def _model_identity(model: ModelFacts) -> tuple[Any, ...]:
    return model.kind, model.place, model.revision


def _model_for(user: User, project: Project, facts: ModelFacts) -> LanguageModel:
    for model in LanguageModel.objects.filter(project=project, kind=facts.kind).order_by("pk"):
        if _model_identity(facts_of_model(model)) == _model_identity(facts):
            return model
    columns = facts.model_dump(exclude={"name", "place", "facts"})
    columns["location"] = facts.place
    further: dict[str, Any] = {}
    if facts.kind == "local":  # never the path of another machine: nobody has checked it here
        slug = hashlib.sha256(facts.place.encode()).hexdigest()[:16]
        columns["location"] = str(Path(settings.MODELS_DIR).resolve() / "imported" / slug)
        further["imported_place"] = facts.place
    name = _free_name(LanguageModel, project, facts.name)
    return LanguageModel.objects.create(
        owner=user, project=project, name=name, facts=facts.facts | further | {"checks": []}, **columns
    )


def _free_name(model: Any, project: Project, name: str) -> str:
    """The name, or the name with a number if the project has one of that name."""
    names = set(model.objects.filter(project=project).values_list("name", flat=True))

    def candidates() -> Iterator[str]:
        yield name
        for number in count(1):
            ending = " (imported)" if number == 1 else f" (imported {number})"
            yield name[: NAME_CHARACTERS - len(ending)] + ending

    return next(one for one in candidates() if one not in names)


def benchmark_for(user: User, project: Project, facts: BenchmarkFacts, bundle: Bundle) -> Benchmark:
    """A benchmark of the project with the same questions and verifier, or a new one of the bundle's files.

    Error: FieldErrors, with the reason why there is none.
    """
    for row in Benchmark.objects.filter(project=project, questions_sha=facts.questions_sha).order_by("pk"):
        if facts.questions_sha and all(getattr(row, name) == getattr(facts, name) for name in SAME):
            return row
    if not bundle.has(TRAIN_NAME):
        raise bundle_refusal("The bundle has no question files.", "no_questions")
    fields: dict[str, Any] = {name: getattr(facts, name) for name in SAME if name not in ("questions_sha", "tolerance")}
    fields |= {"tolerance": "" if facts.tolerance is None else facts.tolerance}
    fields |= {"held_out_fraction": facts.held_out_fraction, "name": _free_name(Benchmark, project, facts.name)}
    if facts.verifier == "function":
        functions = RewardFunction.objects.filter(project=project, sha256=facts.reward_function)
        if (function := functions.first()) is None:
            message = "Its verifier is a reward function that this project does not have: register it first."
            raise bundle_refusal(message, "no_function")
        fields["reward_function"] = function.pk
    with ExitStack() as files:
        file, held_out = (_unpacked(bundle, name, files) for name in (TRAIN_NAME, HELD_OUT_NAME))
        row = create_benchmark(user, file=file, held_out_file=held_out, **fields)
    Benchmark.objects.filter(pk=row.pk).update(source=facts.source)
    row.refresh_from_db()
    return row


def _unpacked(bundle: Bundle, name: str, files: ExitStack) -> UploadedFile | None:
    """A member as a file that a form could have sent; it is gone when `files` closes."""
    if not bundle.has(name):
        return None
    file = files.enter_context(TemporaryFile())  # noqa: SIM115 - the stack closes it
    size = sum(file.write(piece) for piece in bundle.pieces(name))
    file.seek(0)
    return UploadedFile(file, name=Path(name).name, size=size)


def benchmark_or_reason(
    user: User, project: Project, facts: BenchmarkFacts | None, bundle: Bundle
) -> tuple[Benchmark | None, str]:
    """The benchmark, or why the run is imported without one."""
    if facts is None:
        return None, ""
    try:
        return benchmark_for(user, project, facts, bundle), ""
    except FieldErrors as refused:
        return None, f"The benchmark {facts.name} is not here, and the run has none: {refused.text}"
