"""Optuna's suggestions and prunings, from the stored trials: each question builds the study anew, in memory.

So there is no second store, and a restart changes nothing: the same trials give the same answer. Only the dispatcher
loads this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from random import Random
from typing import Any

import optuna

from hacrl_web.runs.models import Trial, TrialState
from hacrl_web.runs.variants.parameters import Parameter
from hacrl_web.runs.variants.search_settings import SearchSettings

STARTUP_TRIALS = 10  # drawn at random before TPE begins, as is Optuna's default
MEDIAN_TRIALS = 5  # that have completed before the median prunes, as is Optuna's default
HALVING_FACTOR = 2  # at each rung, the better half continues
BEST_SHARE = 0.25  # of the completed trials: importance is what separates them from the others
RESAMPLINGS = 40  # of the trials; the range of an importance leaves out the two lowest and the two highest
OUTSIDE = 2
FAILED = (TrialState.FAILED, TrialState.STOPPED)
STATES = {
    TrialState.RUNNING: optuna.trial.TrialState.RUNNING,
    TrialState.COMPLETED: optuna.trial.TrialState.COMPLETE,
    TrialState.PRUNED: optuna.trial.TrialState.PRUNED,
    **dict.fromkeys(FAILED, optuna.trial.TrialState.FAIL),
}
optuna.logging.set_verbosity(optuna.logging.WARNING)


def suggested_point(settings: SearchSettings, trials: Iterable[Trial], number: int, draw: int = 0) -> dict[str, Any]:
    """The point that TPE suggests for trial `number` after these trials. draw: another number gives another one."""
    seed = int.from_bytes(sha256(f"{settings.seed} {number} {draw}".encode()).digest()[:4], "big")
    sampler = optuna.samplers.TPESampler(
        n_startup_trials=STARTUP_TRIALS, multivariate=False, group=False, constant_liar=True, seed=seed
    )
    study = _study(settings, trials, sampler=sampler)
    params = study.ask(fixed_distributions=_distributions(settings)).params
    return {
        name: params[name] if parameter.choices else parameter.rounded(params[name])
        for name, parameter in settings.parameters.items()
    }


def first_pruned_step(
    settings: SearchSettings, trials: Sequence[Trial], trial: Trial, scores: dict[int, float], eval_interval: int
) -> int | None:
    """The step of the first new evaluation at which the trial is pruned; None while it goes on.

    trials: all of the search, in order, with this one.  scores: the trial's objective by step; those that it does not
    hold yet are judged.  Rungs that it reaches are written into `trial.rungs`.
    """
    for step in sorted(scores):
        trial.scores |= {str(step): scores[step]}
        study = _study(settings, trials, pruner=_pruner(settings.pruner, eval_interval))
        place = [one.number for one in trials].index(trial.number)
        is_pruned = study.pruner.prune(study, study.get_trials(deepcopy=False)[place])
        trial.rungs = dict(study.get_trials(deepcopy=False)[place].system_attrs)
        if is_pruned:
            return step
    return None


def importances(settings: SearchSettings, completed: Sequence[Trial]) -> dict[str, tuple[float, float, float]]:
    """How much each parameter separates the best quarter of completed trials from the others, by PED-ANOVA.

    Returns by name the share, of 1 in all, and its range over resamplings of the trials: nine in ten lie in it.
    """
    distributions = _distributions(settings)
    frozen = [_frozen(trial, distributions) for trial in completed]
    shares = _shares(frozen)
    generator = Random(settings.seed)  # noqa: S311 - repeatable draws, no secret
    again = [_shares(generator.choices(frozen, k=len(frozen))) for _ in range(RESAMPLINGS)]
    result = {}
    for name, share in shares.items():
        values = sorted(one[name] for one in again)[OUTSIDE:-OUTSIDE]
        result[name] = (share, min(values[0], share), max(values[-1], share))
    return result


def _shares(trials: list[Any]) -> dict[str, float]:
    study = optuna.create_study(direction="maximize")
    study.add_trials(trials)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
    return optuna.importance.get_param_importances(study, evaluator=evaluator)


def _pruner(name: str, eval_interval: int) -> optuna.pruners.BasePruner:
    if name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=MEDIAN_TRIALS)
    return optuna.pruners.SuccessiveHalvingPruner(min_resource=eval_interval, reduction_factor=HALVING_FACTOR)


def _study(
    settings: SearchSettings,
    trials: Iterable[Trial],
    sampler: optuna.samplers.BaseSampler | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
) -> optuna.Study:
    """A study in memory that holds these trials."""
    study = optuna.create_study(
        direction="maximize",
        sampler=sampler or optuna.samplers.RandomSampler(),
        pruner=pruner or optuna.pruners.NopPruner(),
    )
    distributions = _distributions(settings)
    study.add_trials([_frozen(trial, distributions) for trial in trials])
    return study


def _frozen(trial: Trial, distributions: dict[str, optuna.distributions.BaseDistribution]) -> Any:
    has_value = trial.state in (TrialState.COMPLETED, TrialState.PRUNED)
    return optuna.trial.create_trial(
        state=STATES[TrialState(trial.state)],
        value=trial.value if has_value else None,
        params=trial.parameters,
        distributions=distributions,
        system_attrs=dict(trial.rungs),
        intermediate_values={int(step): score for step, score in trial.scores.items()},
    )


def _distributions(settings: SearchSettings) -> dict[str, optuna.distributions.BaseDistribution]:
    return {name: _distribution(parameter) for name, parameter in settings.parameters.items()}


def _distribution(parameter: Parameter) -> optuna.distributions.BaseDistribution:
    if parameter.choices:
        return optuna.distributions.CategoricalDistribution(parameter.choices)
    assert parameter.low is not None
    assert parameter.high is not None
    if parameter.is_whole:
        return optuna.distributions.IntDistribution(int(parameter.low), int(parameter.high), log=parameter.is_log)
    return optuna.distributions.FloatDistribution(parameter.low, parameter.high, log=parameter.is_log)
