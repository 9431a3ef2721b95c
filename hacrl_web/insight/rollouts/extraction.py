"""What strict and flexible extraction read in the answers that runs on a benchmark sampled.

Counted in a child process: the first answers of the newest runs, which show what the models write untrained.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, Q
from typing_extensions import TypedDict

from hacrl_web.registry.children import EXTRACTION_SHARES
from hacrl_web.registry.models import Benchmark
from hacrl_web.runs.models import RolloutSample, Run
from hacrl_web.web.errors import FieldErrors
from workers.contract.verifier_kinds import FLEXIBLE_KINDS

NUM_RUNS = 3
ANSWERS_OF_A_RUN = 100
MAX_CHARACTERS = 20_000  # of an answer's end


class ReadAnswers(TypedDict):
    """read: an answer was found; correct: and it is correct."""

    read: int
    correct: int


class ExtractionsAnswer(TypedDict):
    num_runs: int
    num_answers: int
    strict: ReadAnswers
    flexible: ReadAnswers


def sampled_answers(user: Any, benchmark: Benchmark) -> tuple[int, list[tuple[str, str]]]:
    """The number of runs, and (response, reference answer) of the first rollouts with a text of each."""
    num_runs, pairs = 0, []
    has_rollouts = Exists(RolloutSample.objects.filter(run=OuterRef("pk")))
    runs = Run.objects.visible_to(user).filter(has_rollouts, benchmark=benchmark)
    for run in runs.order_by("-created_at")[:NUM_RUNS]:
        own = Q(benchmark=None) | Q(benchmark__in=["", benchmark.name])  # not of the run's other training sets
        rows = (
            run.rollouts.filter(own, step__gte=run.texts_from).exclude(completion="").order_by("attempt", "step", "seq")
        )
        own = rows.values_list("completion", "answer")[:ANSWERS_OF_A_RUN]
        pairs += [(text[-MAX_CHARACTERS:], gold) for text, gold in own]
        num_runs += bool(own)
    return num_runs, pairs


def compare_extractions(user: Any, benchmark: Benchmark) -> ExtractionsAnswer:
    """The counts of both extractions. Error: FieldErrors."""
    if not benchmark.compares_numbers:
        message = f"Extraction is of the verifiers {' and '.join(FLEXIBLE_KINDS)}; this one is {benchmark.verifier}."
        raise FieldErrors.single("not_of_numbers", message)
    num_runs, pairs = sampled_answers(user, benchmark)
    none: ReadAnswers = {"read": 0, "correct": 0}
    if not pairs:
        return {"num_runs": 0, "num_answers": 0, "strict": none, "flexible": none}
    request = {"verifier": benchmark.verifier, "tolerance": benchmark.tolerance, "pairs": pairs}
    counts = EXTRACTION_SHARES.ask(at="benchmark", request=request)
    if counts.get("error"):
        raise FieldErrors.single("verifier_failed", str(counts["error"]), status=503)
    return {
        "num_runs": num_runs,
        "num_answers": counts["num_answers"],
        "strict": counts["strict"],
        "flexible": counts["flexible"],
    }
