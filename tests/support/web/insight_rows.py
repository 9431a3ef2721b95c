"""Rows for the tests of the explaining pages: made-up rollouts with what they taught, and those of a real run."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

from hacrl_web.runs.models import Run
from hacrl_web.runs.telemetry.tables import insert
from workers.contract.spool import read_spool

AGENTS = ("A", "B")


def rollout(seq: int, step: int, agent: str, prompt: str, sample: int, attempt: int = 1, **changes: Any) -> dict:
    return {
        "type": "rollout", "seq": seq, "attempt": attempt, "time": 1.0, "step": step, "agent": agent,
        "prompt_id": prompt, "sample": sample, "prompt": f"question {prompt}", "completion": "one", "answer": "7",
        "reward": 1.0, "finish_reason": "stop", "num_tokens": 9, "mean_logp": -0.5, **changes,
    }  # fmt: skip


def contribution(
    seq: int, step: int, learner: str, source: str, prompt: str, sample: int, attempt: int = 1, **changes: Any
) -> dict:
    return {
        "type": "contribution", "seq": seq, "attempt": attempt, "time": 1.0, "step": step, "agent": learner,
        "source": source, "prompt_id": prompt, "sample": sample, "num_tokens": 9, "advantage": 1.0,
        "sequence_ratio": 1.0, "clipped_ratio": 1.0, "clip_side": "none", "omega": 1.0, "weight": 1.0, "mini_batch": 0,
        "drop_reason": None, "reward": 1.0, "source_num_tokens": 9, "alpha": None if learner == source else 1.0,
        "capability": 0.5, "source_capability": 0.5, **changes,
    }  # fmt: skip


def made_up(run: Run, attempts: dict[int, range], seed: int = 0, agents: tuple[str, ...] = AGENTS) -> list[dict]:
    """Two prompts, two rollouts each, of every agent and step of each attempt; random numbers. Returns the records."""
    chance = random.Random(seed)
    records: list[dict] = []
    for attempt, steps in attempts.items():
        for step in steps:
            told = []
            for agent, prompt, sample in itertools.product(agents, ("p0", "p1"), range(2)):
                numbers = {"reward": chance.choice([0.0, 1.0, 0.5, None]), "num_tokens": chance.randrange(4, 12)}
                text = f"attempt {attempt} {chance.choice(['one', 'two', 'Three'])}"
                body = rollout(0, step, agent, prompt, sample, attempt, completion=text, **numbers)
                told.append(body)
                if body["reward"] is not None:
                    told += [_contribution(chance, learner, body) for learner in agents]
            told.sort(key=lambda record: record["type"], reverse=True)  # rollouts first, as the trainer tells them
            for record in told:
                records.append({**record, "seq": len(records) + 1})
    insert(run.pk, records)
    return records


def _contribution(chance: random.Random, learner: str, body: dict) -> dict:
    advantage = chance.choice([-1.5, 0.0, 0.5, 2.0])
    ratio = chance.uniform(0.5, 1.2) if advantage else None
    side = "none" if ratio is None else "lower" if ratio < 0.8 else "upper" if ratio > 1 else "none"
    place = (body["step"], learner, body["agent"], body["prompt_id"], body["sample"], body["attempt"])
    numbers = {"advantage": advantage, "sequence_ratio": ratio, "clip_side": side, "reward": body["reward"]}
    return contribution(0, *place, source_num_tokens=body["num_tokens"], **numbers)


def store(run: Run, run_dir: Path) -> list[dict]:
    """All that a trainer has told, as rows of a run."""
    records = list(read_spool(run_dir))
    insert(run.pk, records)
    Run.objects.filter(pk=run.pk).update(last_seq=records[-1]["seq"], step=records[-1]["step"])
    run.refresh_from_db()
    return records
