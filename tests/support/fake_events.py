"""What the fake trainer tells of a step: every kind of event, made-up numbers, alike for equal seed and step."""

from __future__ import annotations

import math
import random
import time

from workers.contract.events import Answers, Body, Contribution, Evaluation, Metrics, Progress, Questions, Rollout
from workers.contract.spec.run import RunSpec


def agent_metrics(step: int, agent: str, chance: random.Random) -> Metrics:
    correct = chance.randrange(8, 64)
    return Metrics(
        step=step,
        agent=agent,
        values={
            "capability": correct / 64,
            "advantage/mean": chance.gauss(0, 0.01),
            "advantage/std": chance.random(),
            "baseline/mean": correct / 64,
            "entropy": 2.0 / step,
            "kl": 0.01 * step,
            "grad_norm": chance.random(),
            "loss": chance.gauss(0, 1),
            "learning_rate": 1e-6,
            "completions/mean_length": chance.uniform(10, 20),
        },
        ratios={
            "reward/mean": (float(correct), 64.0),
            "clip_ratio/low_mean": (float(chance.randrange(4)), 64.0),
            "frac_reward_zero_std": (1.0, 8.0),
        },
    )


def pair_metrics(step: int, learner: str, source: str, chance: random.Random) -> Metrics:
    clipped = float(chance.randrange(64))
    return Metrics(
        step=step,
        agent=learner,
        source=source,
        values={"omega": chance.uniform(0.5, 2), "omega_clamped": 0.0, "sequence_ratio/mean": chance.random()},
        ratios={
            "clip_lower_frac": (clipped, 64.0),
            "clip_lower_frac/positive": (clipped / 2, 32.0),
            "clip_lower_frac/negative": (clipped / 2, 32.0),
            "clip_upper_frac": (0.0, 64.0),
            "used_frac": (64 - clipped, 64.0),
        },
    )


def rollouts(step: int, agents: list[str], chance: random.Random) -> list[Body]:
    bodies: list[Body] = []
    for agent in agents:
        reward = float(chance.random() < 0.5)
        bodies.append(
            Rollout(
                step=step,
                agent=agent,
                prompt_id="1",
                sample=0,
                prompt="1+2*3=",
                completion="<b>\\boxed{7}</b>",
                answer="7",
                reward=reward,
                finish_reason="stop",
                num_tokens=9,
                mean_logp=-0.5,
            )
        )
        bodies += [
            Contribution(
                step=step,
                agent=learner,
                source=agent,
                prompt_id="1",
                sample=0,
                num_tokens=9,
                advantage=reward - 0.5,
                sequence_ratio=0.9,
                clipped_ratio=0.9,
                omega=1.0,
                weight=0.9,
                mini_batch=0,
            )
            for learner in agents
        ]
    return bodies


ASKED = 100


def questions(spec: RunSpec) -> list[Body]:
    return [
        Questions(
            benchmark=name,
            first=0,
            ids=[f"q{number}" for number in range(ASKED)],
            questions=[f"{number}+1=" for number in range(ASKED)],
            answers=[str(number + 1) for number in range(ASKED)],
            subjects=[f"s{number % 2}" for number in range(ASKED)],
            difficulties=[""] * ASKED,
        )
        for name in benchmarks_at(0, spec)
    ]


def benchmarks_at(step: int, spec: RunSpec) -> list[str]:
    """Those that an evaluation at this step asks."""
    is_at_an_end = step in (0, spec.training.steps)
    return [spec.data.benchmark, *(one.benchmark for one in spec.evaluation.benchmarks if is_at_an_end)]


def evaluations(step: int, spec: RunSpec) -> list[Body]:
    """Each agent solves the first questions, and more of them later on; of further benchmarks fewer."""
    gain = {"gspo": 30, "gspox2": 35, "hacpo": 50}.get(spec.algorithm.name, 40)
    if "by-rate" in spec.name.split():  # 40 at a learning rate of 1e-5, and 0 from 2 decades beside it
        gain = round(40 * max(0.0, 1 - abs(math.log10(spec.training.learning_rate) + 5) / 2)) - spec.seed
    found: list[Body] = []
    for number, benchmark in enumerate(benchmarks_at(step, spec)):
        for place, agent in enumerate(spec.agents):
            correct = 10 + place - 5 * min(number, 2) + (gain + spec.seed) * step // max(1, spec.training.steps)
            answers = Answers(
                step=step,
                agent=agent.name,
                benchmark=benchmark,
                first=0,
                marks=["1"] * correct + ["0"] * (ASKED - correct),
                majority=[str(question + 1 + (question >= correct)) for question in range(ASKED)],
                responses=["<b>\\boxed{7}</b>"] * ASKED,
            )
            body = Evaluation(
                step=step,
                agent=agent.name,
                benchmark=benchmark,
                metric="accuracy",
                value=correct / ASKED,
                correct=correct,
                asked=ASKED,
                estimates={f"{name}@1": correct / ASKED for name in ("avg", "pass", "maj", "best")},
                questions="fake",
                verifier="math/1",
            )
            found += [answers, body]
    return found


def step_bodies(step: int, spec: RunSpec, started: float, chance: random.Random) -> list[Body]:
    agents = [agent.name for agent in spec.agents]
    bodies: list[Body] = [agent_metrics(step, agent, chance) for agent in agents]
    bodies += [pair_metrics(step, a, b, chance) for a in agents for b in agents if a != b]
    bodies += rollouts(step, agents, chance)
    elapsed_s = time.monotonic() - started
    per_step = spec.training.train_batch_size * spec.num_generations * len(agents)
    progress = Progress(
        step=step,
        total_steps=spec.training.steps,
        elapsed_s=elapsed_s,
        eta_s=elapsed_s / step * (spec.training.steps - step),
        rollouts_generated=step * per_step,
        tokens_generated=step * per_step * 9,
        phase_s={"rollout": 0.5, "update": 0.5},
    )
    return [*bodies, progress]
