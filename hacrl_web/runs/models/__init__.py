"""The tables of runs, as other modules import them."""

from hacrl_web.runs.models.counts import DeletedCount
from hacrl_web.runs.models.events import (
    RECORDED_TABLES,
    AnswerChunk,
    Contribution,
    MetricChunk,
    QuestionChunk,
    RolloutSample,
    RunRowQuerySet,
    TelemetryEvent,
)
from hacrl_web.runs.models.hosts import SILENT_S, Drain, Host
from hacrl_web.runs.models.limits import MORE, GpuUse, Quota, Retention
from hacrl_web.runs.models.run import GENERATED, QUEUE_ORDER, Run, RunQuerySet, StatusChange, Sweep, Worker
from hacrl_web.runs.models.states import HELD, INACTIVE, PRUNED, TERMINAL, TRANSITIONS, USER_STOP, Desire, State
from hacrl_web.runs.models.trials import SearchState, Trial, TrialState
from hacrl_web.runs.models.views import RunView
