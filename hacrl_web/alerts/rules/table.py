"""The table of alert rules: the number that each rule watches, its limits with their source, and the advice.

An alert is raised when its number is at or over `raise_at` in `raise_after` measured steps in a row, and cleared when
it is at or under `clear_at` in `clear_after` of them. Between the two limits its state does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hacrl_web.alerts.rules import remedies, signals
from hacrl_web.alerts.rules.signals import Facts, Series, StepMetrics, Value
from hacrl_web.insight.collaboration.collaboration import TRAP_AT

Read = Callable[[StepMetrics, Facts, str, str], Value | None]
OURS = "ours"


@dataclass(frozen=True)
class Rule:
    """One kind of alert. `is_low`: small numbers are bad, so over and under change places."""

    kind: str
    title: str
    scope: Literal["agent", "pair"]
    metric: str  # its name in docs/metrics.md
    chart: str  # key of the chart that shows it
    read: Read
    raise_at: float
    raise_after: int
    clear_at: float
    clear_after: int
    sentence: str  # with {value}, {percent}, {few}: "None" or "Only 2 %", {agent}, {source}, {other}
    advice: str
    help: str
    source: str = OURS  # of the limits
    signal: Callable[[Series, Facts], float | None] = signals.latest
    window: int = 1  # points of the series that `signal` needs
    is_low: bool = False
    remedy: remedies.Propose | None = None
    applies: Callable[[Facts], bool] = lambda facts: True

    @property
    def keep(self) -> int:
        """How many points of a series to keep."""
        return self.window + max(self.raise_after, self.clear_after)

    def is_over(self, number: float | None) -> bool:
        return number is not None and (number <= self.raise_at if self.is_low else number >= self.raise_at)

    def is_under(self, number: float | None) -> bool:
        return number is not None and (number >= self.clear_at if self.is_low else number <= self.clear_at)

    @property
    def limits(self) -> str:
        """Both limits in words."""
        least, most = ("at most", "at least") if self.is_low else ("at least", "at most")
        return (
            f"raised: {least} {self.raise_at:g} in {self.raise_after} steps; "
            f"cleared: {most} {self.clear_at:g} in {self.clear_after}"
        )


def _value(metric: str) -> Read:
    return lambda step, facts, agent, source: step.value(metric, agent, source)


def _share(metric: str) -> Read:
    return lambda step, facts, agent, source: step.share(metric, agent, source)


def _of_agent(read: Callable[[StepMetrics, Facts, str], Value | None]) -> Read:
    return lambda step, facts, agent, source: read(step, facts, agent)


RULES = (
    Rule(
        kind="cross_clip",
        title="Delta trap",
        help="Share of a source's rollouts with positive advantage that lie below the learner's clip band. Their "
        "gradient is zero, so the learner cannot take up a strategy that it rarely uses.",
        scope="pair",
        metric="clip_lower_frac/positive",
        chart="clipping",
        read=_share("clip_lower_frac/positive"),
        raise_at=TRAP_AT,
        raise_after=3,
        clear_at=0.6,
        clear_after=3,
        applies=lambda facts: facts.shares and facts.can_trap,
        sentence="{percent} of the rollouts of {source} with positive advantage lie below the clip band of {agent}: "
        "it learns nothing from them.",
        advice="Clone the run with the recommended rule, which has no clip band; or raise Delta, or set Cross clip "
        "gradient to sided.",
        remedy=remedies.recommended_rule,
        source="docs/LOG.md, the delta trap",
    ),
    Rule(
        kind="omega_clamped",
        title="Omega at its clamp",
        help="The capability ratio of a pair is outside its limits, or both agents solve nothing.",
        scope="pair",
        metric="omega_clamped",
        chart="omega",
        read=_value("omega_clamped"),
        raise_at=1.0,
        raise_after=10,
        clear_at=0.0,
        clear_after=5,
        applies=lambda facts: facts.uses_omega,
        sentence="The capability ratio that weights the rollouts of {source} for {agent} is clamped to its limit.",
        advice="Compare the rewards of the two agents: one of them solves almost nothing. Use an easier benchmark or a "
        "closer pair, or widen the limits of the capability ratio.",
        source=f"Eq. (8); {OURS}",
    ),
    Rule(
        kind="off_diagonal",
        title="Peers teach next to nothing",
        help="Of the rollouts whose gradient is not zero for a learner, the share that came from its peers.",
        scope="agent",
        metric="used_frac, clip_ratio/low_mean, clip_ratio/high_mean",
        chart="used",
        read=_of_agent(signals.peer_share),
        raise_at=0.02,
        raise_after=5,
        clear_at=0.05,
        clear_after=5,
        is_low=True,
        applies=lambda facts: facts.shares,
        sentence="{few} of the rollouts that {agent} learns from come from its peers: this is almost GSPO.",
        advice="Check in the Collaboration tab whether rollouts were dropped. Clone the run with the recommended rule; "
        "or, with hacpo, raise Delta or set Cross clip gradient to sided. Naive sharing clips as GSPO does, so a "
        "peer's rollout is rarely inside the band.",
        remedy=remedies.recommended_rule,
    ),
    Rule(
        kind="zero_variance",
        title="No variance in rewards",
        help="Share of prompts on which all rewards are equal, so that all advantages are zero. Where rollouts are "
        "shared, the rewards of all agents count.",
        scope="agent",
        metric="frac_reward_zero_std_joint, frac_reward_zero_std",
        chart="reward",
        read=_of_agent(signals.uniform_share),
        raise_at=0.9,
        raise_after=5,
        clear_at=0.8,
        clear_after=5,
        sentence="All rewards are equal on {percent} of the prompts, so {agent} learns only from the other prompts.",
        advice="The questions are too easy or too hard: change the benchmark, or raise the rollouts per prompt or the "
        "temperature.",
        remedy=remedies.more_rollouts,
        source=f"the quantity: GRPO's group advantage; {OURS}",
    ),
    Rule(
        kind="no_weight",
        title="Nothing learned",
        help="Whether any rollout of a step had weight for the agent, its own or a peer's: 0 or 1. Without weight all "
        "advantages were 0, or the clip removed every gradient.",
        scope="agent",
        metric="clip_ratio/low_mean, clip_ratio/high_mean, used_frac",
        chart="reward",
        read=_of_agent(signals.has_weight),
        raise_at=0.0,
        raise_after=10,
        clear_at=1.0,
        clear_after=2,
        is_low=True,
        sentence="No rollout of the last 10 steps had weight for {agent}: it has learned nothing from them.",
        advice="If its rewards are all 0, the questions are too hard for it so far; it may still hit on an answer, but "
        "easier questions, more rollouts per prompt or a higher temperature help. If they are all alike otherwise, "
        "check the reward: a function that compares completions sees one at a time.",
        remedy=remedies.more_rollouts,
    ),
    Rule(
        kind="entropy_collapse",
        title="Entropy collapse",
        help="Entropy per token as a share of its start (median of the first 5 steps).",
        scope="agent",
        metric="entropy",
        chart="entropy",
        read=_value("entropy"),
        signal=signals.over_start,
        raise_at=0.1,
        raise_after=5,
        clear_at=0.2,
        clear_after=5,
        is_low=True,
        sentence="The entropy of {agent} has fallen to {percent} of its start: its answers hardly differ any more.",
        advice="Lower the learning rate, raise the temperature or Beta, or go back to an earlier checkpoint.",
        remedy=remedies.half_the_learning_rate,
    ),
    Rule(
        kind="kl_jump",
        title="KL jump",
        help="KL to the starting model, divided by its median over the previous 10 steps (at least 0.01).",
        scope="agent",
        metric="kl",
        chart="kl",
        read=_value("kl"),
        signal=signals.over_recent,
        window=signals.KL_WINDOW + 1,
        raise_at=5.0,
        raise_after=2,
        clear_at=2.5,
        clear_after=5,
        sentence="The KL of {agent} to its starting model is {value:.1f} times its recent median.",
        advice="Check gradient norm and completion length there; lower the learning rate or raise Beta.",
        remedy=remedies.half_the_learning_rate,
    ),
    Rule(
        kind="length_blow_up",
        title="Length blow-up",
        help="Mean completion length, divided by its limit: twice the start (the median of the first 5 steps), or 0.9 "
        "of the longest completion allowed where that is less.",
        scope="agent",
        metric="completions/mean_length",
        chart="length",
        read=_value("completions/mean_length"),
        signal=signals.length_over_limit,
        raise_at=1.0,
        raise_after=5,
        clear_at=0.8,
        clear_after=5,
        sentence="The mean completion length of {agent} is {value:.2f} times its limit: twice the start, or near the "
        "maximum.",
        advice="Read some rollouts: does the agent repeat itself? An overlong penalty lowers the rewards of long "
        "answers; if they are sound, allow longer completions.",
        remedy=remedies.overlong_penalty,
    ),
    Rule(
        kind="split",
        title="One falls while another rises",
        help="The smaller of two changes in mean reward, the last 10 steps against the 10 before: the agent's fall, "
        "and its best peer's rise.",
        scope="agent",
        metric="reward/mean",
        chart="reward",
        read=_of_agent(signals.rewards),
        signal=signals.split,
        window=2 * signals.SPLIT_WINDOW,
        raise_at=0.1,
        raise_after=3,
        clear_at=0.03,
        clear_after=5,
        applies=lambda facts: facts.shares,
        sentence="The mean reward of {agent} falls while that of {other} rises, both by at least {value:.2f}.",
        advice="Check in the Collaboration tab which peers it learns from. Lower the weight of peers' rollouts (Cross "
        "weight), or the learning rate of the agent that falls.",
        remedy=remedies.half_the_cross_weight,
    ),
    Rule(
        kind="no_progress",
        title="No progress",
        help="Mean reward of the last 30 steps minus that of the 30 before. From 0.9 the task counts as solved.",
        scope="agent",
        metric="reward/mean",
        chart="reward",
        read=_share("reward/mean"),
        signal=signals.gain,
        window=2 * signals.PLATEAU_WINDOW,
        raise_at=0.005,
        raise_after=10,
        clear_at=0.02,
        clear_after=5,
        is_low=True,
        sentence="The mean reward of {agent} changed by {value:+.3f} between the last 30 steps and the 30 before.",
        advice="Stop the run if the reward is good enough. Otherwise check entropy, clip shares and the learning rate.",
    ),
    Rule(
        kind="verifier",
        title="Verifier errors",
        help="Share of an agent's own rollouts that the verifier could not score. No mean counts them.",
        scope="agent",
        metric="verifier/unscorable, reward/mean",
        chart="reward",
        read=_of_agent(signals.unscorable_share),
        raise_at=0.1,
        raise_after=3,
        clear_at=0.05,
        clear_after=3,
        sentence="{percent} of the answers of {agent} could not be scored; its reward is the mean of the others.",
        advice="Read some of them in the Rollouts tab. Check the benchmark's reference answers and the log.",
    ),
    Rule(
        kind="engine_mismatch",
        title="Engine differs from trainer",
        help="Mean difference between the log-probabilities of rollout engine and trainer, on one greedy response "
        "after each step's updates. If it is large, the engine lacks the new weights or computes differently.",
        scope="agent",
        metric="engine_logp_difference",
        chart="engine-difference",
        read=_value("engine_logp_difference"),
        raise_at=0.1,
        raise_after=2,
        clear_at=0.05,
        clear_after=3,
        applies=lambda facts: facts.has_engine,
        sentence="The log-probabilities of {agent} in its rollout engine and in the trainer differ by {value:.2f}.",
        advice="Compare with the rollout engine transformers. In bfloat16, try the precision float32. The importance "
        "correction truncate reduces the effect of the difference.",
        remedy=remedies.trainer_as_engine,
        source=f"the check: design of the engines; {OURS}",
    ),
    Rule(
        kind="engine_outlier",
        title="A token differs in the engine",
        help="Largest difference between the log-probabilities of rollout engine and trainer for one token of a step. "
        "The mean over tokens hides it.",
        scope="agent",
        metric="engine_logp_difference/max",
        chart="engine-difference",
        read=_value("engine_logp_difference/max"),
        raise_at=1.0,
        raise_after=2,
        clear_at=0.5,
        clear_after=3,
        applies=lambda facts: facts.has_engine,
        sentence="A token of {agent} has log-probabilities in its rollout engine and in the trainer that are "
        "{value:.2f} nats apart.",
        advice="Compare with the rollout engine transformers. In bfloat16, try the precision float32. The importance "
        "correction truncate reduces the effect of the difference.",
        remedy=remedies.trainer_as_engine,
    ),
)
BY_KIND = {rule.kind: rule for rule in RULES}
