"""What a process waits for before it trains: name servers that it asks, and listen queues that are full."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from netprof.model import Target
from netprof.probes.job import procfs
from netprof.probes.series import Measure
from netprof.schema import ASKS, COUNT, LEVEL, LISTEN_OVERFLOWS, LISTENS

_DNS, _LISTEN = 53, "0A"
_MOST_BYTES = 1 << 20
_MOST_OWNERS, _MOST_ADDRESSES = 8, 64
_OVERFLOWS = Measure(
    LISTEN_OVERFLOWS, "times", COUNT, "connections that found a listen queue full, in the process's network namespace"
)
_MASTER = "MASTER_ADDR"

Sample = tuple[int, Measure, int]
"""A process, what is measured of it, and the value."""


class StartUp:
    """Looks at the sockets of processes that do not train yet, a namespace at a time."""

    def __init__(self) -> None:
        self._asked: dict[tuple[int, str], Measure] = {}
        self._connected: set[tuple[int, str, int]] = set()  # namespaces, addresses and ports
        self._owners: dict[int, tuple[int, str]] = {}  # of sockets that listen, by inode
        self.took_s = 0.0

    def connects(self, netns: int, address: str, port: int) -> None:
        """Learn where a process of the job connects to."""
        if len(self._connected) < _MOST_ADDRESSES:
            self._connected.add((netns, address, port))

    def look(self, targets: Sequence[Target]) -> list[Sample]:
        """Return what is true now of each process, and of what ended since the last look that it has."""
        begin_s = time.thread_time()
        samples: list[Sample] = []
        seen: set[tuple[int, str]] = set()
        by_netns: dict[int, list[int]] = {}
        for target in targets:
            by_netns.setdefault(target.netns, []).append(target.pid)
        for netns, pids in by_netns.items():
            if (count := _overflows(_read(pids[0], "netstat"))) is not None:
                samples.append((pids[0], _OVERFLOWS, count))
            for pid, server in _name_servers(pids):
                seen.add((pid, server))
                samples.append((pid, self._asked.setdefault((pid, server), _asks(pid, server)), 1))
            samples += self._listeners(netns, pids)
        samples += [(key[0], self._asked.pop(key), 0) for key in set(self._asked) - seen]
        self.took_s = time.thread_time() - begin_s
        return samples

    def _listeners(self, netns: int, pids: Sequence[int]) -> Iterator[Sample]:
        """Yield who else of this host listens where the processes connect to, in their namespace."""
        wanted = {(address, port) for of, address, port in self._connected if of == netns}
        rows = [*_sockets(pids[0], "tcp"), *_sockets(pids[0], "tcp6")] if wanted else []
        listening = {port: inode for (_, port), _, state, inode in rows if state == _LISTEN}
        ours = {inode for pid in pids for inode in procfs.sockets(pid)} if listening else set()
        local = {own[0] for own, *_ in rows}
        for address, port in sorted(wanted):
            inode = listening.get(port, 0)
            is_here = address in local or ipaddress.ip_address(address).is_loopback
            is_new = inode not in self._owners
            if not inode or not is_here or inode in ours or (is_new and len(self._owners) >= _MOST_OWNERS):
                continue
            if inode not in self._owners:
                self._owners[inode] = _owner(inode)
            pid, name = self._owners[inode]
            if pid:
                what = f"1 while this process, which is none of the job, listens there; {name}"
                yield pid, Measure(f"{LISTENS}{_written(address, port)} ({name})", "", LEVEL, what), 1


def _asks(pid: int, server: str) -> Measure:
    """Return the measure of a process that asks a name server, with the name that it most likely asks for."""
    master = procfs.environment(pid, [_MASTER]).get(_MASTER, "")
    try:
        ipaddress.ip_address(master)
        master = ""
    except ValueError:
        master = master[:80]
    about = f" ({_MASTER}={master})" if master else ""
    return Measure(f"{ASKS}{server}{about}", "", LEVEL, "1 while it waits for an answer of that name server")


def _name_servers(pids: Sequence[int]) -> set[tuple[int, str]]:
    """Return which of some processes, of one namespace, have a socket to a name server."""
    asking = {
        inode: _written(*remote)
        for kind in ("udp", "udp6")
        for _, remote, _, inode in _sockets(pids[0], kind)
        if remote[1] == _DNS
    }
    return {(pid, asking[inode]) for pid in pids for inode in procfs.sockets(pid) & set(asking)} if asking else set()


def _sockets(pid: int, kind: str) -> list[tuple[tuple[str, int], tuple[str, int], str, int]]:
    """Return the sockets of a process's namespace: local and remote address, state and inode."""
    rows = []
    for line in _read(pid, kind).decode("ascii", "replace").splitlines()[1:]:
        words = line.split()
        if len(words) > 9 and words[9].isdigit():
            rows.append((_address(words[1]), _address(words[2]), words[3], int(words[9])))
    return rows


def _address(text: str) -> tuple[str, int]:
    """Return an address as /proc/net writes it: words of 32 bits in the host's order, and the port."""
    words, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int(port, 16)


def _written(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _overflows(text: bytes) -> int | None:
    """Return ListenOverflows of /proc/net/netstat; None where the kernel does not say it."""
    names: Collection[bytes] = ()
    for line in text.splitlines():
        if line.startswith(b"TcpExt:"):
            words = line.split()
            if names and b"ListenOverflows" in names:
                return int(words[list(names).index(b"ListenOverflows")])
            names = words
    return None


def _owner(inode: int) -> tuple[int, str]:
    """Return which process of this host holds a socket, and what it is called; (0, "") where none is found."""
    for pid in procfs.processes():
        if inode in procfs.sockets(pid):
            stat = procfs.read_stat(pid)
            return pid, stat.name if stat is not None else ""
    return 0, ""


def _read(pid: int, name: str) -> bytes:
    try:
        with Path(f"/proc/{pid}/net/{name}").open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return b""
