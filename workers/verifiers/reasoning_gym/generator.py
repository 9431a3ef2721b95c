"""A generator of reasoning-gym with its difficulty, seed and settings, written as `chain_sum?level=2&seed=7&min_terms=3`.

The package is imported only where a data set is made. A question is fixed by generator and index, so that a training set
has no end: further passes take further indices. The held-out questions have the lowest ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl

from workers.contract.spec.data import question_key

VERSION = "0.1.25"
INSTALL = f"pip install reasoning-gym=={VERSION}"
MISSING = f"reasoning-gym is not installed here: {INSTALL}"
MAX_QUESTIONS = 20_000  # of a pass
TRIES = 3  # indices for each question, as some repeat
# Their scorers run the text of a response as Python; `composite` is several others.
EVALUATING = (
    *("binary_matrix", "countdown", "intermediate_integration", "n_queens", "polynomial_multiplication", "puzzle24"),
    *("simple_integration", "spiral_matrix", "string_insertion"),
)
REFUSED = dict.fromkeys(EVALUATING, "its scorer runs the text of a response as Python") | {
    "acre": "its questions depend on their number, so that further ones cannot be drawn",
    "composite": "it is made of other generators: add each as a benchmark of its own",
}
_PROBE = "I do not know."


class GeneratorError(ValueError):
    """A generator that cannot be used here; the text says why, and what can."""


@dataclass(frozen=True)
class Generator:
    """level: of its curriculum, None: the package's own settings.  num_train: questions of a pass.

    settings: of the generator, over those of the level.
    """

    name: str
    level: int | None = None
    seed: int = 0
    num_train: int = 1000
    num_held_out: int = 200
    settings: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        sizes = {"train": self.num_train, "held_out": self.num_held_out}
        return self._text({"seed": self.seed, **sizes})

    @property
    def scorer(self) -> str:
        """What its scorer depends on."""
        return self._text({})

    def _text(self, more: dict[str, Any]) -> str:
        level = {} if self.level is None else {"level": self.level}
        query = "&".join(f"{name}={_written(value)}" for name, value in {**level, **more, **self.settings}.items())
        return f"{self.name}?{query}".removesuffix("?")

    def start_of_pass(self, number: int) -> int:
        """The first index of a pass over the training set: 0, 1, ..."""
        return TRIES * (self.num_held_out + number * self.num_train)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def read_generator(text: str) -> Generator:
    """The generator that a text names. Error: GeneratorError."""
    name, _, query = text.strip().partition("?")
    if not re.fullmatch(r"[a-z0-9_]{1,60}", name):
        raise GeneratorError("a generator is written as chain_sum, or chain_sum?level=2&seed=7&train=1000&held_out=200")
    if name in REFUSED:
        raise GeneratorError(f"{name} is not offered: {REFUSED[name]}")
    values: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in values:
            raise GeneratorError(f"{key} is given twice")
        try:
            values[key] = json.loads(value)
        except (ValueError, RecursionError):
            values[key] = value
    return Generator(
        name=name,
        level=_whole(values, "level", None, 0, 100),
        seed=_whole(values, "seed", 0, 0, 2**32 - 1),
        num_train=_whole(values, "train", 1000, 1, MAX_QUESTIONS),
        num_held_out=_whole(values, "held_out", 200, 1, MAX_QUESTIONS),
        settings=values,
    )


def _whole(values: dict[str, Any], name: str, default: Any, least: int, most: int) -> Any:
    value = values.pop(name, default)
    if value is not default and (type(value) is not int or not least <= value <= most):
        raise GeneratorError(f"{name} must be a whole number from {least} to {most}")
    return value


def data_set(generator: Generator, size: int) -> Any:
    """The package's data set of the indices below `size`. Error: GeneratorError."""
    if find_spec("reasoning_gym") is None:
        raise GeneratorError(MISSING)
    import reasoning_gym
    from reasoning_gym.factory import CURRICULA, DATASETS

    name = generator.name
    if name not in DATASETS:
        near = get_close_matches(name, DATASETS, 3)
        raise GeneratorError(f"reasoning-gym has no generator {name}" + (f": {' or '.join(near)}?" if near else ""))
    try:
        if generator.level is None:
            settings: dict[str, Any] = {}
        elif name not in CURRICULA:
            raise GeneratorError(f"{name} has no levels: give its settings instead")
        else:
            curriculum = CURRICULA[name]()
            curriculum.set_global_level(min(generator.level, curriculum.get_max_level()))
            settings = dict(vars(curriculum.generate_configuration()))
        settings |= generator.settings | {"seed": generator.seed, "size": size}
        known = DATASETS[name][1].__dataclass_fields__
        if unknown := [key for key in settings if key not in known]:
            own = ", ".join(key for key in known if key not in ("seed", "size"))
            raise GeneratorError(f"{name} has no setting {unknown[0]} (it has: {own or 'none'})")
        return reasoning_gym.create_dataset(name, **settings)
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
                entry = source[index]
                gold = json.dumps({"answer": entry["answer"], "generator": generator.scorer, "metadata": entry["metadata"]})
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
    if score_of(source, _PROBE, entry) >= 1:
        raise GeneratorError(f"{generator.name} is not offered: its scorer rewards any text")
    if entry["answer"] is not None and score_of(source, entry["answer"], entry) < 1:
        raise GeneratorError(f"{generator.name} is not offered: its scorer refuses the answer of its own question")


def score_of(source: Any, answer: str, entry: dict[str, Any]) -> float:
    """The scorer's reward, from 0 to 1; 0 where it fails on the answer."""
    try:
        return min(1.0, max(0.0, float(source.score_answer(answer, entry))))
    except Exception:
        return 0.0
