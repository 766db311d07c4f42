"""Network namespaces that netprof may look into: the job's, its own, and those that a device's other end is in."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from netprof.errors import NetprofError
from netprof.probes.kernel.netlink import WireGuard
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.procfile import ProcFile
from netprof.probes.kernel.rtnetlink import Address, Link, Neighbour, RouteSocket

_NAMED = Path("/run/netns")
_LOOK_AGAIN_S = 5.0
_AF_BRIDGE = 7


class Namespace:
    """One network namespace: what its devices are like, as of the last `forget`. Methods raise OSError."""

    def __init__(self, handle: NetworkNamespace) -> None:
        self.handle = handle
        self.route: RouteSocket = handle.run(RouteSocket)

    @property
    def inode(self) -> int:
        """What names it."""
        return self.handle.inode

    @cached_property
    def links(self) -> dict[int, Link]:
        """Its devices, by number."""
        return {link.index: link for link in self.route.links()}

    @cached_property
    def addresses(self) -> list[Address]:
        """The IP addresses of its devices."""
        return self.route.addresses()

    @cached_property
    def neighbours(self) -> list[Neighbour]:
        """The link-layer addresses of its neighbours."""
        return [*self.route.neighbours(socket.AF_INET), *self.route.neighbours(socket.AF_INET6)]

    @cached_property
    def forwarding(self) -> list[Neighbour]:
        """What its bridges and VXLANs have learnt: behind which port, or remote end, an address is."""
        return self.route.neighbours(_AF_BRIDGE)

    def named(self, name: str) -> Link | None:
        """Return a device by its name; None where there is none."""
        return next((link for link in self.links.values() if link.name == name), None)

    def has(self, address: bytes) -> bool:
        """Tell whether an IP address is one of this namespace."""
        return any(each.address == address for each in self.addresses)

    def mac_of(self, index: int, address: bytes) -> bytes:
        """Return the link-layer address of a neighbour by a device; b"" where it is not known."""
        return next((n.mac for n in self.neighbours if n.index == index and n.address == address), b"")

    def endpoints(self, device: bytes) -> list[bytes]:
        """Return the addresses to which a WireGuard device sends."""
        with self.handle.run(WireGuard) as wireguard:
            return wireguard.endpoints(device)

    def counters(self) -> ProcFile:
        """Open the counters of its devices."""
        return self.handle.run(lambda: ProcFile("/proc/thread-self/net/dev"))

    def forget(self) -> None:
        """Let what was asked be asked again."""
        for name in ("links", "addresses", "neighbours", "forwarding"):
            self.__dict__.pop(name, None)

    def close(self) -> None:
        """Let go of the namespace."""
        self.route.close()
        self.handle.close()


class Namespaces:
    """Opens namespaces as they are met, and keeps them; closed with it."""

    def __init__(self) -> None:
        self._open: dict[int, Namespace] = {}
        self._elsewhere: dict[tuple[int, int], int] = {}  # the namespace that one knows by a number
        self._seen: dict[int, Path] = {}  # where such a namespace can be opened
        self._next_s: dict[int, float] = {}  # when one may be asked again

    def take(self, handle: NetworkNamespace) -> Namespace | None:
        """Keep a namespace that is open; None where it may not be entered."""
        if handle.inode not in self._open:
            try:
                self._open[handle.inode] = Namespace(handle)
            except (NetprofError, OSError):
                return None
        return self._open[handle.inode]

    def known(self, netns: int) -> Namespace | None:
        """Return a namespace that is open already."""
        return self._open.get(netns)

    def elsewhere(self, namespace: Namespace, number: int | None) -> Namespace | None:
        """Return the namespace that one knows by a number, itself for None; None where it is not to be found."""
        if number is None:
            return namespace
        key = (namespace.inode, number)
        if key not in self._elsewhere:
            self._find(namespace)
        netns = self._elsewhere.get(key)
        if netns is not None and netns not in self._open:
            self._take_seen(netns)
            if netns not in self._open:
                del self._elsewhere[key]  # what it was seen by has ended
        return None if netns is None else self._open.get(netns)

    def close(self) -> None:
        """Let go of all namespaces."""
        for namespace in self._open.values():
            namespace.close()
        self._open.clear()

    def _find(self, namespace: Namespace) -> None:
        """Ask a namespace by which numbers it knows all namespaces that can be seen; not too often: there may be many.

        None of them is held open: that would keep the devices of a container that ends from going back to the host.
        """
        now_s = time.monotonic()
        if now_s < self._next_s.get(namespace.inode, 0.0):
            return
        self._next_s[namespace.inode] = now_s + _LOOK_AGAIN_S
        for path, handle in _visible():
            with handle, suppress(OSError):
                number = namespace.route.netns_id(handle.descriptor)
                if number >= 0 and (namespace.inode, number) not in self._elsewhere:
                    self._elsewhere[namespace.inode, number] = handle.inode
                    self._seen[handle.inode] = path

    def _take_seen(self, netns: int) -> None:
        with suppress(OSError):
            handle = _opened(self._seen[netns])
            if handle.inode != netns or self.take(handle) is None:
                handle.close()


def _opened(path: Path) -> NetworkNamespace:
    return NetworkNamespace(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))


def _visible() -> Iterator[tuple[Path, NetworkNamespace]]:
    """Yield every network namespace that a process in sight lives in, or that has a name, once each; open."""
    seen = set[int]()
    paths = [Path("/proc/thread-self/ns/net")]
    with suppress(OSError):
        paths += _NAMED.iterdir()
    with suppress(OSError):
        paths += [Path(entry.path, "ns", "net") for entry in os.scandir("/proc") if entry.name.isdigit()]
    for path in paths:
        with suppress(OSError):
            inode = path.stat().st_ino
            if inode not in seen:
                seen.add(inode)
                yield path, _opened(path)
