"""Settings under which nothing can be learned are known before a run starts, each with its reason."""

import pytest

from workers.contract.spec import teaching
from workers.contract.spec.run import RunSpec

ONE, TWO = ["a"], ["a", "b"]
ALONE = {"name": "gspo"}
LENGTH = {"name": "short", "kind": "length", "length": 64}


def spec(agents, **sections):
    own = sections.pop("agent", {})
    agents = [{"name": name, "model": "m", **own} for name in agents]
    sections = {"compute": {"dtype": "float32"}, **sections}
    return RunSpec.model_validate({"agents": agents, "data": {"train_path": "-"}, **sections})


def rollout(**settings):
    return {"engine": "transformers", "max_completion_length": 64, **settings}


@pytest.mark.parametrize(
    ("agents", "sections", "path", "told"),
    [
        # A group of one is its own baseline: r - r = 0.
        (ONE, {"algorithm": {"name": "grpo"}, "rollout": rollout(num_generations=1)}, "num_generations", "set 2"),
        (ONE, {"algorithm": {"name": "hacpo"}, "rollout": rollout(num_generations=1)}, "num_generations", "set 2"),
        (TWO, {"algorithm": {"name": "dapo"}, "rollout": rollout(num_generations=1)}, "num_generations", "share"),
        (TWO, {"algorithm": {"sharing": False}, "rollout": rollout(num_generations=1)}, "num_generations", "share"),
        # Two rollouts of GSPOx2; two agents, whose rollouts are one group.
        (ONE, {"algorithm": {"name": "gspox2"}, "rollout": rollout(num_generations=1)}, None, ""),
        (TWO, {"algorithm": {"name": "hacpo"}, "rollout": rollout(num_generations=1)}, None, ""),
        (TWO, {"algorithm": {"name": "naive_source"}, "rollout": rollout(num_generations=1)}, None, ""),
        # The most probable token alone: equal rollouts, unless another agent's are in the group.
        (TWO, {"algorithm": ALONE, "rollout": rollout(top_k=1)}, "top_k", "the same"),
        (TWO, {"algorithm": ALONE, "rollout": rollout(), "agent": {"top_k": 1}}, "top_k", "the same"),
        (TWO, {"algorithm": {"name": "signed"}, "rollout": rollout(top_k=1)}, None, ""),
        # A nucleus of one token, whatever the vocabulary.
        (TWO, {"algorithm": ALONE, "rollout": rollout(top_p=1e-7)}, "top_p", "the same"),
        (TWO, {"algorithm": ALONE, "rollout": rollout(top_p=2e-7)}, None, ""),
        (TWO, {"algorithm": {"name": "signed"}, "rollout": rollout(top_p=1e-7)}, None, ""),
        # No completion is longer than 64 tokens, so the reward of its length is always 1.
        (ONE, {"rewards": {"verifier_weight": 0, "terms": [LENGTH]}, "rollout": rollout()}, "terms", "equal"),
        (ONE, {"rewards": {"verifier_weight": 1, "terms": [LENGTH]}, "rollout": rollout()}, None, ""),
        (ONE, {"rewards": {"verifier_weight": 0, "terms": [LENGTH | {"length": 63}]}, "rollout": rollout()}, None, ""),
        # Half a unit in the last place of 1e-4 is 2^-25 * 1e-4 = 3e-12. LoRA's matrices begin at 0.
        (ONE, {"training": {"learning_rate": 2.9e-12}}, "learning_rate", "float32"),
        (ONE, {"training": {"learning_rate": 1e-11}}, None, ""),
        (ONE, {"training": {"learning_rate": 1e-12, "lora_rank": 4}}, None, ""),
        # Nothing is trained.
        (ONE, {"training": {"steps": 0}, "rollout": rollout(num_generations=1)}, None, ""),
    ],
)
def test_settings_by_which_no_rollout_can_have_weight_are_void(agents, sections, path, told):
    void = teaching.blockers(spec(agents, **sections))
    blockers = {name.rpartition(".")[2]: why for name, why in void.items()}
    assert all("nothing is learned" in why for why in blockers.values())
    assert list(blockers) == ([path] if path else [])
    assert told in blockers.get(path, "")


@pytest.mark.parametrize(
    ("sections", "code"),
    [
        ({"rollout": rollout(max_completion_length=1)}, "one_token_answers"),
        ({"rollout": rollout(temperature=0.019)}, "greedy_rollouts"),
        ({"rollout": rollout(temperature=0.02)}, None),
        ({"rollout": rollout(top_p=0.049)}, "narrow_nucleus"),
        ({"rollout": rollout(top_p=0.05)}, None),
        ({"training": {"steps": 4, "warmup_steps": 5}}, "warmup_beyond_run"),
        ({"training": {"steps": 4, "warmup_steps": 4}}, None),  # the last step has the peak
        # 58 steps of 2 updates at 1e-9 move a weight by 1.2e-7; half a unit of 1e-4 in bfloat16 is 2e-7.
        ({"training": {"learning_rate": 1e-9}, "compute": {"dtype": "bfloat16"}}, "learning_rate_vanishes"),
        ({"training": {"learning_rate": 2e-9}, "compute": {"dtype": "bfloat16"}}, None),
        ({"training": {"learning_rate": 1e-9}}, None),  # float32
    ],
)
def test_settings_with_which_little_can_be_learned_are_confirmed(sections, code):
    found = [caution.code for caution in teaching.cautions_of(spec(ONE, algorithm=ALONE, **sections))]
    assert found == ([code] if code else [])


@pytest.mark.parametrize(
    ("algorithm", "field"),
    [
        ({"name": "signed", "cross_weight": 0}, "cross_weight"),
        ({"name": "hacpo", "cross_weight": 0}, "cross_weight"),
        ({"name": "signed"}, None),
        # The lower bound is 1 - .01 + .025 m, so 1 at every update of shared rollouts: m is 1 and more there.
        ({"name": "hacpo", "delta": 0.01}, "delta_step"),
        ({"name": "hacpo", "delta": 0.01, "cross_clip_gradient": "keep"}, None),
        ({"name": "hacpo", "delta": 0.03}, None),  # .995 at m = 1
        ({"name": "hacpo", "delta": 0.01, "sharing": False}, None),
    ],
)
def test_sharing_that_gives_no_shared_rollout_weight_is_confirmed(algorithm, field):
    batch = {"train_batch_size": 4, "mini_batch_size": 4}
    cautions = teaching.cautions_of(spec(TWO, algorithm=algorithm, training=batch))
    assert [one.field for one in cautions if one.code == "no_shared_weight"] == (
        [f"algorithm.{field}"] if field else []
    )
