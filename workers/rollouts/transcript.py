"""Rollouts of several turns: a transcript in its source's tokens, and the loop that samples it.

An agent's turn ends with an EOS or a stop string; its environment answers, and generation continues after the answer.
Sampled ids are never decoded and encoded again: the answer's ids are put behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from workers import heartbeat
from workers.contract.spec.environments import Role
from workers.contract.spec.rollout import RolloutSpec
from workers.environments.base import Environment, EnvironmentFailed, Episode, Observation
from workers.model.policy import Policy
from workers.model.process_group import Ranks
from workers.questions.dataset import Question
from workers.rollouts.sampler import Sample

Answer = TypeVar("Answer")
# Draws one response for each row: (prompts, rows, keys, limits), as a SampleRequest has them.
Draw = Callable[[Sequence[Sequence[int]], Sequence[int], Sequence[int], Sequence[int]], list[Sample]]


@dataclass(frozen=True)
class SampledTurn:
    """A turn of the agent, or its environment's with the ids of the chat template around it. text: without both.

    opening: the beginning of the text that was not sampled, for the template opened a thought before the turn.
    """

    role: Role
    text: str
    token_ids: Sequence[int]
    has_eos: bool = False
    is_failed: bool = False
    opening: str = ""

    @property
    def is_own(self) -> bool:
        """Whether the agent wrote it."""
        return self.role == "assistant"


@dataclass(frozen=True)
class Transcript(Sample):
    """A rollout with an environment. logps: 0 where the environment wrote.  finished: cut neither by tokens nor turns.

    reward: the environment's; None: the verifier decides.
    """

    turns: tuple[SampledTurn, ...] = ()
    reward: float | None = None

    @property
    def has_eos(self) -> bool:
        return self.turns[-1].has_eos

    @property
    def num_sampled(self) -> int:
        return sum(len(turn.token_ids) for turn in self.turns if turn.is_own)

    def train_mask(self, *, strips_eos: bool) -> list[bool]:
        """By token: whether the agent wrote it, and so trains on it."""
        mask: list[bool] = []
        for turn in self.turns:
            mask += [turn.is_own] * len(turn.token_ids)
            if turn.has_eos and strips_eos:
                mask[-1] = False
        return mask


@dataclass
class _OpenTranscript:
    """A transcript while it is sampled. opening: what of a thought stands before its next turn."""

    prompt: Sequence[int]
    opening: str = ""
    turns: list[SampledTurn] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    is_cut: bool = False

    @property
    def ids(self) -> list[int]:
        return [token for turn in self.turns for token in turn.token_ids]

    def closed(self, reward: float | None) -> Transcript:
        samples, logps = iter(self.samples), []
        for turn in self.turns:
            logps += next(samples).logps if turn.is_own else [0.0] * len(turn.token_ids)
        last = self.samples[-1]
        entropy = sum(sample.entropy for sample in self.samples)
        is_finished = last.finished and not self.is_cut
        return Transcript(self.ids, logps, is_finished, entropy, last.has_stop, tuple(self.turns), reward)


class TranscriptSampler:
    """Samples an agent's transcripts. Of several ranks the first one alone asks the environment."""

    def __init__(self, policy: Policy, environment: Environment, rollout: RolloutSpec, ranks: Ranks) -> None:
        """Error: ValueError if the agent's chat template cannot write an environment's turn."""
        self._policy, self._environment, self._rollout, self._ranks = policy, environment, rollout, ranks
        policy.environment_ids("", "tool", has_eos=True)

    def sample(
        self,
        questions: Sequence[Question],
        prompts: Sequence[Sequence[int]],
        rows: Sequence[int],
        key_of: Callable[[int, int], int],
        draw: Draw,
    ) -> list[Transcript]:
        """One transcript for each row. rows[i]: the question of row i.  key_of: the random key of a row and turn.

        Error: EnvironmentFailed.
        """
        is_first, limit = self._ranks.is_first, self._rollout.max_completion_length
        episodes = [self._environment.reset(questions[row]) for row in rows] if is_first else []
        transcripts = [_OpenTranscript(prompts[row], self._policy.opening(questions[row].prompt)) for row in rows]
        alive = [*range(len(rows))]
        for turn in range(self._rollout.max_turns):
            keys = [key_of(row, turn) for row in alive]
            if turn == 0:  # rollouts of one prompt share its keys and values
                samples = draw(prompts, rows, keys, ())
            else:
                contexts = [[*transcripts[row].prompt, *transcripts[row].ids] for row in alive]
                room = [limit - len(transcripts[row].ids) for row in alive]
                samples = draw(contexts, range(len(alive)), keys, room)
            for row, sample in zip(alive, samples, strict=True):
                transcripts[row].samples.append(sample)
                transcripts[row].turns.append(self._own_turn(sample, transcripts[row].opening))
            observations = self._observe(episodes, [(row, transcripts[row].turns[-1].text) for row in alive])
            is_last = turn + 1 == self._rollout.max_turns
            alive = [
                row
                for row, observation in zip(alive, observations, strict=True)
                if observation and self._is_continued(transcripts[row], observation, limit, is_last=is_last)
            ]
            if not alive:
                break
        rewards = self._ask(lambda: self._environment.rewards(episodes))
        return [one.closed(reward) for one, reward in zip(transcripts, rewards, strict=True)]

    def _own_turn(self, sample: Sample, opening: str) -> SampledTurn:
        ids = sample.token_ids[:-1] if sample.has_eos else sample.token_ids
        text = opening + self._policy.decode(ids)
        return SampledTurn("assistant", text, sample.token_ids, sample.has_eos, opening=opening)

    def _observe(self, episodes: Sequence[Episode], turns: Sequence[tuple[int, str]]) -> list[Observation | None]:
        """The environment's answers to turns (row, text)."""
        heartbeat.send_heartbeat()
        return self._ask(lambda: self._environment.step_all([(episodes[row], text) for row, text in turns]))

    def _ask(self, question: Callable[[], list[Answer]]) -> list[Answer]:
        """The environment's answer in the first rank, for all. Error: EnvironmentFailed, in all of them."""
        answer: list[Answer] | EnvironmentFailed = []
        if self._ranks.is_first:
            try:
                answer = question()
            except EnvironmentFailed as error:
                answer = error
        answer = self._ranks.gather(answer)[0]
        if isinstance(answer, EnvironmentFailed):
            raise answer
        return answer

    def _is_continued(self, one: _OpenTranscript, observation: Observation, limit: int, *, is_last: bool) -> bool:
        """Put the answer behind the turn, unless the turn was cut or there is no room for another one."""
        if not one.samples[-1].finished:
            return False
        turn = self._answer(observation, has_eos=one.turns[-1].has_eos)
        one.is_cut = is_last or len(one.ids) + len(turn.token_ids) >= limit
        if not one.is_cut:
            one.turns.append(turn)
            one.opening = self._policy.opening_after(observation.role)
        return not one.is_cut

    def _answer(self, observation: Observation, *, has_eos: bool) -> SampledTurn:
        """The environment's turn, its text cut to max_observation_length tokens."""
        text = observation.clean_text
        ids = self._policy.encode_text(text)
        if len(ids) > self._rollout.max_observation_length:  # other agents read what this one does
            text = self._policy.decode(ids[: self._rollout.max_observation_length]).rstrip("\ufffd")
        whole = self._policy.environment_ids(text, observation.role, has_eos=has_eos)
        return SampledTurn(observation.role, text, whole, is_failed=observation.is_failed)
