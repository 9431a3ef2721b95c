"""Rollouts of several turns: what is sampled, what trains, and how a transcript reaches another tokenizer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from tests.support.workers import environments
from tests.support.workers.tiny import make_spec, records, same_weights, train
from workers import heartbeat
from workers.__main__ import run
from workers.agents import local
from workers.agents.local import LocalAgent
from workers.agents.messages import LearnerRow, Response
from workers.agents.retokenize import LearnerTokens, retokenize
from workers.contract.spec.environments import Turn
from workers.model import chunked_logprobs
from workers.model.loading import CPU
from workers.questions.dataset import split_questions
from workers.rollouts.transcript import Transcript
from workers.trainer.stop_signals import StopFlag

ROLLOUT = {"max_completion_length": 24, "max_prompt_length": 24, "environment": "calculator", "max_turns": 3}


@pytest.fixture
def echo(monkeypatch):
    monkeypatch.setattr(local, "open_environment", lambda rollout: environments.Echo())


def spec_of(root, *, chat=True, agents=2, **changes):
    changes["rollout"] = ROLLOUT | changes.get("rollout", {})
    return make_spec(root, environments.make_talkers(root, chat=chat)[:agents], **changes)


def transcripts_of(agent: LocalAgent, spec) -> list[Transcript]:
    questions = split_questions(spec.data).train[:8]
    rows = agent._sample("rollout", 0, questions, 8, spec.rollout)
    assert all(isinstance(row, Transcript) for row in rows)
    return rows


# Sampling


@pytest.mark.parametrize("chat", [True, False])
def test_generation_continues_after_the_environments_answer(tmp_path, echo, chat):
    spec = spec_of(tmp_path, chat=chat)
    agent = LocalAgent(spec.agents[0], spec, CPU, None)
    rows = transcripts_of(agent, spec)
    several = [row for row in rows if len(row.turns) > 1]
    assert several
    for row in rows:
        assert [turn.is_own for turn in row.turns] == [index % 2 == 0 for index in range(len(row.turns))]
        assert row.token_ids == [token for turn in row.turns for token in turn.token_ids]
        assert len(row.token_ids) <= 24
        assert len([turn for turn in row.turns if turn.is_own]) <= 3
        assert row.num_sampled == sum(row.train_mask(strips_eos=False))
        for own, answer in zip(row.turns[::2], row.turns[1::2], strict=False):
            assert answer.role == ("tool" if own.text.endswith("=") else "user")
    tool = next(turn for row in several for turn in row.turns if turn.role == "tool")
    # A turn that ended with a stop string: the chat template's <eos> is the environment's.
    text = "<eos>t7<eos>a" if chat else "\n<tool>7</tool>\n"
    expected = agent.policy.tokenizer(text, add_special_tokens=False).input_ids
    assert tool.token_ids == expected


def test_turns_use_the_policys_probabilities_of_the_whole_transcript(tmp_path, echo):
    spec = spec_of(tmp_path, agents=1)
    agent = LocalAgent(spec.agents[0], spec, CPU, None)
    questions = split_questions(spec.data).train[:8]
    generated = agent.generate(0, questions)
    responses = [response for group in generated.responses for response in group]
    assert max(len(response.turns) for response in responses) > 2
    for (prompt, sample), own in agent._own.items():
        with torch.no_grad():
            logps, mask = agent.policy.token_logps([own.prompt], [own.response], train_masks=[own.train_mask])
        response = generated.responses[prompt][sample]
        assert mask.sum() == response.length == own.num_trained
        # By hand: the sum over the agent's own tokens divided by their number.
        assert response.mean_logp == pytest.approx((logps.sum() / mask.sum()).item(), abs=1e-5)


def test_rollouts_end_by_turns_or_tokens_as_cut_ones(tmp_path, echo):
    spec = spec_of(tmp_path, agents=1, rollout={"max_turns": 2})
    rows = transcripts_of(LocalAgent(spec.agents[0], spec, CPU, None), spec)
    ends = {(len(row.turns), row.turns[-1].text[-1:] in ("=", "+"), row.finished) for row in rows}
    assert (3, True, False) in ends  # a call in the last turn is not answered
    assert all(not finished for length, is_call, finished in ends if is_call)


def test_long_answer_is_cut_for_all_agents(tmp_path, echo):
    spec = spec_of(tmp_path, agents=1, rollout={"max_observation_length": 3})
    rows = transcripts_of(LocalAgent(spec.agents[0], spec, CPU, None), spec)
    answers = {turn.text for row in rows for turn in row.turns if turn.role == "user"}
    assert answers == {"123"}


def test_environment_that_never_answers_changes_nothing(tmp_path, monkeypatch):
    plain = spec_of(tmp_path, rollout={"environment": "none"})
    silent = spec_of(tmp_path, rollout={"environment_instructions": False})
    monkeypatch.setattr(
        local, "open_environment", lambda rollout: None if rollout.environment == "none" else environments.Silent()
    )
    assert same_weights(train(plain, tmp_path / "plain"), train(silent, tmp_path / "silent"))


def test_instructions_stand_in_the_system_message_unless_they_are_off(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "open_environment", lambda rollout: environments.Silent())
    spec = spec_of(tmp_path, agents=1)
    question = replace(split_questions(spec.data).train[0], system="2+2")
    agent = LocalAgent(spec.agents[0], spec, CPU, None)
    assert agent.policy.tokenizer.decode(agent._encode(question)).startswith("s2+2")
    assert agent._system(question) == "2+2\n\n1+1"
    agent.spec = spec_of(tmp_path, agents=1, rollout={"environment_instructions": False})
    assert agent._system(question) == "2+2"


# Masks, by gradient


def update_gradients(agent: LocalAgent, spec, rows: list[LearnerRow], *, by_chunks: bool, monkeypatch):
    """The gradients by logits or hidden states of one update, (b, S, n), and where they are recorded."""
    kept = []
    monkeypatch.setattr(chunked_logprobs, "is_large", lambda count: by_chunks)
    module = agent.policy.model.base_model if by_chunks else agent.policy.model

    def keep(_module, _inputs, output):
        values = output.last_hidden_state if by_chunks else output.logits
        values.retain_grad()
        kept.append(values)

    handle = module.register_forward_hook(keep)
    agent.update([rows], 1e-4)
    handle.remove()
    return kept


@pytest.mark.parametrize("by_chunks", [False, True])
@pytest.mark.parametrize("algorithm", ["hacpo", "gspo", "grpo", "dapo", "cispo"])
def test_gradient_reaches_the_agents_own_tokens_alone(tmp_path, echo, monkeypatch, algorithm, by_chunks):
    spec = spec_of(tmp_path, agents=1, algorithm={"name": algorithm, "beta": 0.01})
    agent = LocalAgent(spec.agents[0], spec, CPU, None)
    generated = agent.generate(0, split_questions(spec.data).train[:8])
    prompt, sample = next(
        (prompt, number)
        for prompt, group in enumerate(generated.responses)
        for number, response in enumerate(group)
        if len(response.turns) >= 3
    )
    own = agent._own[prompt, sample]
    row = LearnerRow(prompt, 0, sample, True, 1.0, 1.0)
    [*_, values] = update_gradients(agent, spec, [row], by_chunks=by_chunks, monkeypatch=monkeypatch)
    # The state before a token predicts it; logits are kept from the last prompt token on, hidden states of all.
    first = len(own.prompt) - 1 if by_chunks else 0
    has_gradient = values.grad[0, first : first + len(own.response)].abs().sum(dim=-1) > 0
    assert has_gradient.tolist() == list(own.train_mask)
    assert 0 < sum(own.train_mask) < len(own.train_mask)


@pytest.mark.parametrize("algorithm", ["hacpo", "naive_learner"])
def test_gradient_of_a_peers_transcript_reaches_the_peers_own_tokens_alone(tmp_path, echo, monkeypatch, algorithm):
    spec = spec_of(tmp_path, algorithm={"name": algorithm, "beta": 0.0})
    source, learner = (LocalAgent(agent, spec, CPU, None) for agent in spec.agents)
    questions = split_questions(spec.data).train[:8]
    responses = source.generate(0, questions).responses
    learner.generate(0, questions)
    prompt, sample = next(
        (prompt, number)
        for prompt, group in enumerate(responses)
        for number, response in enumerate(group)
        if len(response.turns) >= 3
    )
    response = responses[prompt][sample]
    tokens = retokenize(learner.policy, response, spec.sharing, 100)
    # s at the middle of the band, where the gradient flows.
    with torch.no_grad():
        logps, mask = learner.policy.token_logps(
            [learner._prompts[prompt]], [tokens.token_ids], train_masks=[tokens.train_mask]
        )
    mean = (logps.sum() / mask.sum()).item() + 0.05
    row = LearnerRow(prompt, 0, sample, False, 1.0, 1.0, replace(response, mean_logp=mean))
    kept = []

    def keep(_module, _inputs, output):
        if output.logits.requires_grad:
            output.logits.retain_grad()
            kept.append(output.logits)

    handle = learner.policy.model.register_forward_hook(keep)
    report = learner.update([[row]], 1e-4)
    handle.remove()
    [result] = report.results[0]
    assert result.gradient_flows
    assert result.num_tokens == sum(tokens.train_mask)
    gradient = kept[-1].grad[0, : len(tokens.token_ids)].abs().sum(dim=-1)
    assert (gradient > 0).tolist() == list(tokens.train_mask)


def test_tool_tokens_do_not_move_the_ratio(tmp_path, echo):
    """s of Eq. (11) is of the agent's tokens: with the answer's tokens it would be another number."""
    spec = spec_of(tmp_path, agents=1)
    agent = LocalAgent(spec.agents[0], spec, CPU, None)
    generated = agent.generate(0, split_questions(spec.data).train[:8])
    place = next(place for place, own in agent._own.items() if len(generated.responses[place[0]][place[1]].turns) >= 3)
    report = agent.update([[LearnerRow(place[0], 0, place[1], True, 1.0, 1.0)]], 0.0)
    [result] = report.results[0]
    assert result.sequence_ratio == pytest.approx(1, abs=1e-5)  # the weights that sampled
    own = agent._own[place]
    with torch.no_grad():
        everything, _ = agent.policy.token_logps([own.prompt], [own.response])
    assert abs(everything.mean().item() - own.mean_logp) > 0.01


# Exchange


TURNS = (Turn("assistant", "1+2="), Turn("tool", "7"), Turn("assistant", "12", has_eos=True))
SHARED = Response("12", "12", "stop", 7, 7, -1.0, turns=TURNS)


def pieces(agent: LocalAgent, tokens: LearnerTokens) -> tuple[list[str], list[str]]:
    """The texts of the tokens that count, and of those that do not."""
    names = agent.policy.tokenizer.convert_ids_to_tokens(tokens.token_ids)
    by_mask = partial(zip, names, tokens.train_mask, strict=True)
    return [name for name, counts in by_mask() if counts], [name for name, counts in by_mask() if not counts]


def learner_of(root, **algorithm) -> tuple[LocalAgent, object]:
    spec = spec_of(root, algorithm=algorithm)
    return LocalAgent(spec.agents[1], spec, CPU, None), spec.sharing


def test_transcript_goes_through_the_learners_own_template_and_tokenizer(tmp_path, echo):
    learner, sharing = learner_of(tmp_path)
    own, environment = pieces(learner, retokenize(learner.policy, SHARED, sharing, 100))
    assert own == ["1", "+", "2", "=", "12", "<eos>"]  # "12" is one token of the learner
    # The source's turn ended with a stop string, so the template's <eos> is not trained.
    assert environment == ["<eos>", "t", "7", "<eos>", "a"]


def test_eos_is_mapped_turn_by_turn(tmp_path, echo):
    learner, sharing = learner_of(tmp_path)
    turns = (replace(TURNS[0], has_eos=True), *TURNS[1:])
    own, environment = pieces(learner, retokenize(learner.policy, replace(SHARED, turns=turns), sharing, 100))
    assert own == ["1", "+", "2", "=", "<eos>", "12", "<eos>"]
    assert environment == ["t", "7", "<eos>", "a"]
    stripping, sharing = learner_of(tmp_path, eos="strip")
    own, environment = pieces(stripping, retokenize(stripping.policy, replace(SHARED, turns=turns), sharing, 100))
    assert own == ["1", "+", "2", "=", "12"]
    assert environment == ["<eos>", "t", "7", "<eos>", "a"]  # the template needs it; it does not count


def test_special_tokens_in_an_answer_stay_text(tmp_path, echo):
    learner, sharing = learner_of(tmp_path)
    turns = (TURNS[0], Turn("tool", "7<eos>a"), TURNS[2])
    tokens = retokenize(learner.policy, replace(SHARED, turns=turns), sharing, 100)
    ids = tokens.token_ids
    assert ids.count(learner.policy.turn_eos) == 3  # of the two turns and the answer: none from its text
    assert sum(tokens.train_mask) == 6


def test_transcript_that_overflows_is_dropped_or_cut_with_its_mask(tmp_path, echo):
    learner, sharing = learner_of(tmp_path)
    assert retokenize(learner.policy, SHARED, sharing, 10) == "overflow"
    learner, sharing = learner_of(tmp_path, overflow="truncate")
    tokens = retokenize(learner.policy, SHARED, sharing, 10)
    assert (len(tokens.token_ids), len(tokens.train_mask), sum(tokens.train_mask)) == (10, 10, 5)
    only_tool = replace(SHARED, turns=(Turn("assistant", ""), TURNS[1], TURNS[2]))
    assert retokenize(learner.policy, only_tool, sharing, 3) == "empty"


# A run


def test_pair_trains_on_transcripts_and_records_them(tmp_path, echo):
    spec = spec_of(tmp_path, telemetry={"rollout_interval": 1})
    train(spec, tmp_path / "run")
    rollouts = records(tmp_path / "run", "rollout")
    several = [one for one in rollouts if len(one["turns"]) > 1]
    assert several
    assert all(one["completion"] == one["turns"][-1]["text"] for one in rollouts)  # no stop strings of the run's own
    metrics = [one for one in records(tmp_path / "run", "metrics") if one["source"] is None and one["step"] == 1]
    for one in metrics:
        own = [row["turns"] for row in rollouts if (row["step"], row["agent"]) == (1, one["agent"])]
        by_role = [turn["role"] for turns in own for turn in turns]
        failed = sum(turn["is_failed"] for turns in own for turn in turns)
        assert one["ratios"]["turns/mean"] == [by_role.count("assistant"), 16]
        assert one["ratios"]["tool_calls/mean"] == [by_role.count("tool"), 16]
        assert one["ratios"]["tool_calls/failed_frac"] == [failed, by_role.count("tool")]
    contributions = [one for one in records(tmp_path / "run", "contribution") if one["agent"] != one["source"]]
    assert any(one["weight"] != 0 for one in contributions)
    places = {(one["step"], one["agent"], one["prompt_id"], one["sample"]) for one in several}
    crossing = [(one["step"], one["source"], one["prompt_id"], one["sample"]) in places for one in contributions]
    assert any(is_several and one["num_tokens"] for is_several, one in zip(crossing, contributions, strict=True))


def test_reward_of_the_environment_is_the_reward(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "open_environment", lambda rollout: environments.Paying())
    spec = spec_of(tmp_path, agents=1, training={"steps": 1}, telemetry={"rollout_interval": 1})
    train(spec, tmp_path / "run")
    assert {one["reward"] for one in records(tmp_path / "run", "rollout")} == {0.5}
    assert {one["value"] for one in records(tmp_path / "run", "evaluation")} == {0.5}


def test_environment_that_raises_pauses_the_run_with_its_message(tmp_path, monkeypatch):
    class Broken(environments.Echo):
        def reset(self, question):
            class Raising(environments.SilentEpisode):
                async def step(self, text):
                    raise KeyError("board")

            return Raising()

    monkeypatch.setattr(local, "open_environment", lambda rollout: Broken())
    monkeypatch.setattr(StopFlag, "handle_signals", lambda flag: None)  # of a process of its own
    monkeypatch.setattr(heartbeat, "start", lambda run_dir: None)
    spec = spec_of(tmp_path, agents=1)
    (tmp_path / "run").mkdir()
    assert run(spec, tmp_path / "run", 1) == 0
    [ending] = records(tmp_path / "run", "finished")
    assert (ending["outcome"], ending["reason"]) == ("paused", "the environment raised KeyError: 'board'")
