"""The dispatcher's part of a search: it records how trials ended, prunes some, and starts the next ones.

Every step is complete in itself and may be repeated: a trial and its run are written in one transaction under a lock of
the sweep, so that a kill loses both or none, and of two dispatchers one finds nothing left to do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from hacrl_web.accounts.models import Role
from hacrl_web.accounts.roles.projects import require
from hacrl_web.runs.launch.create import create_in, hold
from hacrl_web.runs.launch.plan import plan_trial
from hacrl_web.runs.models import PRUNED, Run, SearchState, State, Sweep, Trial, TrialState
from hacrl_web.runs.models.quotas import QuotaReached
from hacrl_web.runs.telemetry.scores import Scores, accuracies
from hacrl_web.runs.variants.importance import NOTHING_COUNTED, importance_of
from hacrl_web.runs.variants.points import Point, new_point, random_point
from hacrl_web.runs.variants.search_settings import MAX_AT_ONCE, SearchSettings, stored_search
from hacrl_web.web.errors import FieldErrors

MAX_FAILED = 5  # trials that fail one after the other end the search: its settings do not train
ENDINGS = {State.FAILED: TrialState.FAILED, State.STOPPED: TrialState.STOPPED, State.COMPLETED: TrialState.COMPLETED}
log = logging.getLogger(__name__)


class SearchAdvancer:
    """`tick` once a second. It remembers only what it need not read twice."""

    def __init__(self) -> None:
        self._judged: dict[UUID, tuple[int, int]] = {}  # attempt and last event of each run under way

    def tick(self) -> None:
        under_way = Trial.objects.filter(sweep=OuterRef("pk"), state=TrialState.RUNNING)
        uncounted = Q(search_state__gt="", importance__isnull=True)
        sweeps = Sweep.objects.filter(Q(search_state=SearchState.SEARCHING) | Exists(under_way) | uncounted)
        for sweep in sweeps.select_related("owner", "project").order_by("pk"):
            try:
                self.advance(sweep)
            except (OperationalError, InterfaceError):  # the database is unreachable for all of them
                raise
            except Exception:
                log.exception("the search %s could not be advanced; trying again", sweep.pk)

    def advance(self, sweep: Sweep) -> None:
        try:
            settings = stored_search(sweep.request)
        except ValueError as refused:
            return end_unreadable(sweep, f"its settings are refused: {refused}")
        if settings is None:
            return end_unreadable(sweep, "it has no settings")
        self.judge(sweep, settings)
        record_ends(sweep, settings)
        store_importance(sweep, settings)
        if sweep.search_state == SearchState.SEARCHING:
            start_trials(sweep, settings)
        return None

    def judge(self, sweep: Sweep, settings: SearchSettings) -> None:
        """Stop the runs of trials that the pruner ends, at the first of their evaluations where it does."""
        if settings.pruner == "none":
            return
        for trial in sweep.trials.filter(state=TrialState.RUNNING, run__isnull=False).select_related("run"):
            if trial.run.is_terminal:  # record_ends stores it
                continue
            if trial.pruned_step is None:
                self._judge(sweep, settings, trial)
            if trial.pruned_step is not None and trial.run.can_stop:
                trial.run.request_stop(trial.reason)

    def _judge(self, sweep: Sweep, settings: SearchSettings, trial: Trial) -> None:
        run = trial.run
        version = (run.attempt, run.last_seq)
        if self._judged.get(run.pk) == version:
            return
        scores = objective_by_step(run, settings.agent, accuracies(run))
        # At its last step a trial ends by itself.
        steps = range(1, run.total_steps)
        new = {step: score for step, score in scores.items() if step in steps and str(step) not in trial.scores}
        if new:
            from hacrl_web.runs.variants.optuna_study import first_pruned_step  # it takes a second to load

            trials = [trial if one.pk == trial.pk else one for one in sweep.trials.all()]
            interval = run.spec["evaluation"]["eval_interval"]
            trial.pruned_step = first_pruned_step(settings, trials, trial, new, interval)
            if trial.pruned_step is not None:
                trial.reason = pruning_reason(settings, trial)
            rows = Trial.objects.filter(pk=trial.pk, run=run, state=TrialState.RUNNING, pruned_step=None)
            columns = ("scores", "rungs", "pruned_step", "reason")
            if not rows.update(**{name: getattr(trial, name) for name in columns}):
                trial.refresh_from_db()
        self._judged[run.pk] = version


def pruning_reason(settings: SearchSettings, trial: Trial) -> str:
    """The reason of a pruning: `pruned at step 20: held-out accuracy 0.120 is below the median of earlier trials`."""
    word = trial.run.score_word if trial.run else "score"
    score = trial.scores[str(trial.pruned_step)]
    rule = {
        "median": "is below the median of earlier trials at that step",
        "halving": "is not in the better half of the trials at that step",
    }[settings.pruner]
    return f"{PRUNED} {trial.pruned_step}: held-out {word} {score:.3f} {rule}"


def objective_by_step(run: Run, agent: str, scores: Scores) -> dict[int, float]:
    """The objective at each step that has it: of one agent, or the mean where all agents were evaluated."""
    if agent:
        return {step: by_agent[agent] for step, by_agent in sorted(scores.items()) if agent in by_agent}
    num_agents = len(run.agent_names)
    return {step: sum(one.values()) / num_agents for step, one in sorted(scores.items()) if len(one) == num_agents}


def record_ends(sweep: Sweep, settings: SearchSettings) -> None:
    """Store how trials ended whose runs have ended."""
    for trial in sweep.trials.filter(state=TrialState.RUNNING).select_related("run"):
        if trial.run is None:
            _record(trial, TrialState.FAILED, reason="its run was deleted")
        elif trial.run.is_terminal:
            _record_run(settings, trial, trial.run)


def _record_run(settings: SearchSettings, trial: Trial, run: Run) -> None:
    scores = objective_by_step(run, settings.agent, accuracies(run))
    after_start = {step: score for step, score in scores.items() if step > 0}
    state, reason = ENDINGS[State(run.state)], run.reason
    value = None
    if run.state == State.COMPLETED and not after_start:
        state, reason = TrialState.FAILED, "it has no evaluation after its training"
    elif run.state == State.COMPLETED:
        value, reason = after_start[max(after_start)], ""
    elif run.state == State.STOPPED and trial.pruned_step is not None:
        state, value, reason = TrialState.PRUNED, trial.scores[str(trial.pruned_step)], trial.reason
    # The pruner compares later trials with all evaluations of this one.
    all_scores = trial.scores | {str(step): score for step, score in after_start.items()}
    _record(trial, state, value=value, reason=reason, scores=all_scores)


def _record(trial: Trial, state: str, **columns: object) -> None:
    """Record the outcome of a trial, once, and only while the trial has the run that was read."""
    row = Trial.objects.filter(pk=trial.pk, run=trial.run_id, state=TrialState.RUNNING)
    row.update(state=state, ended_at=timezone.now(), **columns)


def store_importance(sweep: Sweep, settings: SearchSettings) -> None:
    """Compute the importance of the settings again if more trials have completed."""
    completed = list(sweep.trials.filter(state=TrialState.COMPLETED))
    if sweep.importance is None or sweep.importance["trials"] != len(completed):
        sweep.importance = importance_of(settings, completed)
        Sweep.objects.filter(pk=sweep.pk).update(importance=sweep.importance)


def start_trials(sweep: Sweep, settings: SearchSettings) -> None:
    """Start trials until as many run as the search allows; end the search after the last."""
    while True:
        trials = list(sweep.trials.all())
        num_open = sum(trial.state == TrialState.RUNNING for trial in trials)
        if len(trials) >= settings.trials:
            if num_open == 0:
                end_search(sweep, SearchState.FINISHED, "")
            return None
        if is_hopeless(trials):
            reason = f"{MAX_FAILED} trials failed one after the other, most recently: {trials[-1].reason}"
            return end_search(sweep, SearchState.STOPPED, reason)
        if not has_place(settings, sweep):
            return None
        # Outside the transaction: Optuna's answer may take a second, in which nobody else could write.
        point = next_point(settings, trials)
        if not start_trial(sweep, settings, len(trials), point):
            return None


def has_place(settings: SearchSettings, sweep: Sweep) -> bool:
    """Whether a further trial may start. Without a number of the user's: while no trial waits for a worker."""
    under_way = sweep.trials.filter(state=TrialState.RUNNING)
    if under_way.count() >= (settings.at_once or MAX_AT_ONCE):
        return False
    return settings.at_once is not None or not under_way.filter(run__state=State.QUEUED).exists()


def is_hopeless(trials: Sequence[Trial]) -> bool:
    """True if the newest trials all failed."""
    newest = trials[-MAX_FAILED:]
    return len(newest) == MAX_FAILED and all(trial.state == TrialState.FAILED for trial in newest)


def next_point(settings: SearchSettings, trials: Sequence[Trial]) -> Point:
    """The point of the trial after these: the same for the same trials, whichever process asks."""
    earlier = [trial.parameters for trial in trials]
    number = len(trials)
    if settings.method == "random":
        return new_point(earlier, partial(random_point, settings, number))
    from hacrl_web.runs.variants.optuna_study import suggested_point  # it takes a second to load

    return new_point(earlier, partial(suggested_point, settings, trials, number))


def start_trial(sweep: Sweep, settings: SearchSettings, number: int, point: Point) -> bool:
    """Write a trial and its run, both or none; False if another process was first or the search has ended."""
    try:
        with transaction.atomic():
            locked = Sweep.objects.select_for_update(of=("self",)).select_related("owner", "project").get(pk=sweep.pk)
            is_first = locked.trials.count() == number
            if locked.search_state != SearchState.SEARCHING or not is_first or not has_place(settings, locked):
                return False
            _write_trial(locked, number, point)
    except QuotaReached:  # tried again with the next tick
        return False
    except FieldErrors as refused:
        if refused.status in (403, 409):  # no further trial is possible either
            end_search(sweep, SearchState.STOPPED, refused.text)
            return False
        return _write_refused(sweep, number, point, refused.text)
    return True


def _write_trial(sweep: Sweep, number: int, point: Point) -> None:
    """Write a trial in the caller's transaction. Error: FieldErrors, of status 403 or 409 if no trial is possible."""
    if not sweep.owner.is_active:
        raise FieldErrors.single("inactive", f"{sweep.owner} may no longer launch runs.", status=403)
    require(sweep.owner, sweep.project, Role.MEMBER)
    planned, rows = plan_trial(sweep.owner, sweep.request, number, point)
    hold(rows)
    run = create_in(sweep.owner, sweep, planned.label, planned.spec, *rows.pair, planned.changes)
    Trial.objects.create(sweep=sweep, number=number, run=run, parameters=dict(point))


def _write_refused(sweep: Sweep, number: int, point: Mapping[str, object], reason: str) -> bool:
    """Write a trial whose settings are refused together: it fails without a run, and the search goes on."""
    with transaction.atomic():
        locked = Sweep.objects.select_for_update(of=("self",)).get(pk=sweep.pk)
        if locked.trials.count() != number:
            return False
        state = {"state": TrialState.FAILED, "reason": f"refused: {reason}", "ended_at": timezone.now()}
        Trial.objects.create(sweep=locked, number=number, parameters=dict(point), **state)
    return True


def end_unreadable(sweep: Sweep, reason: str) -> None:
    """End a search whose settings cannot be read: nothing of it can be counted either."""
    end_search(sweep, SearchState.STOPPED, reason)
    Sweep.objects.filter(pk=sweep.pk, importance__isnull=True).update(importance=NOTHING_COUNTED)


def end_search(sweep: Sweep, state: str, reason: str) -> None:
    """End a search: it gets no further trials; those under way continue."""
    searching = Sweep.objects.filter(pk=sweep.pk, search_state__in=[SearchState.SEARCHING, SearchState.PAUSED])
    searching.update(search_state=state, search_reason=reason)
