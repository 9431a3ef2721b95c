"""The processes of one agent, its ranks, and what they exchange. No model, no algorithm.

All ranks make the same calls with the same arguments; rows are split between them here. An agent of one process is
`ALONE`: nothing is split, nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from workers.model.memory import LOWER_LENGTH, OutOfMemory, free_memory, is_out_of_memory

Value = TypeVar("Value")
Result = TypeVar("Result")
Round = list[Sequence[Value]]  # a chunk of rows for each rank, or fewer chunks


@dataclass
class RoundsDone:
    """The round at which the work is: 0, 1, ..."""

    round: int = 0


@dataclass(frozen=True)
class Ranks:
    """This process among the agent's. is_sharded: each process holds a share of the weights, else all of them."""

    rank: int = 0
    size: int = 1
    is_sharded: bool = False

    @property
    def is_first(self) -> bool:
        """Whether this process answers for all, and writes the files that all share."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        return self.size == 1

    def block(self, count: int) -> range:
        """This rank's share of `count` rows: a contiguous block."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def rounds(
        self, rows: Sequence[Value], size: int, length: Callable[[Value], int] = lambda row: 0, tokens: int = 0
    ) -> list[Round[Value]]:
        """Rows in chunks of at most `size`, and the chunks in rounds: in each round, chunk r belongs to rank r.

        length: of a row, padded to the longest of its chunk; a chunk of several rows has at most `tokens` (0: any).
        The last round may have fewer chunks. Chunks are smaller if ranks would otherwise be idle.
        """
        width = max(1, min(size, -(-len(rows) // self.size)))
        chunks: list[Sequence[Value]] = []
        start, longest = 0, 0
        for end, row in enumerate(rows):
            longest = max(longest, length(row))
            if end - start == width or (tokens and end > start and (end - start + 1) * longest > tokens):
                chunks.append(rows[start:end])
                start, longest = end, length(row)
        if rows:
            chunks.append(rows[start:])
        return [chunks[start : start + self.size] for start in range(0, len(chunks), self.size)]

    def mine(self, chunks: Sequence[Sequence[Value]]) -> Sequence[Value]:
        """This rank's chunk of a round, or an empty one."""
        return chunks[self.rank] if self.rank < len(chunks) else ()

    def gather(self, value: Value) -> list[Value]:
        """The value of every rank, in order."""
        if self.is_alone:
            return [value]
        values: list[Value | None] = [None] * self.size
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value]  # every place is filled

    def all(self, is_true: bool) -> bool:
        """Whether it is true in every rank."""
        return is_true if self.is_alone else all(self.gather(is_true))

    def sum(self, value: float) -> float:
        """The sum over the ranks, in their order."""
        return value if self.is_alone else sum(self.gather(value))

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the ranks."""
        if not self.is_alone:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def fit(
        self,
        work: Callable[[Sequence[Round[Value]], RoundsDone], Result],
        rounds: Sequence[Round[Value]],
        notes: list[str],
    ) -> tuple[Result, Sequence[Round[Value]]]:
        """work(rounds), with the chunks of a round halved as often as memory runs out in it; and the rounds that fit.

        `work` starts from the beginning each time, and counts its rounds in its second argument. notes: gets a line for
        each halving. Error: OutOfMemory. With shards every layer communicates: there a rank out of memory ends the
        agent.
        """
        while True:
            progress, reason, results = RoundsDone(), "", []
            try:
                results.append(work(rounds, progress))
            except RuntimeError as error:
                if not is_out_of_memory(error) or self.is_sharded:
                    raise
                reason = str(error).splitlines()[0][:200]
            failures = [failure for failure in self.gather((progress.round, reason)) if failure[1]]
            if not failures:
                return results[0], rounds
            free_memory()
            place, reason = min(failures)
            size = max(map(len, rounds[place]))
            if size == 1:
                raise OutOfMemory(f"out of memory with one sequence at a time: {LOWER_LENGTH} ({reason})")
            notes.append(f"out of memory: a micro-batch of {size} sequences was halved ({reason})")
            halves = [
                [chunk[: (len(chunk) + 1) // 2] for chunk in rounds[place]],
                [chunk[(len(chunk) + 1) // 2 :] for chunk in rounds[place]],
            ]
            rounds = [*rounds[:place], *halves, *rounds[place + 1 :]]

    def together(self, work: Callable[[int], Result]) -> Callable[[int], Result]:
        """`work` that runs out of memory in all ranks if it does in one, so that all try again with half the size.

        With shards every layer communicates, so there a rank out of memory ends the agent.
        """
        if self.is_alone or self.is_sharded:
            return work

        def attempt(size: int) -> Result:
            reason, results = "", []
            try:
                results.append(work(size))
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error)
            reasons = [each for each in self.gather(reason) if each]
            if reasons:
                raise torch.OutOfMemoryError(reasons[0])
            return results[0]

        return attempt


ALONE = Ranks()
