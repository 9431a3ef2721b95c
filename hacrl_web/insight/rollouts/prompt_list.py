"""The prompts of the Rollouts tab: those with a rollout that the filter finds, by how much they taught.

Like every sort it covers the newest whole steps that have at most a limit of rollouts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F, Max, Q, QuerySet, Sum
from django.db.models.functions import Abs, Substr

from hacrl_web.insight.recorded_steps import segments
from hacrl_web.insight.rescued_prompts import OF_STEP, TAUGHT
from hacrl_web.insight.rollouts.filter import PageCursor, RolloutFilter
from hacrl_web.insight.rollouts.search import TEXTS_SORTED, matching_rows, newest_rows, on_rescued_prompts, sort_value
from hacrl_web.runs.models import Run
from hacrl_web.web.visible import visible
from workers.contract.advantages import REWARD_MAX

PAGE_SIZE = 25
ROWS_READ = 8_000
MAX_QUESTION = 160  # characters in the list
MAX_DOTS = 16  # of an agent
Key = tuple[int, str]  # step and prompt


@dataclass(frozen=True)
class AgentDots:
    """An agent's answers to a prompt, as `correct`, `incorrect` or `unscorable` in the order of samples."""

    agent: str
    position: int
    verdicts: list[str]

    @property
    def num_correct(self) -> int:
        return self.verdicts.count("correct")

    @property
    def dots(self) -> list[str]:
        return self.verdicts[:MAX_DOTS]

    @property
    def num_more(self) -> int:
        return max(0, len(self.verdicts) - MAX_DOTS)


@dataclass
class PromptLine:
    """A prompt of a step. value: of the sort.  seq: the contribution that taught most, or the first rollout."""

    step: int
    prompt_id: str
    weight: float
    value: float | None
    seq: int = 0
    question: str = ""
    agents: list[AgentDots] = field(default_factory=list)
    share: float = 0.0  # of the largest weight in the list

    @property
    def key(self) -> Key:
        return self.step, self.prompt_id


@dataclass
class PromptPage:
    """Prompts by the sort, the largest first. total: of all pages.  from_step: the first step, if others are before."""

    lines: list[PromptLine] = field(default_factory=list)
    total: int = 0
    begin: int = 0
    after: PageCursor | None = None
    before: PageCursor | None = None
    from_step: int | None = None


def list_prompts(run: Run, rollout_filter: RolloutFilter) -> PromptPage:
    """A page of prompts; without a sort by weight."""
    rows = run.rollouts.all()
    parts = segments(rows, *(rollout_filter.steps or (0, None)))
    if not parts:
        return PromptPage()
    covered, first_step = newest_rows(rows, parts, TEXTS_SORTED if rollout_filter.text else ROWS_READ)
    lines = _lines(run, rollout_filter, covered, _matches(run, rollout_filter, covered))
    begin = rollout_filter.begin(PAGE_SIZE)
    end = begin + PAGE_SIZE
    page = PromptPage(lines[begin:end], len(lines), begin)
    page.after = PageCursor(0, end) if end < len(lines) else None
    page.before = PageCursor(0, begin) if begin else None
    page.from_step = first_step if first_step > parts[0].first else None
    _complete(run, rollout_filter, covered, page.lines)
    return page


def _matches(run: Run, rollout_filter: RolloutFilter, covered: Q) -> set[Key]:
    """The prompts with a rollout that the filter finds."""
    unsorted = rollout_filter.model_copy(update={"sort": ""})
    rows: QuerySet[Any] = run.rollouts.all()
    if unsorted.is_of_learner:
        parts = segments(run.contributions.all(), *(rollout_filter.steps or (0, None)))
        rows = run.contributions.filter(OF_STEP, on_rescued_prompts(run, parts, rollout_filter))
    matches = matching_rows(run, rows.filter(covered), unsorted)
    return set(matches.order_by().values_list("step", "prompt_id").distinct())


def _taught(run: Run, rollout_filter: RolloutFilter, covered: Q) -> QuerySet[Any]:
    """The contributions of these steps, of the filter's learner and source if it names them."""
    pair = {"agent": rollout_filter.learner, "source": rollout_filter.agent}
    rows = run.contributions.filter(OF_STEP, covered, **{name: agent for name, agent in pair.items() if agent})
    return rows.exclude(agent=F("source")) if rollout_filter.shared else rows


def _lines(run: Run, rollout_filter: RolloutFilter, covered: Q, keys: set[Key]) -> list[PromptLine]:
    """The prompts in order, without what only a page needs."""
    taught = _taught(run, rollout_filter, covered).order_by().values_list("step", "prompt_id")
    weights = {(step, prompt): weight or 0.0 for step, prompt, weight in taught.annotate(n=Sum(Abs("weight")))}
    values: dict[Key, float | None] = dict(weights)
    if rollout_filter.sort == "surprise":
        largest = taught.annotate(n=Max(sort_value("surprise")))
        values = {(step, prompt): value for step, prompt, value in largest}
    lines = [PromptLine(*key, weights.get(key, 0.0), values.get(key)) for key in keys]
    largest_weight = max((line.weight for line in lines), default=0.0) or 1.0
    for line in lines:
        line.share = line.weight / largest_weight
    return sorted(lines, key=lambda line: (1.0 if line.value is None else -line.value, -line.step, line.prompt_id))


def _complete(run: Run, rollout_filter: RolloutFilter, covered: Q, lines: list[PromptLine]) -> None:
    """Gives the lines of a page their questions, their dots, and the rollout that each opens."""
    of_page = Q(step__in={line.step for line in lines}, prompt_id__in={line.prompt_id for line in lines})
    verdicts: dict[Key, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    first_rollouts: dict[Key, int] = {}
    rows = run.rollouts.filter(covered, of_page).order_by("sample", "seq")
    for seq, step, prompt, agent, reward in rows.values_list("seq", "step", "prompt_id", "agent", "reward"):
        first_rollouts.setdefault((step, prompt), seq)
        verdicts[step, prompt][agent].append(_verdict(reward))
    seqs = [first_rollouts[line.key] for line in lines]
    prompts = run.rollouts.filter(seq__in=seqs).values_list("seq", Substr("prompt", 1, MAX_QUESTION))
    questions = dict(prompts)
    best = _best(_taught(run, rollout_filter, covered).filter(of_page))
    for line in lines:
        of_prompt, first_seq = verdicts[line.key], first_rollouts[line.key]
        line.question = visible(questions.get(first_seq, ""))
        agents = [(name, place) for place, name in enumerate(run.agent_names) if name in of_prompt]
        line.agents = [AgentDots(name, place, of_prompt[name]) for name, place in agents]
        line.seq = best.get(line.key, first_seq)


def _verdict(reward: float | None) -> str:
    if reward is None:
        return "unscorable"
    return "correct" if reward >= REWARD_MAX else "partial" if reward > 0 else "incorrect"


def _best(taught: QuerySet[Any]) -> dict[Key, int]:
    """The contribution with the largest |weight| of each prompt, a shared one before own ones."""
    best: dict[Key, tuple[bool, float, int]] = {}
    names = ("seq", "step", "prompt_id", "agent", "source", "weight")
    for seq, step, prompt, agent, source, weight in taught.filter(TAUGHT).order_by().values_list(*names):
        one = (agent != source, abs(weight), -seq)
        best[step, prompt] = max(best.get((step, prompt), one), one)
    return {key: -seq for key, (_, _, seq) in best.items()}
