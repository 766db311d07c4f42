"""What /proc says of one process. All of it was written by that process or its user: nothing in it is believed.

psutil reads the same files, but cannot tell a kernel thread or an unreadable environment apart from an empty one, and
its `children()` reads every process of the machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from netprof.probes.kernel.pids import namespace_pids
from netprof.probes.kernel.procfile import text_of
from netprof.redact import without_secrets

PROC = "/proc"
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD
_MAX_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 16
_MAX_COMMAND_CHARACTERS = 300
_ENDED_STATES = "ZXx"
_TRIES = 3
_ESTABLISHED = b"01"  # of /proc/net/tcp


@dataclass(frozen=True)
class Stat:
    """The part of /proc/PID/stat that is used. `start_ticks` is in clock ticks after boot."""

    pid: int
    name: str
    state: str
    parent: int
    kernel_thread: bool
    start_ticks: int

    @property
    def ended(self) -> bool:
        """Tell whether the process has ended and only waits to be reaped."""
        return self.state in _ENDED_STATES


def parse_stat(data: bytes) -> Stat:
    """Parse /proc/PID/stat; the name in it may hold blanks and parentheses. Raises ValueError or IndexError."""
    head, _, tail = data.rpartition(b")")
    pid, _, name = head.partition(b"(")
    fields = tail.split()  # fields[0] is field 3 of proc(5)
    return Stat(
        pid=int(pid),
        name=printable(name),
        state=fields[0].decode(),
        parent=int(fields[1]),
        kernel_thread=bool(int(fields[6]) & _KERNEL_THREAD),
        start_ticks=int(fields[19]),
    )


def read_stat(pid: int) -> Stat | None:
    """Return the state of process `pid`, None if there is no such process."""
    try:
        return parse_stat(_read(f"{PROC}/{pid}/stat"))
    except (OSError, ValueError, IndexError):
        return None


def process_of(pid: int) -> int:
    """Return the process that thread `pid` belongs to (itself, if it is a process). Raises OSError if there is none."""
    for line in _read(f"{PROC}/{pid}/status").split(b"\n"):
        if line.startswith(b"Tgid:"):
            return int(line[5:])
    return pid


def read_environment(pid: int, names: Iterable[str]) -> dict[str, str]:
    """Return those variables among `names` that process `pid` was started with. Raises OSError."""
    data = b"\0" + _read(f"{PROC}/{pid}/environ")
    values: dict[str, str] = {}
    for name in names:
        _, assigned, rest = data.partition(b"\0" + name.encode() + b"=")
        if assigned:
            values[name] = printable(rest.partition(b"\0")[0])
    return values


def environment(pid: int, names: Iterable[str]) -> dict[str, str]:
    """Return the same; nothing of a process that has ended, or may not be looked at."""
    try:
        return read_environment(pid, names)
    except OSError:
        return {}


def was_started_with(pid: int, assignments: Iterable[str]) -> bool:
    """Tell whether process `pid` was started with one of `assignments` (NAME=value); no, if it may not be looked at."""
    try:
        data = b"\0" + _read(f"{PROC}/{pid}/environ") + b"\0"
    except OSError:
        return False
    return any(f"\0{assignment}\0".encode() in data for assignment in assignments)


def command_line(pid: int) -> str:
    """Return the command line of process `pid` on one line, cut to a length for people; "" if it cannot be read.

    Secrets in it are hidden (`netprof.redact`).
    """
    try:
        words = _read(f"{PROC}/{pid}/cmdline", _CHUNK_BYTES).rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    text = " ".join(without_secrets([printable(word) for word in words]))
    return text if len(text) <= _MAX_COMMAND_CHARACTERS else text[: _MAX_COMMAND_CHARACTERS - 1] + "…"


def namespace(pid: int, kind: str) -> int:
    """Return the inode of a namespace of process `pid`, as "net", 0 if it cannot be read."""
    try:
        return Path(f"{PROC}/{pid}/ns/{kind}").stat().st_ino
    except OSError:
        return 0


def pid_inside(pid: int) -> int:
    """Return the pid that process `pid` has in a PID namespace of its own; 0 where it is in that of /proc, or gone."""
    try:
        numbers = namespace_pids(pid)
    except OSError:
        return 0
    return numbers[-1] if len(numbers) > 1 else 0


def cgroups(pid: int) -> str:
    """Return the cgroups that process `pid` is in, as /proc says them; "" if they cannot be read."""
    return text_of(f"{PROC}/{pid}/cgroup")


def mapped(pid: int, pattern: re.Pattern[bytes]) -> set[int]:
    """Return the last groups by which `pattern` matches lines of the memory map of process `pid`. Raises OSError."""
    # In pieces, each of whole lines: there is no limit to how much a process maps.
    parts = _parts(f"{PROC}/{pid}/maps")
    return {match.lastindex or 0 for lines in parts for match in pattern.finditer(lines)}


def sockets(pid: int) -> set[int]:
    """Return the sockets that process `pid` holds, by inode; none if it may not be looked at."""
    return {int(name[8:-1]) for name in open_files(pid) if name.startswith("socket:[")}


def open_files(pid: int) -> list[str]:
    """Return what process `pid` has open, by name; none if it may not be looked at."""
    path, targets = f"{PROC}/{pid}/fd", []
    for name in _names(path):
        with suppress(OSError):  # it was closed meanwhile
            targets.append(str(Path(path, name).readlink()))
    return targets


def connections(pid: int) -> set[int]:
    """Return the established TCP connections that process `pid` holds, by inode; none if it may not be looked at."""
    held, established = sockets(pid), set()
    for path in (f"{PROC}/{pid}/net/tcp", f"{PROC}/{pid}/net/tcp6") if held else ():
        with suppress(OSError):
            rows = (line.split() for line in _read(path).splitlines()[1:])
            established |= {int(fields[9]) for fields in rows if len(fields) > 9 and fields[3] == _ESTABLISHED}
    return held & established


def children(pid: int) -> list[int]:
    """Return the child processes that any thread of `pid` has started and that still live."""
    if not _kernel_lists_children():
        stats = map(read_stat, processes())
        return [stat.pid for stat in stats if stat is not None and stat.parent == pid]
    pids: set[int] = set()
    for _ in range(_TRIES):
        complete = True
        for thread in _names(f"{PROC}/{pid}/task"):
            try:
                pids.update(map(int, _read(f"{PROC}/{pid}/task/{thread}/children").split()))
            except OSError:  # the thread has ended: another one inherits its children, perhaps one already looked at
                complete = False
        if complete:
            break
    return sorted(pids)


def threads_of(pid: int) -> set[int]:
    """Return the threads of process `pid`; none if it is gone."""
    return set(map(int, _names(f"{PROC}/{pid}/task")))


def processes(owners: Container[int] | None = None) -> list[int]:
    """Return the pid of every process that can be seen, or of those that belong to users with an id in `owners`."""
    pids = []
    with os.scandir(PROC) as entries:
        for entry in entries:
            with suppress(OSError):  # it has ended
                if entry.name.isdigit() and (owners is None or entry.stat(follow_symlinks=False).st_uid in owners):
                    pids.append(int(entry.name))
    return pids


def owner(pid: int) -> int:
    """Return the user id of process `pid`, -1 if there is no such process."""
    try:
        return Path(f"{PROC}/{pid}").stat().st_uid
    except OSError:
        return -1


def real_user(pid: int) -> int:
    """Return the id of the user who started process `pid`, -1 if there is no such process.

    `owner` is whose rights it has, as root's of a program with the set-user-ID bit.
    """
    try:
        line = next(line for line in _read(f"{PROC}/{pid}/status").split(b"\n") if line.startswith(b"Uid:"))
        return int(line.split()[1])
    except (OSError, ValueError, StopIteration):
        return -1


def printable(raw: bytes) -> str:
    """Return text that no terminal and no table can trip over: control characters and non-text bytes escaped."""
    text = raw.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _names(path: str) -> list[str]:
    """Return the names in a directory; [] if it is gone."""
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


@lru_cache(maxsize=1)
def _kernel_lists_children() -> bool:
    return Path(f"{PROC}/self/task/{os.getpid()}/children").exists()  # needs CONFIG_PROC_CHILDREN


def _read(path: str, limit_bytes: int = _MAX_BYTES) -> bytes:
    """Read a file of /proc up to a limit. Raises OSError."""
    parts: list[bytes] = []
    total = 0
    for part in _parts(path):
        parts.append(part)
        total += len(part)
        if total >= limit_bytes:
            break
    return b"".join(parts)


def _parts(path: str) -> Iterator[bytes]:
    """Yield a file of /proc piece by piece, as the kernel gives it. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while part := os.read(descriptor, _CHUNK_BYTES):
            yield part
    finally:
        os.close(descriptor)
