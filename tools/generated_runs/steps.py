"""Steps of a generated run: Algorithm 1 by the trainer's own code, with simulated agents in place of models.

Capabilities, objective, mini-batches, loss, clipping and events are those of workers/; only answers and
log-probabilities come from world.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from tools.generated_runs.world import Exercise, World, exercises
from workers.agents.messages import GeneratedRollouts, LearnerRow, UpdateReport
from workers.agents.retokenize import retokenize
from workers.agents.updates import Inputs, run_updates
from workers.algorithms.base.capability import CapabilityTracker
from workers.contract.spec.run import RunSpec
from workers.model.policy import Policy
from workers.model.process_group import Ranks, Round, Value
from workers.trainer.scoring import Scores
from workers.trainer.step import plan_step
from workers.trainer.step_events import StepRecord
from workers.trainer.trust import Trust

OWN_DRIFT = 3.5e-4  # of log s of own rollouts after the first update: about as wide as their clip band


class SimulatedPolicy:
    """The part of workers.model.policy.Policy that updates use. A response's first token is its row's number."""

    device = torch.device("cpu")
    ranks = Ranks()
    sampling_logps_are_exact = False  # so that s = 1 before the first update
    turn_eos = 0

    def __init__(self, world: World, learner: int, done: float) -> None:
        self.world, self.learner, self.done = world, learner, done
        self.agent = world.spec.agents[learner]
        self.optimizer = SimulatedOptimizer(world, done)
        self.rows: list[tuple[LearnerRow, float]] = []  # with the source's mean log-probability

    def micro_batches(self, rows: Sequence[Value], length: Callable[[Value], int]) -> list[Round[Value]]:
        return self.ranks.rounds(rows, len(rows))

    def encode_response(self, text: str, *, literal: bool) -> list[int]:
        return [0] * self.world.num_tokens(self.learner, text)

    def token_logps(
        self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], *, train_masks: None = None
    ) -> tuple[Tensor, ...]:
        """One log-probability a row, (b, 1): of the whole response by the learner's present weights."""
        logps = []
        for response in responses:
            row, mean_logp = self.rows[response[0]]
            own = self.world.chance.gauss(0, OWN_DRIFT)
            logps.append([mean_logp + (own if row.is_self else self.world.log_ratio(self.learner, row.source))])
        self.logps = torch.tensor(logps)
        return self.logps, torch.ones_like(self.logps)

    def reference_logps(self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Tensor:
        return self.logps - 0.25 * self.done**0.5


class SimulatedOptimizer:
    """The part of workers.model.optimizer.PolicyOptimizer that updates use."""

    has_fresh_snapshot = False

    def __init__(self, world: World, done: float) -> None:
        self.world, self.done = world, done

    def step(self, learning_rate: float, *, is_sound: bool, is_first: bool) -> tuple[float, bool]:
        return abs(self.world.chance.gauss(0.8 - 0.4 * self.done, 0.1)), is_sound

    def backward(self, loss: Tensor) -> None: ...
    def discard_gradients(self) -> None: ...
    def sum_gradients(self) -> None: ...


class Stepper:
    """Makes the steps of one run in order."""

    def __init__(self, spec: RunSpec, world: World) -> None:
        self.spec, self.world = spec, world
        self.tracker = CapabilityTracker(len(spec.agents), spec.algorithm.capability_options)
        self.trust = Trust([agent.name for agent in spec.agents], spec.sharing)

    def make(self, step: int) -> StepRecord:
        """Step 1, 2, ...: rollouts, objective and updates; afterwards the agents have learned."""
        spec, world = self.spec, self.world
        batch = world.chance.sample(exercises(), spec.training.train_batch_size)
        done = step / spec.training.steps
        generated, scores = self._generate(batch, done)
        questions = [exercise.question for exercise in batch]
        self.tracker.update(scores.rewards, scores.valid)
        plan = plan_step(spec, step - 1, generated, scores, self.tracker.ratio(), self.trust)
        reports = [self._update(learner, step, generated, plan.mini_batches[learner]) for learner in world.agents]
        return StepRecord(
            step=step,
            names=self.trust.names,
            algorithm=spec.algorithm,
            questions=questions,
            generated=generated,
            scores=scores,
            tracker=self.tracker,
            plan=plan,
            reports=reports,
        )

    def _generate(self, batch: Sequence[Exercise], done: float) -> tuple[list[GeneratedRollouts], Scores]:
        each = range(self.spec.num_generations)
        answers = [[[self.world.answer(k, exercise) for _ in each] for exercise in batch] for k in self.world.agents]
        rewards = [[[reward for _, reward in group] for group in own] for own in answers]
        entropy = max(0.05, 0.9 - 0.55 * done + self.world.chance.gauss(0, 0.02))
        generated = [GeneratedRollouts([[r for r, _ in group] for group in own], (entropy, 1.0)) for own in answers]
        values = torch.tensor([[[r or 0.0 for r in group] for group in own] for own in rewards])  # (n, B, G)
        valid = torch.tensor([[[r is not None for r in group] for group in own] for own in rewards])  # (n, B, G)
        return generated, Scores(values, valid, [0] * len(answers))

    def _update(
        self,
        learner: int,
        step: int,
        generated: Sequence[GeneratedRollouts],
        mini_batches: Sequence[Sequence[LearnerRow]],
    ) -> UpdateReport:
        spec, world = self.spec, self.world
        simulated = SimulatedPolicy(world, learner, step / spec.training.steps)
        policy = cast(Policy, simulated)

        def inputs_of(row: LearnerRow) -> Inputs | str:
            response = row.response or generated[row.source].responses[row.prompt][row.sample]
            limit = spec.rollout.max_completion_length
            ids = [0] * response.length
            if (sharing := spec.sharing) is not None and not row.is_self:
                shared = retokenize(policy, response, sharing, limit)
                if isinstance(shared, str):
                    return shared
                ids = shared.token_ids
            ids[0] = len(simulated.rows)
            simulated.rows.append((row, response.mean_logp))
            return Inputs((), ids, response.mean_logp, response.length)

        report = run_updates(policy, spec, mini_batches, inputs_of, spec.training.learning_rate, 0)
        used = [_used_share(mini_batches, report, source) for source in world.agents]
        interval = spec.telemetry.alignment_interval
        if interval and step % interval == 0 and spec.algorithm.shares_rollouts:
            others = [source for source in world.agents if source != learner]
            report.alignment = {source: world.chance.gauss(0.35 * used[source], 0.08) for source in others}
        world.learn(learner, used)
        return report


def _used_share(mini_batches: Sequence[Sequence[LearnerRow]], report: UpdateReport, source: int) -> float:
    """Share of a source's rows whose gradient reached the learner."""
    flows = [
        result.gradient_flows
        for rows, results in zip(mini_batches, report.results, strict=True)
        for row, result in zip(rows, results, strict=True)
        if row.source == source
    ]
    return sum(flows) / len(flows) if flows else 0.0
