"""Each alert rule on made-up steps with numbers worked out by hand, and what holds for all of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl_web.alerts.rules.apply_rules import new_state, step_changes
from hacrl_web.alerts.rules.signals import Facts, StepMetrics
from hacrl_web.alerts.rules.table import BY_KIND, RULES
from workers.contract.spec.run import RunSpec

FACTS = Facts(agents=("A", "B"), shares=True, uses_omega=True, can_trap=True, max_completion_length=100)
ALONE = Facts(agents=("A", "B"), shares=False, uses_omega=False, can_trap=False, max_completion_length=100)


def own(agent: str = "A", ratios: dict | None = None, **values: float | None) -> dict:
    return {(agent, ""): {"values": values, "ratios": ratios or {}}}


def pair(ratios: dict | None = None, **values: float) -> dict:
    return {("A", "B"): {"values": values, "ratios": ratios or {}}}


def play(kind: str, *steps: dict, facts: Facts = FACTS) -> list[tuple[int, str, str, bool, float]]:
    """(step, agent, source, raised?, number) of each change of a kind; steps are numbered from 1."""
    state = new_state()
    found = []
    for number, metrics in enumerate(steps, start=1):
        for change in step_changes(state, facts, number, StepMetrics(metrics)):
            if change.rule.kind == kind:
                found.append((number, change.agent, change.source, change.is_raised, round(change.number, 6)))
    return found


def positive(clipped: float, of: float = 10) -> dict:
    return pair({"clip_lower_frac/positive": (clipped, of)})


def taught(own_used: int, peers_used: int) -> dict:
    """100 own evaluated rollouts of which `own_used` keep their gradient; 100 of B's of which `peers_used` do."""
    clipped = 100 - own_used
    return own(ratios={"clip_ratio/low_mean": (clipped - 1, 100), "clip_ratio/high_mean": (1, 100)}) | pair(
        {"used_frac": (peers_used, 100)}
    )


def lengths(*values: float) -> list[dict]:
    return [own(**{"completions/mean_length": value}) for value in values]


def scored(a: float, b: float) -> dict:
    return own("A", {"reward/mean": (a * 100, 100)}) | own("B", {"reward/mean": (b * 100, 100)})


def judged(lost: float, right: float) -> dict:
    return own(ratios={"reward/mean": (1, right)}, **{"verifier/unscorable": lost})


def uniform(of_agent: int, of_all: int) -> dict:
    return own(ratios={"frac_reward_zero_std": (of_agent, 10), "frac_reward_zero_std_joint": (of_all, 10)})


CLAMPED, FREE = pair(omega_clamped=1.0), pair(omega_clamped=0.0)
CALM, JUMP = [own(kl=0.02)] * 10, [own(kl=0.12), own(kl=0.1)]
DIFFERENCES = [own(engine_logp_difference=value) for value in (0.2, 0.0, 0.1, 0.3, 0.07, 0.05, 0.0, 0.01)]
SIDED = replace(FACTS, can_trap=False)
# By claim: the rule, the steps, and (step, agent, source, raised?, number) of each change; further facts at the end.
CASES: dict[str, tuple] = {
    # .8 .8 | .9 -> raised at 3 (.9); .7 is between the limits; .6 .6 .5 -> cleared at 7.
    "delta trap after three steps, cleared after three": (
        *("cross_clip", [positive(x) for x in (8, 8, 9, 7, 6, 6, 5)]),
        [(3, "A", "B", True, 0.9), (7, "A", "B", False, 0.5)],
    ),
    "its steps are in a row": ("cross_clip", [positive(x) for x in (9, 9, 7, 9, 9, 7, 9, 9)], []),
    "a step without encouraging rollouts is none of them": (
        *("cross_clip", [positive(*x) for x in ((9, 10), (0, 0), (9, 10), (9, 10))]),
        [(4, "A", "B", True, 0.9)],
    ),
    "it is only where the clip stops the gradient": ("cross_clip", [positive(10)] * 5, [], SIDED),
    "omega clamped for ten steps": (
        *("omega_clamped", [CLAMPED] * 10 + [FREE] * 5),
        [(10, "A", "B", True, 1.0), (15, "A", "B", False, 0.0)],
    ),
    "which is no news where omega does nothing": (
        *("omega_clamped", [CLAMPED] * 10, []),
        replace(FACTS, uses_omega=False),
    ),
    # 1 / (1 + 49) = .02 in five steps; 4 / (4 + 36) = .1 in five steps.
    "off-diagonal share near zero": (
        *("off_diagonal", [taught(49, 1)] * 5 + [taught(36, 4)] * 5),
        [(5, "A", "", True, 0.02), (10, "A", "", False, 0.1)],
    ),
    "1 / 49 is more than .02": ("off_diagonal", [taught(48, 1)] * 6, []),
    "zero variance looks at all agents": ("zero_variance", [uniform(9, 2)] * 9, []),
    # Used rows: 0 own and 0 of B in ten steps; one of B's is enough, in two steps.
    "no rollout had weight in ten steps": (
        *("no_weight", [taught(0, 0)] * 10 + [taught(0, 1)] * 2),
        [(10, "A", "", True, 0.0), (12, "A", "", False, 1.0)],
    ),
    "no evaluated row is no weight either": (
        *("no_weight", [own(ratios={"clip_ratio/low_mean": (0, 0), "clip_ratio/high_mean": (0, 0)})] * 10),
        [(10, "A", "", True, 0.0)],
        ALONE,
    ),
    "nine steps and one with weight": ("no_weight", ([taught(0, 0)] * 9 + [taught(1, 0)]) * 3, []),
    "all of them are uniform": ("zero_variance", [uniform(9, 9)] * 5, [(5, "A", "", True, 0.9)]),
    "where nothing is shared at the agent's own": (
        *("zero_variance", [uniform(9, 2)] * 5, [(5, "A", "", True, 0.9)]),
        ALONE,
    ),
    # Start: the median of 2, 2, 1, 3, 2 = 2. Raised at .2 = 10 %, cleared at .4 = 20 %.
    "entropy against its start": (
        "entropy_collapse",
        [own(entropy=x) for x in (2.0, 2.0, 1.0, 3.0, 2.0, 1.0, *[0.2] * 5, 0.3, *[0.4] * 5)],
        [(11, "A", "", True, 0.1), (17, "A", "", False, 0.2)],
    ),
    # Five times .02 is .1. The second step over it raises; its median is still .02.
    "KL against the ten steps before": ("kl_jump", [*CALM, *JUMP], [(12, "A", "", True, 5.0)]),
    "one step is no jump": ("kl_jump", [*CALM, *JUMP[:1], *CALM], []),
    # The median of ten becomes the new height once six of them are: then it is no jump any more.
    "a new height": (
        *("kl_jump", [*CALM, *[own(kl=0.1)] * 14]),
        [(12, "A", "", True, 5.0), (20, "A", "", False, 1.0)],
    ),
    # .04 is forty times .001, but only four times the floor of .01.
    "KL near zero does not jump": ("kl_jump", [own(kl=0.001)] * 10 + [own(kl=0.04)] * 3, []),
    # Start 30, limit 60: 66 / 60 = 1.1; cleared at 48 / 60 = .8.
    "length over twice the start": (
        *("length_blow_up", lengths(*[30] * 5, *[66] * 5, 50, *[48] * 5)),
        [(10, "A", "", True, 1.1), (16, "A", "", False, 0.8)],
    ),
    # Start 60, cap 100: the limit is 90, not 120.
    "length near the cap": ("length_blow_up", lengths(*[60] * 5, *[90] * 5), [(10, "A", "", True, 1.0)]),
    # Start 80 of 100: no room to blow up, so nothing to say.
    "no room to blow up": ("length_blow_up", lengths(*[80] * 5, *[100] * 9), []),
    "engine after two steps, cleared after three": (
        *("engine_mismatch", DIFFERENCES, [(4, "A", "", True, 0.3), (8, "A", "", False, 0.01)]),
        replace(FACTS, has_engine=True),
    ),
    # The mean may be small: one token counts.
    "the largest difference of a token": (
        *("engine_outlier", [own(**{"engine_logp_difference/max": x}) for x in (1.0, 0.9, 1.2, 1.1, 0.5, 0.5, 0.4)]),
        [(4, "A", "", True, 1.1), (7, "A", "", False, 0.4)],
        replace(FACTS, has_engine=True),
    ),
    "the trainer itself samples": ("engine_mismatch", DIFFERENCES, []),
    # d new steps of ten: A falls and B rises by .3 * d / 10, over .1 from d = 4 on; the third such step is 20 + 6: .18.
    "split": ("split", [scored(0.5, 0.2)] * 20 + [scored(0.2, 0.5)] * 6, [(26, "A", "", True, 0.18)]),
    "agents that rise together": ("split", [scored(0.2, 0.3)] * 20 + [scored(0.5, 0.6)] * 15, []),
    # 60 equal steps give the first gain of 0, the tenth comes at step 69.
    "no progress in thirty steps": (
        *("no_progress", [scored(0.4, 0.4)] * 69),
        [(69, "A", "", True, 0.0), (69, "B", "", True, 0.0)],
    ),
    "nine of ten": ("no_progress", [scored(0.4, 0.4)] * 68, []),
    "solved": ("no_progress", [scored(0.95, 0.95)] * 80, []),
    # k new steps of .7: the mean of thirty rises by .3 * k / 30 = .01 k; .02 at k = 2, the fifth such step is k = 6.
    "progress when rewards rise": (
        *("no_progress", [scored(0.4, 0.4)] * 69 + [scored(0.7, 0.4)] * 6),
        [(69, "A", "", True, 0.0), (69, "B", "", True, 0.0), (75, "A", "", False, 0.06)],
    ),
    # 4 / (4 + 36) = .1; 2 / (2 + 38) = .05. Nothing scored at all: 5 / (5 + 0) = 1.
    "verifier errors are a share of all own rollouts": (
        *("verifier", [judged(4, 36)] * 3 + [judged(2, 38)] * 3 + [judged(5, 0)] * 3),
        [(3, "A", "", True, 0.1), (6, "A", "", False, 0.05), (9, "A", "", True, 1.0)],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rule_raises_and_clears_at_its_limits(case):
    kind, steps, changes, *facts = case
    assert play(kind, *steps, facts=facts[0] if facts else FACTS) == changes


def texts_of(steps: list[dict]) -> list[str]:
    state = new_state()
    return [c.text for n, m in enumerate(steps, start=1) for c in step_changes(state, FACTS, n, StepMetrics(m))]


def test_sentences_name_who_is_concerned():
    texts = texts_of([taught(50, 0)] * 5)
    assert texts == ["None of the rollouts that A learns from come from its peers: this is almost GSPO."]
    texts = texts_of([scored(0.5, 0.2)] * 20 + [scored(0.2, 0.5)] * 6)
    assert "The mean reward of A falls while that of B rises, both by at least 0.18." in texts


def test_no_sentence_or_advice_names_a_setting_by_its_path():
    for rule in RULES:
        assert "_" not in rule.advice + rule.help, rule.kind
        assert not re.search(r"\b(algorithm|rollout|training|compute)\.", rule.advice + rule.help + rule.sentence), (
            rule.kind
        )


def test_rules_of_sharing_are_silent_where_nothing_is_shared():
    step = taught(100, 0) | pair({"clip_lower_frac/positive": (10, 10), "used_frac": (0, 100)}, omega_clamped=1.0)
    state = new_state()
    assert [c for n in range(1, 40) for c in step_changes(state, ALONE, n, StepMetrics(step))] == []


@pytest.mark.parametrize(
    ("algorithm", "uses"),
    [
        ({"name": "hacpo"}, True),
        ({"name": "hacpo", "advantage": "plain"}, True),
        ({"name": "hacpo", "modulate_gradient": False}, True),
        ({"name": "hacpo", "advantage": "plain", "modulate_gradient": False}, False),
        ({"name": "hacpo", "sharing": False}, False),
        ({"name": "naive_source"}, False),
        ({"name": "naive_learner"}, False),
    ],
)
def test_omega_acts_by_the_baselines_or_the_weights_of_hacpo(algorithm, uses):
    agents = [{"name": name, "model": "/m"} for name in ("A", "B")]
    request = {"agents": agents, "data": {"benchmark": "b", "train_path": "/t"}, "algorithm": algorithm}
    assert Facts.of(RunSpec.model_validate(request)).uses_omega == uses
    assert not Facts.of(RunSpec.model_validate(request | {"agents": agents[:1]})).uses_omega


def test_resumed_attempt_replaces_the_steps_that_it_repeats():
    state = new_state()
    for number in (1, 2):
        assert step_changes(state, FACTS, number, StepMetrics(positive(9))) == []
    for number in (1, 2):  # from the checkpoint of step 0 on: these are no third and fourth step
        assert step_changes(state, FACTS, number, StepMetrics(positive(9))) == []
    assert [change.is_raised for change in step_changes(state, FACTS, 3, StepMetrics(positive(9)))] == [True]


def test_facts_come_from_the_run_spec():
    agents = [{"name": name, "model": "/m"} for name in ("A", "B")]
    data = {"benchmark": "b", "train_path": "/t"}
    rollout = {"max_completion_length": 77, "engine": "transformers"}
    spec = RunSpec.model_validate({"agents": agents, "data": data, "rollout": rollout})
    assert Facts.of(spec) == Facts(("A", "B"), shares=True, uses_omega=True, can_trap=True, max_completion_length=77)
    sided = {"name": "hacpo", "cross_clip_gradient": "sided"}
    spec = RunSpec.model_validate({"agents": agents, "data": data, "algorithm": sided})
    assert (Facts.of(spec).shares, Facts.of(spec).can_trap) == (True, False)
    spec = RunSpec.model_validate({"agents": agents, "data": data, "algorithm": {"name": "gspo"}})
    assert (Facts.of(spec).shares, Facts.of(spec).can_trap) == (False, False)
    for engine, is_possible in (("transformers", False), ("vllm", True), ("auto", True)):
        spec = RunSpec.model_validate({"agents": agents, "data": data, "rollout": {"engine": engine}})
        assert Facts.of(spec).has_engine is is_possible


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_limits_leave_room_between_raising_and_clearing(rule):
    assert rule.clear_at > rule.raise_at if rule.is_low else rule.clear_at < rule.raise_at
    assert rule.raise_after >= 2
    assert rule.clear_after >= 2
    assert rule.help
    assert rule.advice
    assert rule.source


# Shares on a grid that contains both limits of the delta trap, and what lies between them.
SHARES = st.lists(st.sampled_from([0.0, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.0]), max_size=60)


@settings(max_examples=200, deadline=None)
@given(SHARES)
def test_alerts_do_not_flap(shares):
    """Raised and cleared take turns, with at least the rule's patience between them."""
    found = play("cross_clip", *(positive(10 * share) for share in shares))
    rule = BY_KIND["cross_clip"]
    assert [change[3] for change in found] == [place % 2 == 0 for place in range(len(found))]
    for before, after in pairwise(found):
        assert after[0] - before[0] >= (rule.raise_after if after[3] else rule.clear_after)
    for step, _, _, is_raised, _ in found:
        last = shares[step - 3 : step]
        assert all(share >= 0.8 for share in last) if is_raised else all(share <= 0.6 for share in last)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([0.61, 0.7, 0.79]), max_size=60), st.booleans())
def test_nothing_between_the_limits_changes_anything(shares, is_raised):
    first = [positive(10)] * 3 if is_raised else [positive(0)] * 3
    found = play("cross_clip", *first, *(positive(10 * share) for share in shares))
    assert found == ([(3, "A", "B", True, 1.0)] if is_raised else [])


NUMBERS = st.lists(
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 10), st.floats(0, 3)), min_size=1, max_size=90
)


@settings(max_examples=50, deadline=None)
@given(NUMBERS, st.integers(0, 90))
def test_what_is_remembered_survives_json_at_any_step(numbers, cut):
    def steps():
        for a, b, clipped, entropy in numbers:
            ratios = {"reward/mean": (a * 10, 10), "frac_reward_zero_std_joint": (clipped, 10)}
            yield positive(clipped) | own("A", ratios, entropy=entropy) | own("B", {"reward/mean": (b * 10, 10)})

    whole, parts = new_state(), new_state()
    for number, metrics in enumerate(steps(), start=1):
        if number == cut:
            parts = json.loads(json.dumps(parts))
        expected = step_changes(whole, FACTS, number, StepMetrics(metrics))
        assert step_changes(parts, FACTS, number, StepMetrics(metrics)) == expected
    assert json.loads(json.dumps(parts)) == json.loads(json.dumps(whole))
    kept = {key: len(series["last"]) for key, series in whole["series"].items()}
    assert all(count <= BY_KIND[key.split("\n")[0]].keep for key, count in kept.items())
