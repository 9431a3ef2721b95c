"""A generator of reasoning-gym with its level, seed and settings, as a text: `chain_sum?level=2&seed=7&min_terms=3`.

A question is fixed by generator and index, so that a training set has no end: further passes take further indices. The
held-out questions have the lowest ones.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any
from urllib.parse import parse_qsl, quote_plus

VERSION = "0.1.25"
MODULE = "reasoning_gym"
INSTALL = f"pip install reasoning-gym=={VERSION}"
MISSING = f"reasoning-gym is not installed here: {INSTALL}"
# Those of this version that are offered.
_NAMES = """
ab advanced_geometry aiw arc_1d base_conversion basic_arithmetic bf binary_alternation bitwise_arithmetic
boxnet caesar_cipher calendar_arithmetic chain_sum circuit_logic codeio coin_flip color_cube_rotation
complex_arithmetic count_bits count_primes course_schedule cryptarithm decimal_arithmetic decimal_chain_sum
dice emoji_mystery family_relationships figlet_font fraction_simplification futoshiki game_of_life gcd
graph_color group_anagrams gsm_symbolic isomorphic_strings jugs kakurasu knight_swap knights_knaves
largest_island lcm leg_counting letter_counting letter_jumble list_functions mahjong_puzzle manipulate_matrix
maze mini_sudoku modulo_grid needle_haystack number_filtering number_format number_sequence number_sorting
palindrome_generation palindrome_partitioning path_star polynomial_equations pool_matrix power_function
prime_factorization products propositional_logic quantum_lock ransom_note rectangle_count rotate_matrix
rotten_oranges rubiks_cube rush_hour self_reference sentence_reordering shortest_path simple_equations
simple_geometry sokoban spell_backward string_manipulation string_splitting string_synthesis sudoku survo
syllogism time_intervals tower_of_hanoi tsumego word_ladder word_sequence_reversal word_sorting zebra_puzzles
"""
NAMES = tuple(_NAMES.split())
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
    "game_of_life_halting": "its scorer rewards any text",
    **dict.fromkeys(("arc_agi", "rearc"), "its scorer refuses the answers of its own questions"),
}


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
    return quote_plus(value if isinstance(value, str) else json.dumps(value, separators=(",", ":")), safe="[],.-")


def read_generator(text: str) -> Generator:
    """The generator that a text names. Error: GeneratorError."""
    name, _, query = text.strip().partition("?")
    if not re.fullmatch(r"[a-z0-9_]{1,60}", name):
        raise GeneratorError("a generator is written as chain_sum, or chain_sum?level=2&seed=7&train=1000&held_out=200")
    if name in REFUSED:
        raise GeneratorError(f"{name} is not offered: {REFUSED[name]}")
    if name not in NAMES:
        near = get_close_matches(name, NAMES, 3)
        raise GeneratorError(f"reasoning-gym has no generator {name}" + (f": {' or '.join(near)}?" if near else ""))
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
