"""The card of a run that failed, was stopped or was interrupted: what happened, likely causes, and ways onward."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from hacrl_web.insight.checkpoints.checkpoints import list_of_checkpoints
from hacrl_web.runs.models import HELD, Run, State
from workers.contract.trainer_log import last_output

LAST_LINES = 20
_AGAIN = re.compile(r"^interrupted (\d+) times, (?:most recently|the last time): ", re.DOTALL)
_SIGNAL = re.compile(r"^the trainer was (?:ended|killed) by (SIG[A-Z0-9]+)\b")
_MEMORY = "lower training.micro_batch_size or the lengths of completions, or train fewer runs at once on this machine"
# What a reason or the trainer's last output contains, and what it usually means.
CAUSES = (
    (r"\bSIGKILL\b", f"Often the machine ran out of memory: {_MEMORY}."),
    (r"out of memory|OutOfMemoryError|MemoryError", f"Memory ran out: {_MEMORY}."),
    (r"No space left on device", "The disk is full: delete checkpoints or archived runs, or set another data folder."),
    (
        r"no sign of work",
        "The trainer hung, or one step takes longer than compute.stall_timeout_s: see its last lines.",
    ),
    (r"\bSIG(SEGV|BUS|ILL|ABRT|FPE)\b", "A native library crashed, often a GPU driver or kernel: see the last lines."),
    (
        r"training questions cannot fill|no training question has",
        "Too few questions are short enough: raise rollout.max_prompt_length, or lower training.train_batch_size.",
    ),
    (r"\b(NaN|not finite|non-finite)\b", "The updates diverged: lower training.learning_rate or raise algorithm.beta."),
    (r"gated|401 Client Error|403 Client Error", "The model needs a Hub token whose account accepted its licence."),
    (
        r"was restarted|process .* is gone|no heartbeat",
        "The machine or its worker went away; the run was not at fault.",
    ),
)


@dataclass(frozen=True)
class Ending:
    """How a run ended or was interrupted. step: the last one completed.  lines: of the trainer's output, the newest.

    checkpoint_step: of the newest sound checkpoint on this host, None without one.  steps_left: from there to the end.
    """

    headline: str
    reason: str
    at: datetime | None
    step: int
    is_over: bool
    checkpoint_step: int | None
    steps_left: int
    cause: str
    lines: str


def ending_of(run: Run) -> Ending | None:
    """The card of this run; None while all is well."""
    if not _needs_card(run):
        return None
    reason, _, tail = run.reason.partition("\n")
    lines = last_output(run.run_dir, LAST_LINES) or tail
    sound = [one.step for one in list_of_checkpoints(run).checkpoints if one.is_newest]
    checkpoint = sound[0] if sound else None
    change = run.status_changes.filter(to_state=run.state).order_by("-pk").first()
    return Ending(
        headline=_headline(run, reason, change.from_state if change else ""),
        reason=_what(reason),
        at=change.at if change else run.finished_at,
        step=run.step,
        is_over=run.is_terminal,
        checkpoint_step=checkpoint,
        steps_left=0 if checkpoint is None else max(0, run.total_steps - checkpoint),
        cause="" if run.state == State.STOPPED else likely_cause(reason, lines),
        lines=lines,
    )


def _needs_card(run: Run) -> bool:
    """Failed, stopped or lost, or back in the queue after its trainer was interrupted."""
    if run.is_evaluation_only or run.state in HELD:
        return False
    if run.state == State.QUEUED and run.interruptions:
        change = run.status_changes.order_by("-pk").first()
        return change is not None and change.from_state in (*HELD, State.LOST)
    return run.state in (State.FAILED, State.STOPPED, State.LOST)


def _headline(run: Run, reason: str, from_state: str) -> str:
    """What happened and at which step, in one sentence. from_state: of the change that ended or interrupted it."""
    has_trained = run.step > run.start_step
    place = f"at step {run.step:,}" if has_trained else "before the first step"
    if from_state == State.STARTING and has_trained:  # the steps are of an earlier attempt
        place = f"while it started again after step {run.step:,}"
    if run.state == State.STOPPED:
        return f"Stopped {place}."
    many = _AGAIN.match(reason)
    rest = reason[many.end() :] if many else reason
    signal = _SIGNAL.match(rest)
    times = f" {many[1]} times" if many else ""
    verb = f"The trainer was killed{times} ({signal[1]})" if signal else f"Interrupted{times}" if many else "Failed"
    if run.state in (State.QUEUED, State.LOST):
        verb = verb if signal else "Interrupted"
    return f"{verb}, most recently {place}." if many else f"{verb} {place}."


def _what(reason: str) -> str:
    """The reason, without what the headline says already."""
    rest = _AGAIN.sub("", reason)
    return "" if _SIGNAL.match(rest) else rest


def likely_cause(reason: str, lines: str) -> str:
    """What the reason usually means; without one there, what the last lines mean. Empty if nothing is known."""
    for text in (reason, lines):
        for pattern, cause in CAUSES:
            if re.search(pattern, text, re.IGNORECASE):
                return cause
    return ""
