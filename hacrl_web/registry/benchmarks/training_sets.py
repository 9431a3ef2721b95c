"""The further benchmarks of a launch request, to train and to evaluate on, and the settings that they become.

A request lists training sets in `training.benchmarks`: ids, or `{"benchmark": id, "weight": 2}`; and ids in
`evaluation.benchmarks`. A run's settings hold each benchmark in full; its `train_path` leads back to the row. Where the
row is deleted, the request of a run has `{"benchmark": null, "name": "words"}`, which is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hacrl_web.registry.models import Benchmark
from hacrl_web.web.errors import FieldError
from workers.contract.spec.run import RunSpec

TRAINING_SETS = "training.benchmarks"
EVALUATIONS = "evaluation.benchmarks"
MAX_SETS = 20
_KEYS = {"benchmark", "weight"}


@dataclass(frozen=True)
class ChosenSet:
    """A further training set of a request. weight: as sent, which RunSpec checks."""

    benchmark: Benchmark
    weight: Any = 1


def listed_sets(request: Mapping[str, Any], errors: list[FieldError]) -> list[tuple[Any, Any]] | None:
    """(id, weight) of each entry; None where the request has no such list. Problems are added to `errors`."""
    training = request.get("training")
    entries = training.get("benchmarks") if isinstance(training, Mapping) else None
    if not isinstance(entries, list | tuple):  # RunSpec refuses anything else
        return None
    if len(entries) > MAX_SETS:
        errors.append(FieldError("too_long", f"At most {MAX_SETS} further training sets.", TRAINING_SETS))
    sets: list[tuple[Any, Any]] = []
    for entry in entries[:MAX_SETS]:
        values = dict(entry) if isinstance(entry, Mapping) else {"benchmark": entry}
        if is_deleted_entry(values):
            errors.append(_deleted_entry("training set", values, TRAINING_SETS))
            continue
        if unknown := [key for key in values if key not in _KEYS]:
            message = f"A training set has a benchmark and a weight, no {str(unknown[0])[:80]!r}."
            errors.append(FieldError("unknown_key", message, TRAINING_SETS))
        sets.append((values.get("benchmark"), values.get("weight", 1)))
    return sets


def listed_evaluations(request: Mapping[str, Any], errors: list[FieldError]) -> list[Any] | None:
    """The ids of the benchmarks to evaluate on; None without such a list. Deleted ones are errors in `errors`."""
    evaluation = request.get("evaluation")
    entries = evaluation.get("benchmarks") if isinstance(evaluation, Mapping) else None
    if not isinstance(entries, list | tuple):  # RunSpec refuses anything else
        return None
    deleted = [entry for entry in entries if is_deleted_entry(entry)]
    errors += [_deleted_entry("evaluation benchmark", entry, EVALUATIONS) for entry in deleted[:MAX_SETS]]
    return [entry for entry in entries if not is_deleted_entry(entry)]


def is_deleted_entry(entry: Any) -> bool:
    """Whether an entry of a request is a benchmark without an id: it was deleted."""
    return isinstance(entry, Mapping) and entry.get("benchmark") is None and isinstance(entry.get("name"), str)


def _deleted_entry(kind: str, entry: Mapping[str, Any], field: str) -> FieldError:
    message = f"The {kind} “{entry['name'][:120]}” was deleted: choose another benchmark, or remove the entry."
    return FieldError("benchmark_deleted", message, field)


def with_training_sets(section: Any, sets: Sequence[ChosenSet] | None, data: Iterable[Mapping[str, Any]]) -> Any:
    """The section `training` with the settings of its sets. data: of each, as DataSpec reads it."""
    if sets is None:
        return section
    return {**section, "benchmarks": [{**own, "weight": one.weight} for own, one in zip(data, sets, strict=True)]}


def as_requested(sets: Iterable[Mapping[str, Any]], rows: Iterable[Benchmark]) -> list[dict[str, Any]]:
    """The further training sets of a run's settings as a request has them.

    rows: those that exist. A set without a row has the id None, and its name: a request with it is refused.
    """
    pks = {row.train_path: row.pk for row in rows}
    return [
        {
            "benchmark": pks.get(one["train_path"]),
            **({} if one["train_path"] in pks else {"name": one["benchmark"]}),
            "weight": one.get("weight", 1.0),
        }
        for one in sets
    ]


def evaluations_as_requested(data: Iterable[Mapping[str, Any]], rows: Iterable[Benchmark]) -> list[Any]:
    """The evaluation benchmarks of a run's settings as a request has them: ids.

    rows: those that exist. One without a row is an object with its name: a request with it is refused.
    """
    pks = {row.train_path: row.pk for row in rows}
    return [pks.get(one["train_path"]) or {"benchmark": None, "name": one["benchmark"]} for one in data]


def paths_of(spec: RunSpec) -> list[str]:
    """train_path of every benchmark but the run's own."""
    return [one.train_path for one in (*spec.training.benchmarks, *spec.evaluation.benchmarks)]


def deleted_benchmarks(spec: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(field, kind, name) of each further benchmark of a stored run that is gone; kind as in a sentence."""
    sections = (("training", TRAINING_SETS, "training set"), ("evaluation", EVALUATIONS, "evaluation benchmark"))
    return [
        (field, kind, name)
        for section, field, kind in sections
        for name in _without_row(spec.get(section, {}).get("benchmarks") or ())
    ]


def _without_row(data: Iterable[Mapping[str, Any]]) -> list[str]:
    names = {one["train_path"]: one["benchmark"] for one in data}
    rows = Benchmark.objects.filter(train_path__in=names) if names else Benchmark.objects.none()
    there = set(rows.values_list("train_path", flat=True))
    return [name for path, name in names.items() if path not in there]


def same_questions(spec: RunSpec, benchmarks: Sequence[Benchmark]) -> list[FieldError]:
    """Errors for training sets of which no question is left: each question is trained on in its first set.

    benchmarks: of all training sets, the run's own first.
    """
    first: dict[str, Benchmark] = {}
    errors = []
    for row in benchmarks if not spec.is_evaluation_only else ():
        other = first.setdefault(row.questions_sha or row.train_path, row)
        if row.questions_sha and other is not row:
            message = f"“{row.name}” has the same questions as “{other.name}”, and each is trained on once: remove one."
            errors.append(FieldError("same_questions", message, TRAINING_SETS))
    return errors


def too_few_questions(spec: RunSpec, benchmarks: Sequence[Benchmark]) -> list[FieldError]:
    """benchmarks: of all training sets, the run's own first."""
    if spec.is_evaluation_only:
        return []
    batch_size, errors = spec.training.train_batch_size, []
    for place, (benchmark, needed) in enumerate(zip(benchmarks, spec.prompts_of_sets, strict=True)):
        if needed <= benchmark.num_train:
            continue
        if len(benchmarks) == 1:
            message = f"The benchmark has {benchmark.num_train} training questions, too few for a batch of {needed}."
            return [FieldError("too_few_questions", message, "training.train_batch_size")]
        message = (
            f"{benchmark.name} has {benchmark.num_train} training questions, and by its weight a batch of {batch_size} "
            f"takes {needed} of them: lower its weight or train_batch_size."
        )
        errors.append(FieldError("too_few_questions", message, TRAINING_SETS if place else "training.benchmark_weight"))
    return errors
