"""What tells one row of a board from another: the settings that act, and the facts behind its scores.

Facts are the verifier's version, the digest of the questions and the state of the models. A change in any of them makes
another row; a run of an earlier version, which recorded none, stands in a row of its own that says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hacrl_web.insight.settings_diff import effective, flat
from hacrl_web.leaderboard.board.results import RunResult
from hacrl_web.registry.models import LanguageModel
from hacrl_web.runs.models import Run
from workers.contract.spec.algorithm import OWN_EPSILONS, SEQUENCE_EPSILONS, SHARING, acts_on_shared

EVALUATION_ONLY = "evaluation only"  # in an algorithm's place: a run of no steps
NOT_RECORDED = "not recorded"
_COMPARED = ("algorithm", "rollout", "training", "evaluation", "agents", "data")
# What acts on an untrained agent's score, so that runs which agree in it have the same start.
_ACTS_ON_START = ("data.", "evaluation.", "rollout.max_prompt_length", "rollout.max_completion_length")
_ACTS_ON_AGENT = ("name", "model", "revision", "prompt_format", "prompt_template", "chat_template_kwargs")
# Above 0: the run went on from a checkpoint of another, whose steps its own settings do not tell.
_START_STEP = "training.start_step"
Settings = Mapping[str, Any]


def algorithm_of(run: Run) -> str:
    """Its algorithm's name, in the words of RunSpec; of a run that only evaluates, that it does."""
    return run.algorithm if run.total_steps else EVALUATION_ONLY


def all_settings(run: Run) -> dict[str, Any]:
    """Every compared setting of a run by its dotted path, with today's defaults for those that came later."""
    spec = effective(run)
    settings = {path: value for section in _COMPARED for path, value in flat(spec.get(section), section)}
    return settings | ({_START_STEP: run.start_step} if run.start_step else {})


def relevant_settings(settings: Settings, algorithm: str) -> dict[str, Any]:
    """The settings without what `algorithm` has no use for: runs that agree in them are one row.

    An epsilon that a run leaves empty is the algorithm's own: a row of its own only where the number differs.
    """
    relevant = {path: value for path, value in settings.items() if path != "algorithm.name"}
    if algorithm == EVALUATION_ONLY:
        return {path: value for path, value in relevant.items() if _acts_on_start(path)}
    own = OWN_EPSILONS.get(algorithm, SEQUENCE_EPSILONS)
    for path, epsilon in zip(("algorithm.epsilon", "algorithm.epsilon_high"), own, strict=True):
        if relevant.get(path) is None:
            relevant[path] = epsilon
    return (
        relevant if algorithm in SHARING else {path: value for path, value in relevant.items() if not _is_cross(path)}
    )


def _is_cross(path: str) -> bool:
    section, _, name = path.partition(".")
    return section == "algorithm" and acts_on_shared(name)


def _acts_on_start(path: str) -> bool:
    if path.startswith("agents."):
        return path.split(".")[2] in _ACTS_ON_AGENT
    return path.startswith(_ACTS_ON_START) and path != "evaluation.eval_interval"


def model_facts(run: Run) -> dict[str, str]:
    """The state of each agent's model: the hub's commit, or the local folder's fingerprint when it was registered."""
    members = {agent.name: agent.model for agent in run.group.agents.all()} if run.group else {}
    facts = {}
    for agent in run.spec["agents"]:
        model, state = members.get(agent["name"]), agent.get("revision") or ""
        if not state and model is not None and model.location == agent["model"]:
            state = model.revision if model.kind == LanguageModel.Kind.HUB else model.facts.get("folder_fingerprint")
        facts[f"model of {agent['name']}"] = str(state or NOT_RECORDED)
    return facts


def score_facts(result: RunResult) -> dict[str, str]:
    """Verifier and questions of each benchmark; every agent was asked the same, by the same verifier."""
    facts = {}
    for scores in result.final.values():
        for benchmark, score in scores.items():
            facts[f"verifier of {benchmark}"] = score.verifier or NOT_RECORDED
            facts[f"questions of {benchmark}"] = score.questions or NOT_RECORDED
    return dict(sorted(facts.items()))


def key_of(*parts: Any) -> str:
    """The same for equal parts, whatever the order of their keys."""
    return json.dumps(parts, sort_keys=True, default=str)


def row_id(key: str) -> str:
    """Short and stable, for addresses."""
    return hashlib.sha256(key.encode()).hexdigest()[:10]


def start_key(settings: Settings, facts: Mapping[str, str]) -> str:
    """Rows that agree in it started from the same scores; those that went on from a checkpoint have no start."""
    return key_of({path: value for path, value in settings.items() if _acts_on_start(path)}, facts)


def differing_facts(own: Settings, others: Sequence[Settings]) -> dict[str, Any]:
    """What is different in any of the others. An agent's model and name are told by its lines, not here."""
    return {
        path: value
        for path, value in own.items()
        if not _is_told_by_lines(path) and any(other.get(path) != value for other in others)
    }


def _is_told_by_lines(path: str) -> bool:
    return path.startswith("agents.") and path.endswith((".name", ".model"))
