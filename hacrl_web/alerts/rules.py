"""The table of alerts: what each looks at, its limits with their source, and what to do.

An alert is raised when its number is over `raise_at` in `raise_after` measured steps in a row, and cleared when it is
under `clear_at` in `clear_after` of them. Between the two limits nothing changes, so it does not flap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hacrl_web.alerts import signals
from hacrl_web.alerts.signals import Facts, Series, StepMetrics, Value

Read = Callable[[StepMetrics, Facts, str, str], Value | None]
OURS = "ours"


@dataclass(frozen=True)
class Rule:
    """One kind of alert. `is_low`: the number is bad when small, so over and under change places."""

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
    sentence: str  # with {value}, {percent}, {agent}, {source}, {other}
    advice: str
    source: str
    help: str
    signal: Callable[[Series, Facts], float | None] = signals.latest
    window: int = 1  # points that one signal needs
    is_low: bool = False
    applies: Callable[[Facts], bool] = lambda facts: True

    @property
    def keep(self) -> int:
        """Points of a series that decide everything."""
        return self.window + max(self.raise_after, self.clear_after)

    def is_over(self, number: float | None) -> bool:
        if number is None:
            return False
        return number <= self.raise_at if self.is_low else number >= self.raise_at

    def is_under(self, number: float | None) -> bool:
        if number is None:
            return False
        return number >= self.clear_at if self.is_low else number <= self.clear_at

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


def _shares(facts: Facts) -> bool:
    return facts.shares


RULES = (
    Rule(
        kind="cross_clip",
        title="Delta trap",
        help="Share of a source's encouraging rollouts (positive advantage) below the learner's band. There the "
        "gradient is zero: a strategy that the learner rarely uses cannot enter.",
        scope="pair",
        metric="clip_lower_frac/positive",
        chart="lower-positive",
        read=_share("clip_lower_frac/positive"),
        raise_at=0.8,
        raise_after=3,
        clear_at=0.6,
        clear_after=3,
        applies=lambda facts: facts.shares and facts.can_trap,
        sentence="{percent} of the encouraging rollouts of {source} lie below the band of {agent} and teach nothing.",
        advice="Raise algorithm.delta, or set algorithm.cross_clip_gradient to sided.",
        source="docs/LOG.md, the delta trap",
    ),
    Rule(
        kind="omega_clamped",
        title="Omega at its clamp",
        help="The capability ratio of a pair is outside ratio_min to ratio_max, or both agents solve nothing.",
        scope="pair",
        metric="omega_clamped",
        chart="omega",
        read=_value("omega_clamped"),
        raise_at=1.0,
        raise_after=10,
        clear_at=0.0,
        clear_after=5,
        applies=lambda facts: facts.uses_omega,
        sentence="The capability ratio that weighs rollouts of {source} for {agent} is at its clamp.",
        advice="Look at the rewards of both: one of them solves next to nothing. Take an easier benchmark or a closer "
        "pair, or widen algorithm.ratio_min and ratio_max.",
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
        applies=_shares,
        sentence="Only {percent} of the rollouts that teach {agent} come from its peers: this is GSPO in all but name.",
        advice="Look for dropped rollouts (overflow). With hacpo, raise algorithm.delta or set cross_clip_gradient to "
        "sided; naive sharing clips as GSPO does, so a rollout of another model is seldom inside.",
        source=OURS,
    ),
    Rule(
        kind="zero_variance",
        title="No variance in rewards",
        help="Share of prompts on which all rewards are equal (of all agents where rollouts are shared): their "
        "advantages are zero.",
        scope="agent",
        metric="frac_reward_zero_std_joint, frac_reward_zero_std",
        chart="reward",
        read=_of_agent(signals.uniform_share),
        raise_at=0.9,
        raise_after=5,
        clear_at=0.8,
        clear_after=5,
        sentence="On {percent} of the prompts all rewards are equal, so {agent} learns from the rest alone.",
        advice="The questions are too easy or too hard: change the benchmark, or raise rollout.num_generations or the "
        "temperature.",
        source=f"the quantity: GRPO's group advantage; {OURS}",
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
        sentence="The entropy of {agent} has fallen to {percent} of its start: it writes nearly the same each time.",
        advice="Lower the learning rate, raise the temperature or algorithm.beta, or take an earlier checkpoint.",
        source=OURS,
    ),
    Rule(
        kind="kl_jump",
        title="KL jump",
        help="KL to the starting model as a multiple of its median over the 10 steps before (at least 0.01).",
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
        sentence="The KL of {agent} to its starting model is {value:.1f} times what it was.",
        advice="Look at gradient norm and length at that step; lower the learning rate or raise algorithm.beta.",
        source=OURS,
    ),
    Rule(
        kind="length_blow_up",
        title="Length blow-up",
        help="Mean completion length over its limit: twice the start (median of the first 5 steps), or 0.9 of "
        "max_completion_length where that is less.",
        scope="agent",
        metric="completions/mean_length",
        chart="length",
        read=_value("completions/mean_length"),
        signal=signals.length_over_limit,
        raise_at=1.0,
        raise_after=5,
        clear_at=0.8,
        clear_after=5,
        sentence="The completions of {agent} are at {value:.2f} of the limit (twice the start, or near the cap).",
        advice="Read the rollouts: does it repeat itself? Raise max_completion_length if the answers are sound.",
        source=OURS,
    ),
    Rule(
        kind="split",
        title="One falls while another rises",
        help="The smaller of an agent's fall and its best peer's rise in mean reward, 10 steps against the 10 before.",
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
        applies=_shares,
        sentence="The reward of {agent} falls while that of {other} rises, both by at least {value:.2f}.",
        advice="Look at who teaches whom: lower algorithm.cross_weight, or the learning rate of the one that falls.",
        source=OURS,
    ),
    Rule(
        kind="no_progress",
        title="No progress",
        help="Mean reward of the last 30 steps less that of the 30 before; from 0.9 on the task counts as solved.",
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
        sentence="The reward of {agent} changed by {value:+.3f} from one thirty steps to the next.",
        advice="Stop here if it is good enough; else look at entropy, clip shares and the learning rate.",
        source=OURS,
    ),
    Rule(
        kind="verifier",
        title="Verifier errors",
        help="Share of an agent's own rollouts whose answer could not be scored. They count in no mean.",
        scope="agent",
        metric="verifier/unscorable, reward/mean",
        chart="reward",
        read=_of_agent(signals.unscorable_share),
        raise_at=0.1,
        raise_after=3,
        clear_at=0.05,
        clear_after=3,
        sentence="{percent} of the answers of {agent} could not be scored, so its reward is of the rest alone.",
        advice="Read some of them in the Rollouts tab; check the benchmark's reference answers and the log.",
        source=OURS,
    ),
    Rule(
        kind="engine_mismatch",
        title="Engine differs from trainer",
        help="Mean difference of log-probabilities, engine against trainer, on one greedy response after each step's "
        "updates: the engine has not got the new weights, or computes otherwise.",
        scope="agent",
        metric="engine_logp_difference",
        chart="engine-difference",
        read=_value("engine_logp_difference"),
        raise_at=0.1,
        raise_after=2,
        clear_at=0.05,
        clear_after=3,
        applies=lambda facts: facts.has_engine,
        sentence="Log-probabilities of {agent}'s rollout engine are {value:.2f} away from its trainer's.",
        advice="Set rollout.engine to transformers to compare; in bfloat16 try compute.dtype float32; "
        "rollout.importance_correction truncate weakens what the difference does.",
        source=f"the check: design of the engines; {OURS}",
    ),
)
BY_KIND = {rule.kind: rule for rule in RULES}
