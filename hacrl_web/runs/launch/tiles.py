"""The presets that the new-run form shows as tiles: whether each suits a group, and how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hacrl_web.accounts.models import User
from hacrl_web.registry.agent_groups.agent_settings import agent_values
from hacrl_web.registry.models import Agent, AgentGroup, Benchmark
from hacrl_web.runs.launch.cost import seconds_like
from hacrl_web.runs.launch.presets import memory_of_presets, presets, sections_of
from hacrl_web.runs.launch.recommendation import are_tiny, shortest_context
from workers.contract.spec.run import RunSpec

TILES = {"demo": "Demo", "laptop": "Laptop", "gpu-24gb": "24 GB", "gpu-80gb": "80 GB", "paper-8x80gb": "Paper"}


def tiles(user: User, group: AgentGroup, benchmark: Benchmark | None, agents: Sequence[Agent]) -> list[dict[str, Any]]:
    """Of each tile: name, `misfit` (why it does not suit these agents, empty if it does), text, seconds or None."""
    memory = {one.name: one for one in memory_of_presets(agents)}
    context, rows = shortest_context(agents), []
    for row in presets():
        if row["name"] not in TILES:
            continue
        sections = sections_of(row["values"])
        spec = RunSpec.model_validate(
            {"agents": [agent_values(one) for one in agents], "data": {"train_path": "-"}, **sections}
        )
        length = spec.rollout.max_prompt_length + spec.rollout.max_completion_length
        needed = memory.get(row["name"])
        misfit = ""
        if context and length > context:
            misfit = f"too long: {length:,} tokens, the models read {context:,}"
        elif row["name"] == "demo" and not are_tiny(agents):
            misfit = "for models below 10M parameters"
        elif needed and not needed.fits:
            misfit = "does not fit"
        seconds = seconds_like(user, group, benchmark, spec) if benchmark and not misfit else None
        rows.append({"name": row["name"], "misfit": misfit, "text": needed.text if needed else "", "seconds": seconds})
    return rows
