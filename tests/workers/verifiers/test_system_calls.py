"""The system calls of the sandbox, of both machines: the filter's program is interpreted, so that neither is needed."""

from __future__ import annotations

import pytest

from tests.workers.verifiers.python_escapes import RAW_CALLS
from workers.verifiers.python.system_calls import AUDIT_ARCH, filter_program

ALLOW, REFUSE, MISSING, KILL = 0x7FFF0000, 0x50001, 0x50026, 0x80000000
# Of Linux's tables, typed from them and not from ours: read, openat, mmap, futex, exit_group.
NEEDED = {"x86_64": (0, 257, 9, 202, 231), "aarch64": (63, 56, 222, 98, 94)}
IOCTL = {"x86_64": 16, "aarch64": 29}
FCNTL = {"x86_64": 72, "aarch64": 25}
CLONE = {"x86_64": 56, "aarch64": 220}
SOCKET = {"x86_64": 41, "aarch64": 198}


def answer(machine: str, number: int, *arguments: int, arch: int = 0, has_network: bool = False) -> int:
    """What the kernel does with a call, by interpreting BPF: load, compare, jump, return."""
    fields = {0: number, 4: arch or AUDIT_ARCH[machine]} | {16 + 8 * n: value for n, value in enumerate(arguments)}
    program = filter_program(machine, has_network=has_network)
    place, value = 0, 0
    while True:
        code, if_true, if_false, operand = program[place]
        place += 1
        if code == 0x06:
            return operand
        if code == 0x20:
            value = fields.get(operand, 0)
            continue
        holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
        place += if_true if holds else if_false


def values_of(arguments: str) -> list[int]:
    """The numbers among the arguments of a call, combined ones too; 3 for a descriptor or a text."""
    parts = [part.split(" | ") for part in arguments.split(", ")]
    return [sum(int(one, 0) for one in part) if all(one[:1].isdigit() for one in part) else 3 for part in parts]


@pytest.mark.parametrize("machine", AUDIT_ARCH)
def test_filter_allows_what_python_needs_and_refuses_the_rest(machine):
    column = list(AUDIT_ARCH).index(machine)
    assert [number for number in NEEDED[machine] if answer(machine, number) != ALLOW] == []
    made = {name: answer(machine, numbers[column], *values_of(text)) for name, (numbers, text) in RAW_CALLS.items()}
    assert [name for name, result in made.items() if result == ALLOW] == []
    assert answer(machine, 435) == MISSING
    assert answer(machine, IOCTL[machine], 3, 0x40086602) == REFUSE  # FS_IOC_SETFLAGS
    assert answer(machine, IOCTL[machine], 3, 0x5401) == ALLOW
    assert answer(machine, FCNTL[machine], 3, 6) == REFUSE  # F_SETLK
    assert answer(machine, CLONE[machine], 0x10000) == ALLOW  # a thread
    assert answer(machine, CLONE[machine], 0x10000 | 0x10000000) == REFUSE  # with a namespace
    assert answer(machine, CLONE[machine], 17) == REFUSE  # a process
    assert answer(machine, SOCKET[machine], 2) == REFUSE
    assert answer(machine, SOCKET[machine], 2, has_network=True) == ALLOW
    assert answer(machine, SOCKET[machine], 1, has_network=True) == REFUSE  # AF_UNIX
    assert answer(machine, 0x40000000) == answer(machine, 0, arch=0x40000003) == KILL
