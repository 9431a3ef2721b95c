"""The sandbox of code in responses: restrictions of the kernel that a process sets for itself and cannot lift.

`workers.verifiers.python.python_runner` calls it after Python has started and before any line of the response runs.
Three restrictions, from Linux by ctypes, without privileges:

- Landlock: the process reads files only below the Python installation and the system's libraries, and writes only in
  one temporary folder;
- a seccomp filter (x86_64 and aarch64): no sockets (with `has_network` those of the internet), further processes,
  signals or tracing; no shared memory or queue that outlives the process; no changes to times, attributes or
  priorities, which Landlock does not cover;
- own namespaces for users and network, without a network device. Many containers refuse this; the filter remains.

Without Landlock or the filter no code runs at all. docs/verifiers.md has the details.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from workers.verifiers.children.resource_limits import lower

MEMORY_BYTES = 512 * 2**20
CPU_SECONDS = 2
FILE_BYTES = 16 * 2**20
FOLDER_BYTES, FOLDER_FILES = 64 * 2**20, 4096
OPEN_FILES = 64
# With the network: names of hosts and certificates, no keys.
READABLE_NETWORK = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted/pem"),
)
READABLE = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache")  # libraries that a solution may import

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 1, 4, 38, 22, 2
_SIGKILL, _EPERM, _ENOSYS = 9, 1, 38
_CLONE_NEWUSER, _CLONE_NEWNS, _CLONE_NEWNET, _CLONE_NEWIPC = 0x10000000, 0x20000, 0x40000000, 0x8000000
_CLONE_THREAD = 0x10000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 0x4000, 0x40000
_CAPABILITY_VERSION = 0x20080522
_READ, _READ_WRITE_V1 = 0b1101, (1 << 13) - 1  # Landlock's rights: execute, read file, read folder; all of version 1
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # versions 2 and 3

_FAMILIES = (2, 10)  # AF_INET, AF_INET6: of sockets that `has_network` allows
_NETWORK_CALLS = ("socket", "connect", "sendto", "sendmsg", "sendmmsg")
# By machine: seccomp's name of it, and the numbers of the system calls that are refused. `clone` may make threads.
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE, _CLONE3 = {"x86_64": 56, "aarch64": 220}, 435
_NUMBER = {
    "prctl": {"x86_64": 157, "aarch64": 167},
    "fcntl": {"x86_64": 72, "aarch64": 25},
    "ioctl": {"x86_64": 16, "aarch64": 29},
}
# To outlive the parent; to have the kernel send signals to any process (F_SETOWN, F_SETSIG, F_SETOWN_EX, FIOSETOWN,
# SIOCSPGRP); to write into a terminal (TIOCSTI); pipes larger than usual (F_SETPIPE_SZ), which are memory.
_REFUSED_ARGUMENTS = {
    "prctl": (0, (_PR_SET_PDEATHSIG,)),
    "fcntl": (1, (8, 10, 15, 1031)),
    "ioctl": (1, (0x8901, 0x8902, 0x5412)),
}
# Their numbers on x86_64 and aarch64; -1 where a machine has no such call.
_REFUSED_NUMBERS: dict[str, tuple[int, int]] = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "sendto": (44, 206),
    "sendmsg": (46, 211), "sendmmsg": (307, 269), "listen": (50, 201), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "userfaultfd": (323, 282), "fanotify_init": (300, 262), "setsid": (112, 157),
    "setpgid": (109, 154), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "mknod": (133, -1),
    "mknodat": (259, 33), "open_by_handle_at": (304, 265), "quotactl": (179, 60), "sync": (162, 81),
    "syncfs": (306, 267), "personality": (135, 92), "fork": (57, -1), "vfork": (58, -1), "execve": (59, 221),
    "execveat": (322, 281), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "bpf": (321, 280), "io_uring_setup": (425, 425),
    "keyctl": (250, 219), "prlimit64": (302, 261), "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54),
    "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88),
    "truncate": (76, 45), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "shmget": (29, 194),
    "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "add_key": (248, 217), "request_key": (249, 218),
    "setpriority": (141, 140), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122), "sched_setattr": (314, 274), "ioprio_set": (251, 30),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "perf_event_open": (298, 241),
    "process_madvise": (440, 440),
}  # fmt: skip
_REFUSED = {
    machine: {name: numbers[place] for name, numbers in _REFUSED_NUMBERS.items() if numbers[place] >= 0}
    for place, machine in enumerate(("x86_64", "aarch64"))
}


class SandboxUnavailable(RuntimeError):
    """This kernel lacks a restriction that the sandbox needs; the text names it."""


def child_environment(folder: str, hash_seed: str) -> dict[str, str]:
    """The variables of a process that runs such code. hash_seed: of Python's hashes, for the same result every time."""
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": folder,
        "TMPDIR": folder,
        "PYTHONHASHSEED": hash_seed,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def has_own_folder(folder: Path, *, has_network: bool = False) -> bool:
    """Put a small file system in memory on `folder`, which goes with this process; False if the kernel refuses it.

    It needs namespaces of our own for users and mounts, which many containers refuse. The network gets one too, without
    `has_network`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    own_network = 0 if has_network else _CLONE_NEWNET
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWIPC | own_network) != 0:
        return False
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError:
        return False
    if libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None) != 0:
        return False
    size = f"size={FOLDER_BYTES},nr_inodes={FOLDER_FILES},mode=700".encode()
    return bool(libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, size) == 0)


def confine(
    folder: Path,
    has_quota: bool,
    memory_bytes: int = MEMORY_BYTES,
    cpu_seconds: int | None = CPU_SECONDS,
    *,
    is_inner: bool = False,
    has_network: bool = False,
) -> None:
    """Restrict this process, which may write to `folder` only, and only with a quota.

    cpu_seconds: None for a process of many calls, whose parent keeps the time. is_inner: Bubblewrap is around it, so
    that Landlock may be missing. has_network: it may connect to addresses of the internet, and serve none. Error:
    SandboxUnavailable.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: FILE_BYTES,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for limit, value in limits.items():
        lower(limit, value)
    if cpu_seconds is not None:
        lower(resource.RLIMIT_CPU, cpu_seconds, spare=1)  # first a signal that has a reason
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise SandboxUnavailable("the kernel does not take NO_NEW_PRIVS")
    libc.capset(struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24))  # none, also within our own namespaces
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # its memory cannot be opened by the other process
    try:
        _guard_files(libc, folder if has_quota else None, READABLE_NETWORK if has_network else ())
    except SandboxUnavailable:
        if not is_inner:
            raise
    _filter_calls(libc, has_network)


def _guard_files(libc: ctypes.CDLL, folder: Path | None, more: Sequence[str]) -> None:
    """Set up Landlock; its system calls are 444 to 446 on all machines."""
    version = libc.syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    if version < 1:
        raise SandboxUnavailable("the kernel has no Landlock (Linux 5.13, switched on)")
    handled = _READ_WRITE_V1 | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    attributes = struct.pack("Q", handled)
    rules = libc.syscall(444, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    if rules < 0:
        raise SandboxUnavailable(f"Landlock: {os.strerror(ctypes.get_errno())}")
    folders = {Path(place).resolve() for place in (sys.prefix, sys.base_prefix, *READABLE, *more)}
    allowed = dict.fromkeys(filter(Path.exists, folders), _READ)
    allowed |= {Path("/dev/null"): 0b110} | ({folder: handled & ~_REFER} if folder else {})
    for place, rights in allowed.items():
        if not place.is_dir():
            rights &= _TRUNCATE | 0b111  # of a file: execute, write, read
        handle = os.open(place, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", rights, handle)
        if libc.syscall(445, rules, 1, rule, ctypes.c_uint(0)) != 0:
            raise SandboxUnavailable(f"Landlock, {place}: {os.strerror(ctypes.get_errno())}")
        os.close(handle)
    if libc.syscall(446, rules, ctypes.c_uint(0)) != 0:
        raise SandboxUnavailable(f"Landlock: {os.strerror(ctypes.get_errno())}")
    os.close(rules)


def _filter_calls(libc: ctypes.CDLL, has_network: bool = False) -> None:
    """Set up the seccomp filter: a BPF program with 8 bytes an instruction."""
    machine = platform.machine()
    if machine not in _AUDIT_ARCH:
        raise SandboxUnavailable(f"no system call filter for {machine}")
    load, equal, above, has_bit, end = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, JEQ, JGE, JSET, RET
    kill, refuse, missing, allow = 0x80000000, 0x50000 | _EPERM, 0x50000 | _ENOSYS, 0x7FFF0000
    program = [
        (load, 0, 0, 4),  # seccomp_data.arch
        (equal, 1, 0, _AUDIT_ARCH[machine]),
        (end, 0, 0, kill),
        (load, 0, 0, 0),  # seccomp_data.nr
        (above, 0, 1, 0x40000000),  # x86_64's other numbering of the same calls
        (end, 0, 0, kill),
        (equal, 0, 1, _CLONE3),
        (end, 0, 0, missing),  # glibc then asks for clone, whose flags a filter can read
    ]
    for name, number in _REFUSED[machine].items():
        if not (has_network and name in _NETWORK_CALLS):
            program += [(equal, 0, 1, number), (end, 0, 0, refuse)]
    if has_network:
        family = [(equal, 0, 1, value) for value in _FAMILIES]
        program += [(equal, 0, 6, _REFUSED[machine]["socket"]), (load, 0, 0, 16)]  # seccomp_data.args[0]: the family
        program += [part for line in family for part in (line, (end, 0, 0, allow))] + [(end, 0, 0, refuse)]
    # Calls that are refused with some arguments only: (number of the argument, its values).
    for name, (argument, values) in _REFUSED_ARGUMENTS.items():
        program += [(equal, 0, len(values) * 2 + 2, _NUMBER[name][machine]), (load, 0, 0, 16 + 8 * argument)]
        for value in values:
            program += [(equal, 0, 1, value), (end, 0, 0, refuse)]
        program += [(end, 0, 0, allow)]
    program += [
        (equal, 0, 3, _CLONE[machine]),
        (load, 0, 0, 16),  # seccomp_data.args[0]: the flags
        (has_bit, 1, 0, _CLONE_THREAD),
        (end, 0, 0, refuse),
        (end, 0, 0, allow),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, described, 0, 0) != 0:
        raise SandboxUnavailable(f"the kernel takes no system call filter: {os.strerror(ctypes.get_errno())}")
