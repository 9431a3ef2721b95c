"""One agent in this process: it samples and scores rollouts, re-tokenises those of others, learns, evaluates, saves.

It answers the trainer (`AgentInterface`) in text and numbers.
"""

from __future__ import annotations

import itertools
import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from workers import heartbeat
from workers.agents.ahead import Ahead, AheadSampler, take_weights
from workers.agents.messages import (
    UNREADABLE,
    FinalAnswer,
    GeneratedRollouts,
    LearnerRow,
    Response,
    RolloutsMissing,
    UpdateReport,
)
from workers.agents.multi_process import RankedAgent
from workers.agents.retokenize import retokenize
from workers.agents.updates import Inputs, RowInputs, measure_alignment, run_updates
from workers.contract.events import TextDifference
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.data import EvaluationSpec
from workers.contract.spec.environments import Turn
from workers.contract.spec.rollout import RolloutSpec
from workers.contract.spec.run import RunSpec
from workers.environments.registry import open_environment
from workers.model.loading import choose_device
from workers.model.memory import LOWER_LENGTH, OutOfMemory, halving, used_bytes
from workers.model.policy import Policy
from workers.model.process_group import ALONE, Ranks, Round, RoundsDone
from workers.model.template_marks import MarkInText
from workers.model.text_difference import whole_characters
from workers.questions.dataset import Question
from workers.randomness import derived_key
from workers.rollouts.engine import logp_difference, make_engine, truncated_weight
from workers.rollouts.sampler import Sample, SampleRequest
from workers.rollouts.transcript import SampledTurn, Transcript, TranscriptSampler

COMPARED_ROLLOUTS = 4  # with which an export is compared
MAX_ROLL_BACKS = 3  # in a run, by agent
TRUNCATED = "truncated"  # drop reason of a cut rollout, with mask_truncated_completions


def make_agent(spec: RunSpec, agent_index: int, folder: Path | None) -> LocalAgent | RankedAgent:
    """The agent at this index of the spec, in this process or in others."""
    if spec.compute.processes_per_agent > 1 or spec.compute.placement == "processes":
        return RankedAgent(spec, agent_index, folder)
    return LocalAgent(spec.agents[agent_index], spec, choose_device(spec, agent_index), folder)


def bytes_elsewhere(agent: LocalAgent | RankedAgent) -> tuple[int, int | None]:
    """The memory of an agent's further processes, as memory.used_bytes."""
    return agent.used_bytes() if isinstance(agent, RankedAgent) else agent.sampler_bytes()


class LocalAgent:
    """One agent in this process. Between `generate` and `update` it keeps the token ids of its own rollouts."""

    def __init__(
        self, agent: AgentSpec, spec: RunSpec, device: torch.device, folder: Path | None, ranks: Ranks = ALONE
    ) -> None:
        self.name = agent.name
        self.spec = spec
        self.ranks = ranks
        self._sampling = spec.rollout_of(agent)
        self.policy = Policy(agent, spec, device, folder=folder, ranks=ranks)
        self._environment = open_environment(spec.rollout)
        self._transcripts = (
            TranscriptSampler(self.policy, self._environment, spec.rollout, ranks) if self._environment else None
        )
        self.engine = make_engine(self.policy, spec, device)
        samples_ahead = spec.rollout.samples_ahead and not spec.is_evaluation_only
        self._sampler = AheadSampler(spec, spec.agents.index(agent), self.policy.num_bytes) if samples_ahead else None
        self._rollout_batch_size = spec.rollout.rollout_batch_size  # halved if memory runs out
        self._failures_in_a_row = 0
        self._num_roll_backs = 0
        self._notes: list[str] = []  # for the log
        self._encoded: dict[tuple[str, str], Sequence[int]] = {}  # by system message and prompt
        self._prompts: list[Sequence[int]] = []
        self._openings: list[str] = []  # by prompt: what of a thought it holds
        self._own: dict[tuple[int, int], Inputs | str] = {}
        self._scoring_differences: list[float] = []
        self._importance_weights: list[float] = []
        self._largest_difference = 0.0  # of a token of the step's rollouts, between engine and trainer

    def describe(self) -> dict[str, Any]:
        """The agent in numbers: for the log, and to estimate a checkpoint's size."""
        return {
            "architecture": type(self.policy.model).__name__,
            "num_parameters": self.policy.num_parameters,
            "num_trained": self.policy.optimizer.num_trained,
            "num_bytes": self.policy.num_bytes,
            "dtype": str(self.policy.dtype).removeprefix("torch."),
            "context_length": self.policy.context_length,
        }

    def prompt_lengths(self, questions: Sequence[Question]) -> list[int]:
        """The number of tokens of each question's prompt; UNREADABLE: its words cannot be kept apart from marks."""
        lengths = []
        for question in questions:
            try:
                lengths.append(len(self._encode(question)))
            except MarkInText:
                lengths.append(UNREADABLE)
        return lengths

    def _encode(self, question: Question) -> Sequence[int]:
        key = (self._system(question), question.prompt)
        if key not in self._encoded:
            heartbeat.send_heartbeat()
            # A list takes nine times the memory.
            self._encoded[key] = array("i", self.policy.encode_prompt(question.prompt, key[0]))
        return self._encoded[key]

    def _system(self, question: Question) -> str:
        """The system message: the benchmark's, then how to use the environment."""
        adds_instructions = self._environment is not None and self.spec.rollout.environment_instructions
        parts = (question.system, self._environment.instructions if self._environment and adds_instructions else "")
        return "\n\n".join(filter(None, parts))

    def _sample(
        self,
        kind: str,
        step: int,
        questions: Sequence[Question],
        per_prompt: int,
        sampling: RolloutSpec | EvaluationSpec,
    ) -> list[Sample]:
        """`per_prompt` samples of each question. sampling: temperature, top_p and top_k. Error: OutOfMemory."""
        agent_seed = self.policy.agent.stable_seed
        prompts = [self._encode(question) for question in questions]
        rows = [index for index in range(len(questions)) for _ in range(per_prompt)]

        def key_of(row: int, turn: int) -> int:
            place = (kind, self.spec.seed, agent_seed, step, questions[rows[row]].id, row % per_prompt)
            return derived_key(*place, "turn", turn) if turn else derived_key(*place)

        draw = partial(self._draw, sampling)
        if self._transcripts is not None:
            return [*self._transcripts.sample(questions, prompts, rows, key_of, draw)]
        return draw(prompts, rows, [key_of(row, 0) for row in range(len(rows))])

    def _draw(
        self,
        sampling: RolloutSpec | EvaluationSpec,
        prompts: Sequence[Sequence[int]],
        rows: Sequence[int],
        keys: Sequence[int],
        limits: Sequence[int] = (),
    ) -> list[Sample]:
        """One response for each row, see SampleRequest. Error: OutOfMemory."""
        mine = self.ranks.block(len(rows))
        stop = (*self.spec.rollout.stop, *(self._environment.stop if self._environment else ()))

        def attempt(size: int) -> list[Sample]:
            request = SampleRequest(
                prompts=prompts,
                rows=[rows[place] for place in mine],
                keys=[keys[place] for place in mine],
                temperature=sampling.temperature,
                max_new_tokens=self.spec.rollout.max_completion_length,
                batch_size=size,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                stop=stop,
                limits=[limits[place] for place in mine] if limits else (),
            )
            return self.engine.sample(request)

        with self.policy.sampling():
            samples, self._rollout_batch_size = halving(
                self.ranks.together(attempt), self._rollout_batch_size, "rollout_batch_size", LOWER_LENGTH, self._notes
            )
        self._notes += self.engine.take_notes()
        return [row for each in self.ranks.gather(samples) for row in each]

    def sample_ahead(self, step: int, questions: Sequence[Question]) -> None:
        """Begin the rollouts of a later step with the present weights, in the sampler's process."""
        assert self._sampler is not None
        with self.policy.at_work():
            self._sampler.begin(step, questions, self._rollout_batch_size, self.policy.model)

    def sample_with(self, weights: Path, step: int, questions: Sequence[Question], batch_size: int) -> Ahead:
        """Sample a step with weights that a learner wrote. This runs in the sampler's process."""
        with self.policy.at_work():
            take_weights(self.policy.model, weights)
            self._rollout_batch_size = min(self._rollout_batch_size, batch_size)
            samples: list[Sample] = []
            problem = ""
            try:
                samples = self._sample("rollout", step, questions, self.spec.num_generations, self._sampling)
            except OutOfMemory as error:
                problem = str(error)
        return Ahead(step, samples, self._rollout_batch_size, self.take_notes(), problem, used_bytes())

    def _rollouts(self, step: int, questions: Sequence[Question]) -> tuple[list[Sample], int]:
        """The rollouts of a step, and by how many steps their weights are older. Error: RolloutsMissing."""
        ahead = None if self._sampler is None else self._sampler.take(step)
        if ahead is None:
            return self._present_rollouts(step, questions), 0
        self._rollout_batch_size = min(self._rollout_batch_size, ahead.batch_size)
        self._notes += ahead.notes
        if ahead.problem:
            raise RolloutsMissing(ahead.problem)
        return list(ahead.samples), 1

    def _present_rollouts(self, step: int, questions: Sequence[Question]) -> list[Sample]:
        """Rollouts of the present weights. Error: RolloutsMissing."""
        try:
            return self._sample("rollout", step, questions, self.spec.num_generations, self._sampling)
        except OutOfMemory as error:
            raise RolloutsMissing(str(error)) from error

    def generate(self, step: int, questions: Sequence[Question]) -> GeneratedRollouts:
        """G rollouts of each question, scored by this agent's own trainer weights. Error: RolloutsMissing."""
        with self.policy.at_work():
            self._prompts, self._openings, self._own = [], [], {}
            self._scoring_differences, self._importance_weights, self._largest_difference = [], [], 0.0
            samples, staleness = self._rollouts(step, questions)
            generated = self._record_rollouts(questions, samples)
            return replace(generated, staleness=None if self._sampler is None else staleness)

    def generate_extra(self, step: int, questions: Sequence[Question]) -> GeneratedRollouts:
        """Generate rollouts of further prompts, numbered after those of the step so far. Error: RolloutsMissing."""
        with self.policy.at_work():
            return self._record_rollouts(questions, self._present_rollouts(step, questions))

    def keep_prompts(self, prompts: Sequence[int]) -> None:
        """Forget the step's other prompts; that with the number prompts[i] has the number i from here on."""
        per_prompt = range(self.spec.num_generations)
        self._prompts = [self._prompts[prompt] for prompt in prompts]
        self._openings = [self._openings[prompt] for prompt in prompts]
        self._own = {
            (place, number): self._own[prompt, number] for place, prompt in enumerate(prompts) for number in per_prompt
        }

    def _record_rollouts(self, questions: Sequence[Question], samples: Sequence[Sample]) -> GeneratedRollouts:
        """Keep the rollouts of further prompts of the step, scored by the trainer's weights."""
        per_prompt, first = self.spec.num_generations, len(self._prompts)
        prompts = [self._encode(question) for question in questions]
        openings = [self.policy.opening(question.prompt) for question in questions]
        token_ids = [self._response_ids(row) for row in samples]
        sampled = [row.logps[: len(ids)] for row, ids in zip(samples, token_ids, strict=True)]
        train_masks = [self._train_mask(row, len(ids)) for row, ids in zip(samples, token_ids, strict=True)]
        sampled_means = [*map(_mean, sampled, train_masks)]
        scored, means = sampled, sampled_means
        if not self.policy.sampling_logps_are_exact:
            scored = self._score([(prompts[row // per_prompt], ids) for row, ids in enumerate(token_ids)])
            means = [*map(_mean, scored, train_masks)]
            self._scoring_differences += [abs(a - b) for a, b in zip(sampled_means, means, strict=True)]
            # An engine's log-probabilities are those of the tokens that top-p and top-k leave.
            if self.engine.has_own_weights and self._sampling.top_p == 1 and not self._sampling.top_k:
                pairs = zip(itertools.chain(*sampled), itertools.chain(*scored), strict=True)
                self._largest_difference = max(self._largest_difference, *(abs(a - b) for a, b in pairs), 0.0)
        weights = self._weigh(sampled_means, means)
        by_token = self.spec.algorithm.needs_token_logps
        responses: list[list[Response]] = [[] for _ in questions]
        for index, (row, ids, mean) in enumerate(zip(samples, token_ids, means, strict=True)):
            prompt, number = divmod(index, per_prompt)
            old_logps = scored[index] if by_token else ()
            length = sum(train_masks[index]) if train_masks[index] else len(ids)
            own = Inputs(prompts[prompt], ids, mean, length, old_logps, weights[index], train_mask=train_masks[index])
            is_masked = self.spec.algorithm.mask_truncated_completions and not row.finished
            self._own[first + prompt, number] = TRUNCATED if is_masked else own if length else "empty"
            responses[prompt].append(self._response(row, length, mean, openings[prompt]))
        self._prompts += prompts
        self._openings += openings
        entropy = (sum(row.entropy for row in samples), float(sum(row.num_sampled for row in samples)))
        return GeneratedRollouts(responses, entropy, notes=tuple(self.take_notes()))

    def _weigh(self, sampled: Sequence[float], scored: Sequence[float]) -> list[float]:
        """The factor of each rollout's loss (rollouts/engine.py) from mean log-probabilities by row."""
        rollout = self.spec.rollout
        if not rollout.corrects_importance:
            return [1.0] * len(scored)
        weights = [
            truncated_weight(trainer, engine, rollout.importance_cap)
            for engine, trainer in zip(sampled, scored, strict=True)
        ]
        self._importance_weights += weights
        return weights

    def _response_ids(self, row: Sample) -> list[int]:
        """The response tokens that count: with the EOS, unless it is stripped."""
        stripped = self.spec.algorithm.eos == "strip" and row.has_eos
        return row.token_ids[:-1] if stripped else row.token_ids

    def _train_mask(self, row: Sample, length: int) -> list[bool]:
        """Which of the first `length` tokens train: those that the agent sampled; empty if all do."""
        strips_eos = self.spec.algorithm.eos == "strip"
        return row.train_mask(strips_eos=strips_eos)[:length] if isinstance(row, Transcript) else []

    def _opening(self, row: Sample, of_prompt: str) -> str:
        """What of a thought stands before the response, or before the last turn."""
        return row.turns[-1].opening if isinstance(row, Transcript) else of_prompt

    def _sampled_text(self, row: Sample) -> str:
        """The response, or the last turn, without the EOS."""
        if isinstance(row, Transcript):
            return row.turns[-1].text.removeprefix(row.turns[-1].opening)
        return self.policy.decode(row.token_ids[:-1] if row.has_eos else row.token_ids)

    def _text(self, row: Sample, opening: str = "") -> str:
        """What the verifier reads: the response without the EOS, up to a stop string, after what opened its thought."""
        text = self._sampled_text(row)
        ends = [place for stop in self.spec.rollout.stop if (place := text.find(stop)) >= 0]
        return self._opening(row, opening) + (text[: min(ends)] if row.has_stop and ends else text)

    def _turns(self, row: Sample) -> tuple[Turn, ...]:
        """The turns as text. An own turn is cut at the last whole character, and then has no EOS."""
        return tuple(self._turn(turn) for turn in (row.turns if isinstance(row, Transcript) else ()))

    def _turn(self, turn: SampledTurn) -> Turn:
        text = turn.text
        if turn.is_own and self.spec.algorithm.eos == "literal":
            text = turn.opening + self.policy.decode(turn.token_ids, literal=True)
        is_broken = turn.is_own and self._difference(turn.token_ids, has_eos=turn.has_eos) == "characters"
        text = whole_characters(text) if is_broken else text
        return Turn(turn.role, text, turn.has_eos and not is_broken, turn.is_failed, turn.opening)

    def _difference(self, token_ids: Sequence[int], *, has_eos: bool) -> TextDifference:
        return self.policy.text_difference(token_ids[:-1] if has_eos else token_ids)

    def _response(self, row: Sample, length: int, mean_logp: float, opening: str = "") -> Response:
        is_literal = self.spec.algorithm.eos == "literal"
        turns = [turn for turn in row.turns if turn.is_own] if isinstance(row, Transcript) else [row]
        causes = [self._difference(turn.token_ids, has_eos=turn.has_eos) for turn in turns]
        difference: TextDifference = next(filter(None, causes), "")
        shared_text = self.policy.decode(row.token_ids, literal=True) if is_literal else self._sampled_text(row)
        shared_text = self._opening(row, opening) + shared_text
        return Response(
            text=self._text(row, opening),
            shared_text=whole_characters(shared_text) if difference == "characters" else shared_text,
            finish_reason="stop" if row.finished else "length",
            num_tokens=row.num_sampled,
            length=length,
            mean_logp=mean_logp,
            has_eos=row.has_eos and difference != "characters",
            turns=self._turns(row),
            reward=row.reward if isinstance(row, Transcript) else None,
            opening=self._opening(row, opening),
            difference=difference,
        )

    @torch.no_grad()
    def _score(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        """Log-probabilities by token of responses (prompt, response) as the update will compute them."""
        order = sorted((index for index in range(len(rows)) if rows[index][1]), key=lambda index: len(rows[index][1]))

        def attempt(rounds: Sequence[Round[int]], progress: RoundsDone) -> dict[int, list[float]]:
            by_length: dict[int, list[float]] = {}
            for progress.round, chunks in enumerate(rounds):
                heartbeat.send_heartbeat()
                chunk = self.ranks.mine(chunks)
                if not chunk:
                    self.policy.stand_by()
                    continue
                logps, _ = self.policy.token_logps(
                    [rows[index][0] for index in chunk], [rows[index][1] for index in chunk]
                )
                for index, values in zip(chunk, logps.tolist(), strict=True):
                    by_length[index] = values[: len(rows[index][1])]
            return by_length

        rounds = self.policy.micro_batches(order, lambda index: len(rows[index][0]) + len(rows[index][1]))
        scores, _ = self.ranks.fit(attempt, rounds, self._notes)
        scored = {index: values for each in self.ranks.gather(scores) for index, values in each.items()}
        return [scored.get(index, []) for index in range(len(rows))]

    def _inputs(self, row: LearnerRow) -> Inputs | str:
        """A row in this agent's tokens, or the reason why it is dropped."""
        if row.response is None:
            return self._own[row.prompt, row.sample]
        if not row.response.length:
            return "empty"
        if not math.isfinite(row.response.mean_logp):  # a fault of the source must not cost this agent an update
            return "not finite"
        if self.spec.algorithm.mask_truncated_completions and row.response.finish_reason == "length":
            return TRUNCATED
        assert self.spec.sharing is not None
        rollout, prompt, opening = self.spec.rollout, self._prompts[row.prompt], self._openings[row.prompt]
        spare = max(0, rollout.max_prompt_length - len(prompt))
        limit = rollout.max_completion_length
        tokens = retokenize(self.policy, row.response, self.spec.sharing, limit, opening, spare)
        if isinstance(tokens, str):
            return tokens
        return Inputs(
            prompt, tokens.token_ids, row.response.mean_logp, row.response.length, train_mask=tokens.train_mask
        )

    def _inputs_by_row(self, mini_batches: Sequence[Sequence[LearnerRow]]) -> RowInputs:
        """`_inputs`, with this agent's log-probabilities of shared rows before its updates if the rule needs them."""
        if not self.spec.algorithm.rescores_shared:
            return self._inputs
        shared = {
            (row.source, row.prompt, row.sample): self._inputs(row)
            for rows in mini_batches
            for row in rows
            if not row.is_self
        }
        fitting = [(place, inputs) for place, inputs in shared.items() if isinstance(inputs, Inputs)]
        scored = self._score([(inputs.prompt, inputs.response) for _, inputs in fitting])
        for (place, inputs), logps in zip(fitting, scored, strict=True):
            # Both sides are this agent's tokens now, so both are divided by their number.
            shared[place] = replace(inputs, mean_logp=_mean(logps, inputs.train_mask), length=inputs.num_trained)
        return lambda row: shared.get((row.source, row.prompt, row.sample)) or self._inputs(row)

    def update(
        self, mini_batches: Sequence[Sequence[LearnerRow]], learning_rate: float, *, measures_alignment: bool = False
    ) -> UpdateReport:
        """One optimizer step for each mini-batch, in order."""
        with self.policy.at_work():
            report = run_updates(
                self.policy,
                self.spec,
                mini_batches,
                self._inputs_by_row(mini_batches),
                learning_rate,
                self._failures_in_a_row,
                may_roll_back=self._num_roll_backs < MAX_ROLL_BACKS,
                measures_alignment=measures_alignment,
            )
            report.notes[:0] = self.take_notes()
            self._failures_in_a_row = report.failures_in_a_row
            self._num_roll_backs += report.rolled_back
            if not self.policy.sampling_logps_are_exact:
                report.sampling_logp_differences = self._scoring_differences
            report.importance_weights = self._importance_weights
            if self._sampler is not None:
                self._sampler.drop()
            self.engine.take_weights()
            if self.engine.has_own_weights:
                limit = self.spec.rollout.max_completion_length
                each = self.ranks.gather(logp_difference(self.engine, self.policy, self._prompts[0], limit))
                report.engine_logp_difference = max(one.mean for one in each)
                report.largest_logp_difference = max(self._largest_difference, *(one.largest for one in each))
            return report

    def measure_alignment(self, rows: Sequence[LearnerRow]) -> dict[int, float | None]:
        """The cosine of each source's gradient with this agent's own. No weight changes."""
        with self.policy.at_work():
            return measure_alignment(self.policy, self.spec, rows, self._inputs_by_row([rows]), self._notes)

    def evaluate(self, step: int, questions: Sequence[Question], num_samples: int = 1) -> list[FinalAnswer]:
        """Answers, `num_samples` of a question and then of the next, at the evaluation's temperature."""
        with self.policy.at_work():
            samples = self._sample("evaluation", step, questions, num_samples, self.spec.evaluation)
            return [
                FinalAnswer(
                    self._text(row, self.policy.opening(questions[place // num_samples].prompt)),
                    row.reward if isinstance(row, Transcript) else None,
                )
                for place, row in enumerate(samples)
            ]

    def take_notes(self) -> list[str]:
        """Notes for the log since the last rollouts, update or call of this."""
        notes, self._notes = self._notes, []
        return notes

    def has_sampled_within(self, seconds: float) -> bool:
        """Whether the rollouts that a checkpoint stores are complete, at the latest after `seconds`."""
        return self._sampler is None or self._sampler.has_sampled_within(seconds)

    def sampler_bytes(self) -> tuple[int, int | None]:
        """The memory of the process that samples ahead, when its last rollouts were complete."""
        return (0, None) if self._sampler is None else self._sampler.used_bytes

    def close(self) -> None:
        """End the engine and the sampler, which may be other processes."""
        self.engine.close()
        if self._sampler is not None:
            self._sampler.close()

    def save(self, folder: Path) -> None:
        """An ordinary Hugging Face model folder, written by the first rank."""
        rollouts = itertools.islice((own for own in self._own.values() if isinstance(own, Inputs)), COMPARED_ROLLOUTS)
        with self.policy.at_work():
            self.policy.save(folder, [(own.prompt, own.response) for own in rollouts])

    def save_state(self, stem: Path) -> None:
        """What resuming needs beside the model folder: `stem`.safetensors and `stem`.json.

        With shards, `stem`-1.safetensors and so on hold those of the further ranks.
        """
        if not (self.ranks.is_first or self.ranks.is_sharded):
            return
        # Without failures the next update takes a new snapshot.
        tensors = self.policy.optimizer.state_tensors(with_snapshot=self._failures_in_a_row > 0)
        save_file(tensors, self._state_file(stem))
        if not self.ranks.is_first:
            return
        counters: dict[str, Any] = {
            "failures_in_a_row": self._failures_in_a_row,
            "num_roll_backs": self._num_roll_backs,
            "rollout_batch_size": self._rollout_batch_size,
        }
        # Rollouts that are sampled ahead are stored: the weights that sampled them are gone.
        if self._sampler is not None and (ahead := self._sampler.oldest()) is not None:
            values, columns = ahead.state()
            save_file(columns, _ahead_file(stem))
            counters["ahead"] = values
        stem.with_suffix(".json").write_text(json.dumps(counters))

    def _state_file(self, stem: Path) -> Path:
        has_own = self.ranks.is_sharded and not self.ranks.is_first
        return stem.with_name(f"{stem.name}-{self.ranks.rank}.safetensors" if has_own else f"{stem.name}.safetensors")

    def load_state(self, stem: Path) -> None:
        """The reverse of save_state."""
        self.policy.optimizer.load_state_tensors(load_file(self._state_file(stem)))
        counters = json.loads(stem.with_suffix(".json").read_text())
        self._failures_in_a_row = counters["failures_in_a_row"]
        self._num_roll_backs = counters.get("num_roll_backs", 0)
        self._rollout_batch_size = counters.get("rollout_batch_size", self._rollout_batch_size)
        if self._sampler is not None and "ahead" in counters:
            self._sampler.restore(Ahead.from_state(counters["ahead"], load_file(_ahead_file(stem))))
        self.engine.take_weights()


def _ahead_file(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}-ahead.safetensors")


def _mean(values: Sequence[float], train_mask: Sequence[bool] = ()) -> float:
    """The mean of the values that `train_mask` marks, or of all values if it is empty."""
    values = (
        [value for value, is_trained in zip(values, train_mask, strict=True) if is_trained] if train_mask else values
    )
    return sum(values) / len(values) if values else 0.0
