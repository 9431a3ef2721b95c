"""The further training sets of a launch request: benchmarks with weights, and the settings that they become.

A request lists them in `training.benchmarks`: ids, or `{"benchmark": id, "weight": 2}`. A run's settings hold each
benchmark in full; its `train_path` leads back to the row. Where the row is deleted, the request of a run has
`{"benchmark": null, "name": "words", "weight": 2}`, which is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hacrl_web.registry.models import Benchmark
from hacrl_web.web.errors import FieldError
from workers.contract.spec.run import RunSpec

FIELD = "training.benchmarks"
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
        errors.append(FieldError("too_long", f"At most {MAX_SETS} further training sets.", FIELD))
    sets: list[tuple[Any, Any]] = []
    for entry in entries[:MAX_SETS]:
        values = dict(entry) if isinstance(entry, Mapping) else {"benchmark": entry}
        if values.get("benchmark") is None and isinstance(name := values.pop("name", None), str):
            message = f"The training set “{name[:120]}” was deleted: choose another benchmark, or remove the entry."
            errors.append(FieldError("benchmark_deleted", message, FIELD))
            continue
        if unknown := [key for key in values if key not in _KEYS]:
            message = f"A training set has a benchmark and a weight, no {str(unknown[0])[:80]!r}."
            errors.append(FieldError("unknown_key", message, FIELD))
        sets.append((values.get("benchmark"), values.get("weight", 1)))
    return sets


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


def paths_of(spec: RunSpec) -> list[str]:
    return [one.train_path for one in spec.training.benchmarks]


def deleted_sets(spec: Mapping[str, Any]) -> list[str]:
    """Names of the further training sets of a stored run whose benchmark is gone."""
    names = {one["train_path"]: one["benchmark"] for one in spec.get("training", {}).get("benchmarks") or ()}
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
            errors.append(FieldError("same_questions", message, FIELD))
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
        errors.append(FieldError("too_few_questions", message, FIELD if place else "training.benchmark_weight"))
    return errors
