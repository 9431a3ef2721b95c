"""The sandbox of code in responses: restrictions of the kernel that a process sets for itself and cannot lift.

`workers.verifiers.python.python_runner` calls it after Python has started and before any line of the response runs.
Three restrictions, from Linux by ctypes, without privileges:

- Landlock: the process reads files only below the Python installation and the system's libraries, and writes only in
  one temporary folder;
- a seccomp filter (x86_64 and aarch64): the process makes the system calls of a list
  (`workers.verifiers.python.system_calls`) and no others;
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
from workers.verifiers.python.system_calls import AUDIT_ARCH, filter_program

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
_SIGKILL = 9
_CLONE_NEWUSER, _CLONE_NEWNS, _CLONE_NEWNET, _CLONE_NEWIPC = 0x10000000, 0x20000, 0x40000000, 0x8000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 1, 2, 4, 0x4000, 0x40000
_CAPABILITY_VERSION = 0x20080522
_READ, _READ_WRITE_V1 = 0b1101, (1 << 13) - 1  # Landlock's rights: execute, read file, read folder; all of version 1
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # versions 2 and 3


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
    """Put a small file system in memory on `folder`, which goes with this process, and an empty one on /proc, where a
    root user could write the kernel's settings; False if the kernel refuses it.

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
    size, flags = f"size={FOLDER_BYTES},nr_inodes={FOLDER_FILES},mode=700".encode(), _MS_NOSUID | _MS_NODEV
    if libc.mount(b"tmpfs", b"/proc", b"tmpfs", flags | _MS_RDONLY, b"size=4k") != 0:
        return False
    return bool(libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", flags, size) == 0)


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
    that Landlock may be missing where it has a quota. has_network: it may connect to addresses of the internet, and
    serve none. Error: SandboxUnavailable.
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
        resource.RLIMIT_SIGPENDING: 64,  # timers too; they count for all processes of a user
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
        if not (is_inner and has_quota):
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
    if machine not in AUDIT_ARCH:
        raise SandboxUnavailable(f"no system call filter for {machine}")
    program = filter_program(machine, has_network=has_network)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, described, 0, 0) != 0:
        raise SandboxUnavailable(f"the kernel takes no system call filter: {os.strerror(ctypes.get_errno())}")
