"""An answer that ends with a stop string: the verifier reads what is before it, and no peer puts an EOS after it."""

from __future__ import annotations

from tests.support.workers.tiny import make_pair, make_spec, train
from workers.agents.local import LocalAgent
from workers.agents.retokenize import LearnerTokens, retokenize
from workers.contract.spool import read_spool
from workers.model.loading import CPU
from workers.rollouts.sampler import Sample


def test_text_before_a_stop_string_is_verified_and_all_of_it_is_shared(tmp_path):
    spec = make_spec(tmp_path, make_pair(tmp_path), rollout={"stop": ["=", "+"]})
    source, learner = (LocalAgent(agent, spec, CPU, None) for agent in spec.agents)
    ids = source.policy.encode_response("12=")
    row = Sample(ids, [-1.0] * len(ids), True, 0.0, has_stop=True)
    response = source._response(row, len(source._response_ids(row)), -1.0)
    assert (response.text, response.shared_text, response.finish_reason) == ("12", "12=", "stop")
    assert response.length == len(ids)
    sharing = spec.sharing
    assert sharing is not None
    own = learner.policy.encode_response("12=")
    assert retokenize(learner.policy, response, sharing, 6) == LearnerTokens(own)
    with_eos = source._response(Sample([*ids, source.policy.turn_eos], [-1.0] * 4, True, 0.0), len(ids), -1.0)
    own_eos = [*learner.policy.encode_response("12="), learner.policy.turn_eos]
    assert retokenize(learner.policy, with_eos, sharing, 6) == LearnerTokens(own_eos)


def test_run_with_stop_strings_and_shares_of_the_distribution_trains(tmp_path):
    rollout = {"stop": ["1"], "top_p": 0.9, "top_k": 12}
    evaluation = {"top_p": 0.9, "temperature": 1.0}
    spec = make_spec(
        tmp_path, make_pair(tmp_path), rollout=rollout, evaluation=evaluation, telemetry={"rollout_interval": 1}
    )
    train(spec, tmp_path / "run")
    rollouts = [record for record in read_spool(tmp_path / "run") if record["type"] == "rollout"]
    assert rollouts
    assert not any("1" in record["completion"] for record in rollouts)
