"""Questions of a generator of reasoning-gym: the files of a benchmark, and the new ones of each further pass of a run.

`python -m workers.questions.generated` answers lines of {generator, start, count} with {questions} or {error}:
trainers ask it, for the package is neither quick nor small.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from workers import heartbeat
from workers.contract.generators.generator import VERSION, Generator, GeneratorError, read_generator
from workers.contract.spec.data import CANONICAL_HELD_OUT_FILE, CANONICAL_TRAIN_FILE, DataSpec, question_key
from workers.questions.dataset import MAX_ID_LENGTH, Question
from workers.questions.files import BenchmarkError
from workers.verifiers.children.line_process import LineProcess, ProcessLost
from workers.verifiers.reasoning_gym.generated_questions import questions

TIME_LIMIT_S = 300.0  # for the questions of a benchmark, or of a pass


def write_generated(text: str, folder: Path, report: Callable[[str, float, int], None]) -> dict[str, Any]:
    """Both files of a benchmark, as `hub_files.fetch` describes files. Error: BenchmarkError."""
    sides = {}
    try:
        generator = read_generator(text)
        deadline = time.monotonic() + TIME_LIMIT_S
        for side, start, count in (
            ("held_out", 0, generator.num_held_out),
            ("train", generator.start_of_pass(0), generator.num_train),
        ):
            name = {"train": CANONICAL_TRAIN_FILE, "held_out": CANONICAL_HELD_OUT_FILE}[side]
            path = folder / f"{side}-0.jsonl"
            with open(path, "x", encoding="utf-8") as file:
                for number, row in enumerate(questions(generator, start, count), start=1):
                    file.write(json.dumps(row) + "\n")
                    report("making questions", number / count, number)
                    if time.monotonic() > deadline:
                        made = f"{generator.name} made {number:,} of {count:,} questions in {TIME_LIMIT_S:g} s"
                        raise GeneratorError(f"{made}: ask for fewer by train= and held_out=, or for a lower level")
            sides[side] = [{"path": str(path), "name": name}]
    except GeneratorError as error:
        raise BenchmarkError(str(error)) from None
    return {**sides, "commit": VERSION, "generator": str(generator)}


class FreshQuestions:
    """The training questions of a run's passes over one set, of which only the first stands in a file.

    first: those of pass 0, of which every pass has as many.  left_out: keys of questions that are held out or
    evaluated.  fitting: of some questions those that every agent can be asked.
    """

    def __init__(
        self,
        data: DataSpec,
        first: Sequence[Question],
        left_out: Iterable[str] = (),
        fitting: Callable[[list[Question]], list[Question]] = list,
    ) -> None:
        self._data, self._left_out, self._fitting = data, frozenset(left_out), fitting
        self._passes: dict[int, Sequence[Question]] = {0: first}

    def of_pass(self, number: int) -> Sequence[Question]:
        """The questions of a pass: 0, 1, ... Error: BenchmarkError."""
        if number not in self._passes:
            new = self._drawn(number) if self._data.generator else self._passes[0]
            # Steps are sampled ahead by less than a pass.
            kept = {old: questions for old, questions in self._passes.items() if old in (0, number - 1)}
            self._passes = kept | {number: new}
        return self._passes[number]

    def _drawn(self, number: int) -> Sequence[Question]:
        first, new = self._passes[0], dict[str, Question]()
        generator = read_generator(self._data.generator)
        start, end = generator.start_of_pass(number), generator.start_of_pass(number + 1)
        while len(new) < len(first) and start < end:
            rows = ask_generator(generator, start, min(len(first), end - start))
            start = _index(rows[-1]) + 1 if rows else end
            known = self._left_out | new.keys()
            others = [self._question(row) for row in rows if question_key(row["question"]) not in known]
            new |= {question_key(one.question): one for one in self._fitting(others)}
        drawn = list(new.values())[: len(first)]
        return [*drawn, *first[len(drawn) :]]  # a generator of few questions repeats them

    def _question(self, row: dict[str, str]) -> Question:
        data, benchmark = self._data, self._passes[0][0].benchmark  # empty with one training set
        id_ = f"{benchmark}/{row['id']}"[-MAX_ID_LENGTH:] if benchmark else row["id"]
        texts = {"template": data.prompt_template, "system": data.system_prompt}
        return Question(id=id_, question=row["question"], answer=row["answer"], benchmark=benchmark, **texts)


def _index(row: dict[str, str]) -> int:
    return int(row["id"].rpartition("-")[2])


def ask_generator(generator: Generator, start: int, count: int) -> list[dict[str, str]]:
    """Questions from an index on, by a process of its own. Error: BenchmarkError."""
    child = LineProcess("-m", "workers.questions.generated", on_wait=heartbeat.send_heartbeat, max_reply_bytes=2**30)
    try:
        reply = child.start(os.environ, TIME_LIMIT_S, {"generator": str(generator), "start": start, "count": count})
    except ProcessLost as lost:
        reply = {"error": f"no questions in {TIME_LIMIT_S:g} s" if lost.is_late else "its process died"}
    finally:
        child.close()
    if "error" in reply:
        raise BenchmarkError(f"{generator.name}: {reply['error']}")
    return list(reply["questions"])


def main() -> None:
    """Answer requests until stdin ends."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            made = questions(read_generator(request["generator"]), request["start"], request["count"])
            reply: dict[str, Any] = {"questions": list(made)}
        except GeneratorError as error:
            reply = {"error": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
