"""The shared libraries that a process has mapped, opened so that nobody can swap the file underneath.

A path in /proc/PID/maps is text that the process chose: it may hold any byte, name a file of another mount namespace,
a deleted file, or one that was replaced. So a library is opened through /proc/PID/map_files (the very file that is
mapped, whatever its name), or, without the right to that, through /proc/PID/root and compared with the mapping's device
and inode. From there on only the descriptor is used, also for attaching (`Library.path`).

A file system whose server is a program of a user's may keep the kernel waiting for ever. Who waits there cannot be
ended, not even by SIGKILL. Users mount such file systems where they like, and others on top of them in namespaces of
their own. So only those are trusted that root has mounted where this process looks.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass

from netprof.closing import Closing
from netprof.errors import NetprofError
from netprof.probes.frameworks.table import file_names
from netprof.probes.kernel.procfile import text_of
from netprof.probes.kernel.rights import DAC_READ_SEARCH, SYS_PTRACE, not_permitted

_MAPPING = re.compile(
    rb"(?P<range>[0-9a-f]+-[0-9a-f]+) (?P<mode>[rwxsp-]{4}) (?P<offset>[0-9a-f]+) "
    rb"(?P<major>[0-9a-f]+):(?P<minor>[0-9a-f]+) (?P<inode>[0-9]+)(?: +(?P<path>.*))?"
)
_DELETED = b" (deleted)"


@dataclass(frozen=True)
class Mapping:
    """An executable mapping of a file: the kernel's address range, the file's device and inode, and its path.

    It holds what lies from `offset` on in the file, in bytes.
    """

    address_range: str
    device: int
    inode: int
    path: bytes
    offset: int = 0

    @property
    def basename(self) -> str:
        """The file's name, with bytes that are no text made printable."""
        return self.path.rpartition(b"/")[2].decode("utf-8", "backslashreplace")


class Library(Closing):
    """A library file held open. `identity` is the same for two processes that map the same file."""

    def __init__(self, descriptor: int, name: str) -> None:
        status = os.fstat(descriptor)
        self.descriptor = descriptor
        self.name = name
        self.identity = (status.st_dev, status.st_ino)

    @property
    def path(self) -> str:
        """A path by which the kernel finds the open file itself, whatever happened to its name."""
        return f"/proc/self/fd/{self.descriptor}"

    def close(self) -> None:
        """Close the file; attached probes keep working. May be called twice."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def executable_mappings(pid: int) -> list[Mapping]:
    """Return the process's executable file mappings, the first of each file.

    Raises NetprofError when the process is gone, NotPermittedError when it may not be looked at.
    """
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            lines = file.read().split(b"\n")  # the kernel escapes newlines in paths, and nothing else
    except PermissionError as error:
        raise not_permitted(f"read the memory map of process {pid}", SYS_PTRACE) from error
    except OSError as error:
        raise NetprofError(f"process {pid} is gone", "give the pid of a running process") from error
    first: dict[tuple[int, int], Mapping] = {}
    for match in map(_MAPPING.fullmatch, lines):
        if match is None or b"x" not in match["mode"] or match["inode"] == b"0" or not match["path"]:
            continue
        device, inode = os.makedev(int(match["major"], 16), int(match["minor"], 16)), int(match["inode"])
        path = match["path"].removesuffix(_DELETED).replace(b"\\012", b"\n")
        mapping = Mapping(match["range"].decode(), device, inode, path, int(match["offset"], 16))
        first.setdefault((device, inode), mapping)
    return list(first.values())


def matches(mapping: Mapping, pattern: str) -> bool:
    """Say whether the mapped file's name is one that a pattern of the tables, such as `libtorch_cpu*.so*`, means."""
    name = mapping.path.rpartition(b"/")[2].replace(b"\n", b"\\012")  # as the kernel writes it
    return re.fullmatch(file_names(pattern), name) is not None


def open_library(pid: int, mapping: Mapping) -> Library:
    """Open the file behind a mapping. Raises NetprofError if it cannot be had, or lies where nothing may answer."""
    if may_hang(pid, mapping.device):
        raise NetprofError(
            f"{mapping.basename} of process {pid} lies on a file system that a user's program serves (FUSE), which may "
            "hold the recorder up for ever",
            "install it on a disk, or let root mount that file system on the host",
        )
    try:
        return Library(_open_regular(f"/proc/{pid}/map_files/{mapping.address_range}"), mapping.basename)
    except OSError as error:
        reason = error
    try:
        # Bytes, since a path need not be text; relative to the process's own root and mount namespace.
        descriptor = _open_regular(b"/proc/%d/root" % pid + mapping.path)
    except OSError:
        raise NetprofError(
            f"cannot open {mapping.basename} of process {pid}: {os.strerror(reason.errno or 0)}",
            not_permitted("open it", SYS_PTRACE, DAC_READ_SEARCH).hint,
        ) from reason
    status = os.fstat(descriptor)
    if (status.st_dev, status.st_ino) != (mapping.device, mapping.inode):
        os.close(descriptor)
        raise NetprofError(
            f"the file {mapping.basename} that process {pid} runs was replaced on disk: only root can open the old one",
            "run it with sudo",
        )
    return Library(descriptor, mapping.basename)


def _open_regular(path: str | bytes) -> int:
    """Open for reading what is a regular file: a look first (O_PATH), since opening a device or a pipe does things."""
    look = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(look).st_mode):
            raise OSError(0, "not a regular file")
        return os.open(f"/proc/self/fd/{look}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(look)


_SERVED = "fuse"
_LAYERED = "overlay"


def may_hang(pid: int, device: int) -> bool:
    """Say whether a file on a device, as process `pid` has it mapped, may lie on a file system that never answers.

    The device is a file system's, as /proc/PID/maps and mountinfo name it. A user who is not root records jobs of
    their own, and waits for no other.
    """
    if os.geteuid() != 0:
        return False
    for table in ("self", "1"):
        if (known := _mounts(table).get(device)) is not None:
            kind, options = known
            return kind.startswith(_SERVED) and "user_id=0" not in options
    kind, _ = _mounts(str(pid)).get(device, ("", []))
    if not kind:
        return os.major(device) == 0  # of no disk, and mounted nowhere any more
    return kind.startswith(_SERVED) or (kind == _LAYERED and not _same_user_namespace(pid))


def _mounts(process: str) -> dict[int, tuple[str, list[str]]]:
    """Return the kind and the options of every file system that a process sees, by its device."""
    mounts = {}
    for line in text_of(f"/proc/{process}/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        major, _, minor = before.split()[2].partition(":")
        kind, _, options = (*after.split(), "", "")[:3]
        mounts[os.makedev(int(major), int(minor))] = kind, options.split(",")
    return mounts


def _same_user_namespace(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/user") == os.readlink("/proc/self/ns/user")  # noqa: PTH115
    except OSError:
        return False
