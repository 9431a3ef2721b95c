"""The questions of a generator, and the scores of answers, by reasoning-gym, which is imported only here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.util import find_spec
from itertools import islice
from typing import Any

from workers.contract.generators.generator import MISSING, MODULE, TRIES, Generator, GeneratorError
from workers.contract.spec.data import question_key

_PROBE = "I do not know."


def data_set(generator: Generator, size: int) -> Any:
    """The package's data set of the indices below `size`. Error: GeneratorError."""
    if find_spec(MODULE) is None:
        raise GeneratorError(MISSING)
    from reasoning_gym.factory import CURRICULA, DATASETS, create_dataset

    name = generator.name
    try:
        if generator.level is None:
            settings: dict[str, Any] = {}
        elif name not in CURRICULA:
            raise GeneratorError(f"{name} has no levels: give its settings instead")
        else:
            curriculum = CURRICULA[name]()
            curriculum.set_global_level(generator.level)  # or the highest that there is
            settings = dict(vars(curriculum.generate_configuration()))
        settings |= generator.settings | {"seed": generator.seed, "size": size}
        known = DATASETS[name][1].__dataclass_fields__
        if unknown := [key for key in settings if key not in known]:
            own = ", ".join(key for key in known if key not in ("seed", "size"))
            raise GeneratorError(f"{name} has no setting {unknown[0]} (it has: {own or 'none'})")
        return create_dataset(name, **settings)
    except GeneratorError:
        raise
    except Exception as error:  # of the package's checks
        raise GeneratorError(f"{name} refuses its settings: {str(error)[:300] or type(error).__name__}") from None


def questions(generator: Generator, start: int, count: int) -> Iterator[dict[str, str]]:
    """At most `count` questions from an index on, none twice, as {id, question, answer}; the answer is what their
    scorer needs, in JSON. Errors: GeneratorError."""
    most = start + TRIES * count
    source, seen = data_set(generator, most), set[str]()

    def each() -> Iterator[dict[str, str]]:
        for index in range(start, most):
            try:
                with redirect_stdout(sys.stderr):  # some print, and standard output is for replies
                    entry = source[index]
                gold = json.dumps(
                    {"answer": entry["answer"], "generator": generator.scorer, "metadata": entry["metadata"]}
                )
            except Exception as error:
                text = f"{type(error).__name__}: {str(error)[:200]}"
                raise GeneratorError(f"{generator.name} makes no question {index}: {text}") from None
            if not seen:
                _check_scorer(generator, source, json.loads(gold))
            key = question_key(entry["question"])
            if key and key not in seen:
                seen.add(key)
                yield {"id": f"{generator.name}-{index}", "question": entry["question"], "answer": gold}

    return islice(each(), count)


def _check_scorer(generator: Generator, source: Any, entry: dict[str, Any]) -> None:
    """Error: GeneratorError, if the scorer rewards any text, or not the answer of its own question."""
    if generator_score(source, _PROBE, entry) >= 1:
        raise GeneratorError(f"{generator.name} is not offered: its scorer rewards any text")
    if entry["answer"] is not None and generator_score(source, entry["answer"], entry) < 1:
        raise GeneratorError(f"{generator.name} is not offered: its scorer refuses the answer of its own question")


def generator_score(source: Any, answer: str, entry: dict[str, Any]) -> float:
    """The scorer's reward, from 0 to 1; 0 where it fails on the answer."""
    try:
        with redirect_stdout(sys.stderr):
            return min(1.0, max(0.0, float(source.score_answer(answer, entry))))
    except Exception:
        return 0.0
