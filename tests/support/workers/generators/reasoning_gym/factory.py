"""Generators: sums, a coin with two questions, one whose scorer runs the answer, one whose scorer fails."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass
class Config:
    seed: int = 0
    size: int = 500
    min_terms: int = 2
    max_terms: int = 3

    def __post_init__(self):
        if self.max_terms < self.min_terms:
            raise AssertionError("max_terms must be >= min_terms")


class Curriculum:
    def __init__(self):
        self.level = 0

    def set_global_level(self, level):
        self.level = min(level, 3)

    def generate_configuration(self):
        return Config(min_terms=2 + self.level, max_terms=2 + self.level)


class Sums:
    def __init__(self, config):
        self.config = config

    def __getitem__(self, index):
        if index >= self.config.size:
            raise IndexError(index)
        random = Random(self.config.seed + index)
        terms = [random.randint(0, 9) for _ in range(random.randint(self.config.min_terms, self.config.max_terms))]
        return {"question": f"{'+'.join(map(str, terms))}=", "answer": str(sum(terms)), "metadata": {"terms": terms}}

    def score_answer(self, answer, entry):
        right = entry["answer"]
        return 1.0 if answer == right else len(right) / len(answer) if answer and right in answer else 0.0


class Coin(Sums):
    def __getitem__(self, index):
        side = Random(self.config.seed + index).choice(["heads", "tails"])
        return {"question": f"Not {side}?", "answer": "tails" if side == "heads" else "heads", "metadata": {}}


class Runs(Sums):
    def score_answer(self, answer, entry):
        return (
            super().score_answer(answer, entry) if answer.isdigit() else float(eval(answer))
        )  # what an attacker needs


class Fails(Sums):
    def score_answer(self, answer, entry):
        return float(answer == entry["answer"] or answer == "I do not know." or int(answer) < 0)


DATASETS = {"chain_sum": (Sums, Config), "coin_flip": (Coin, Config), "gcd": (Runs, Config), "lcm": (Fails, Config)}
CURRICULA = {"chain_sum": Curriculum}


def create_dataset(name, **settings):
    kind, config = DATASETS[name]
    return kind(config(**settings))
