"""The system calls that code in a sandbox may make; seccomp refuses all others, known or to come.

What is listed acts on the process itself, on descriptors that it opened and on paths, which Landlock guards. What is
not: other processes, sockets, namespaces, mounts, keys; attributes, times, owners and locks of files, which stay or
stop others; watches on files that others make; memory and queues that outlive the process or count for the whole host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# seccomp's names of machines.
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_MACHINES = ("x86_64", "aarch64")
_NONE = -1  # a machine has no such call
_Instruction = tuple[int, int, int, int]

# Numbers on x86_64 and aarch64.
_ALLOWED: dict[str, tuple[int, int]] = {
    # Descriptors, and files that are opened through Landlock's rules.
    "read": (0, 63), "write": (1, 64), "open": (2, _NONE), "close": (3, 57), "lseek": (8, 62), "pread64": (17, 67),
    "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66), "preadv": (295, 69), "pwritev": (296, 70),
    "preadv2": (327, 286), "pwritev2": (328, 287), "openat": (257, 56), "creat": (85, _NONE), "dup": (32, 23),
    "dup2": (33, _NONE), "dup3": (292, 24), "pipe": (22, _NONE), "pipe2": (293, 59), "close_range": (436, 436),
    "sendfile": (40, 71), "copy_file_range": (326, 285), "fsync": (74, 82), "fdatasync": (75, 83),
    "ftruncate": (77, 46), "fallocate": (285, 47), "stat": (4, _NONE), "fstat": (5, 80), "lstat": (6, _NONE),
    "newfstatat": (262, 79), "statx": (332, 291), "access": (21, _NONE), "faccessat": (269, 48),
    "faccessat2": (439, 439), "readlink": (89, _NONE), "readlinkat": (267, 78), "getdents": (78, _NONE),
    "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50), "umask": (95, 166),
    "mkdir": (83, _NONE), "mkdirat": (258, 34), "rmdir": (84, _NONE), "unlink": (87, _NONE), "unlinkat": (263, 35),
    "rename": (82, _NONE), "renameat": (264, 38), "renameat2": (316, 276), "symlink": (88, _NONE),
    "symlinkat": (266, 36),
    # Waiting for descriptors.
    "poll": (7, _NONE), "ppoll": (271, 73), "select": (23, _NONE), "pselect6": (270, 72), "epoll_create": (213, _NONE),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, _NONE), "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441), "eventfd": (284, _NONE), "eventfd2": (290, 19), "signalfd": (282, _NONE),
    "signalfd4": (289, 74), "timerfd_create": (283, 85), "timerfd_settime": (286, 86), "timerfd_gettime": (287, 87),
    # Memory of the process.
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216),
    "msync": (26, 227), "mincore": (27, 232), "madvise": (28, 233), "map_shadow_stack": (453, 453),
    # Threads, signals and timers of the process.
    "futex": (202, 98), "futex_waitv": (449, 449), "futex_wake": (454, 454), "futex_wait": (455, 455),
    "futex_requeue": (456, 456), "set_robust_list": (273, 99), "get_robust_list": (274, 100), "rseq": (334, 293),
    "set_tid_address": (218, 96), "arch_prctl": (158, _NONE), "sched_yield": (24, 124), "getcpu": (309, 168),
    "sched_getaffinity": (204, 123), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126), "sched_rr_get_interval": (148, 127),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "pause": (34, _NONE),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "restart_syscall": (219, 128), "alarm": (37, _NONE),
    "getitimer": (36, 102), "setitimer": (38, 103), "timer_create": (222, 107), "timer_settime": (223, 110),
    "timer_gettime": (224, 108), "timer_getoverrun": (225, 109), "timer_delete": (226, 111), "exit": (60, 93),
    "exit_group": (231, 94), "wait4": (61, 260), "waitid": (247, 95),
    # What the process is told.
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getpgrp": (111, _NONE), "getpgid": (121, 155),
    "getsid": (124, 156), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getresuid": (118, 148), "getresgid": (120, 150), "getgroups": (115, 158), "getrlimit": (97, 163),
    "getrusage": (98, 165), "getpriority": (140, 141), "times": (100, 153), "time": (201, _NONE),
    "gettimeofday": (96, 169), "clock_gettime": (228, 113), "clock_getres": (229, 114), "uname": (63, 160),
    "sysinfo": (99, 179), "getrandom": (318, 278),
}  # fmt: skip
# With the network: as a client of the internet alone.
_OF_NETWORK: dict[str, tuple[int, int]] = {
    "connect": (42, 203), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269), "recvfrom": (45, 207),
    "recvmsg": (47, 212), "recvmmsg": (299, 243), "getsockname": (51, 204), "getpeername": (52, 205),
    "setsockopt": (54, 208), "getsockopt": (55, 209), "shutdown": (48, 210),
}  # fmt: skip
# Allowed with some values of an argument only: numbers, which argument, its values. The kernel reads 32 bits of each.
_ARGUMENTS: dict[str, tuple[tuple[int, int], int, tuple[int, ...]]] = {
    # Whether it is a terminal, how large it is, how much can be read; FIONBIO, FIONCLEX, FIOCLEX. No attributes.
    "ioctl": ((16, 29), 1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),
    # To duplicate; flags; the size of a pipe. No locks, leases, owners of signals, watches, larger pipes.
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 4, 1030, 1032)),
    # Names of threads and memory, and questions. Nothing that undoes the sandbox.
    "prctl": ((157, 167), 0, (2, 3, 15, 16, 21, 23, 39, 40, 0x53564D41)),
}
_SOCKET = ((41, 198), 0, (2, 10))  # AF_INET, AF_INET6
_CLONE, _CLONE3 = (56, 220), 435
_CLONE_THREAD, _CLONE_NEW = 0x10000, 0x7E020080  # a thread; any kind of namespace
_LOAD, _EQUAL, _ABOVE, _HAS_BIT, _END = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, JEQ, JGE, JSET, RET
_KILL, _REFUSE, _MISSING, _ALLOW = 0x80000000, 0x50000 | 1, 0x50000 | 38, 0x7FFF0000  # EPERM, ENOSYS


def filter_program(machine: str, *, has_network: bool = False) -> list[_Instruction]:
    """The filter for a machine of AUDIT_ARCH: instructions of BPF, (code, jump if true, jump if false, value)."""
    place = _MACHINES.index(machine)
    calls = [*_ALLOWED.values(), *(_OF_NETWORK.values() if has_network else ())]
    limited = [*_ARGUMENTS.values(), *([_SOCKET] if has_network else [])]
    return [
        (_LOAD, 0, 0, 4),  # seccomp_data.arch
        (_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (_END, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # seccomp_data.nr
        (_ABOVE, 0, 1, 0x40000000),  # x86_64's other numbering of the same calls
        (_END, 0, 0, _KILL),
        (_EQUAL, 0, 1, _CLONE3),
        (_END, 0, 0, _MISSING),  # glibc then asks for clone, whose flags a filter can read
        *_if_one_of(numbers[place] for numbers in calls if numbers[place] != _NONE),
        *(line for numbers, argument, values in limited for line in _if_argument(numbers[place], argument, values)),
        (_EQUAL, 0, 4, _CLONE[place]),
        (_LOAD, 0, 0, 16),
        (_HAS_BIT, 2, 0, _CLONE_NEW),
        (_HAS_BIT, 0, 1, _CLONE_THREAD),
        (_END, 0, 0, _ALLOW),
        (_END, 0, 0, _REFUSE),
    ]


def _if_one_of(values: Iterable[int]) -> Iterator[_Instruction]:
    for value in values:
        yield from ((_EQUAL, 0, 1, value), (_END, 0, 0, _ALLOW))


def _if_argument(number: int, argument: int, values: tuple[int, ...]) -> Iterator[_Instruction]:
    yield (_EQUAL, 0, len(values) * 2 + 2, number)
    yield (_LOAD, 0, 0, 16 + 8 * argument)  # the lower half of seccomp_data.args[argument]
    yield from _if_one_of(values)
    yield (_END, 0, 0, _REFUSE)
