"""The paths of the job's flows, found anew when devices or routes change: rows of `flow_paths`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from netprof.probes.nic.namespaces import Namespaces
from netprof.probes.nic.path_walk import Hop, find_path
from netprof.schema import HopKind

_SHARE = 2e-3  # of a core, that finding paths again may take
_MOST = 1024  # of addresses that paths to are looked for: a rank talks to few, over devices that are few


class WantedPath(NamedTuple):
    """What a path is of: a flow's device, which way, and the address at the other end."""

    netns: int
    device: str
    direction: int
    remote_addr: str


class FlowPaths:
    """Finds the paths of `namespaces`."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._wanted: dict[WantedPath, tuple[Hop, ...] | None] = {}
        self._changed_ns: int | None = None
        self._next_s = 0.0

    def want(self, key: WantedPath) -> bool:
        """Look for one more path; tell whether it is new."""
        if key in self._wanted or len(self._wanted) >= _MOST:
            return False
        self._wanted[key] = None
        return True

    @property
    def keys(self) -> tuple[WantedPath, ...]:
        """The paths that are looked for."""
        return tuple(self._wanted)

    def changed(self, at_ns: int) -> None:
        """Look for all paths again, since devices or routes have changed."""
        self._changed_ns = self._changed_ns or at_ns

    def look(self) -> list[dict[str, Any]]:
        """Return rows of table `flow_paths` for each path that is new or another one."""
        now_s = time.monotonic()
        changed_ns = self._changed_ns if now_s >= self._next_s else None
        keys = [key for key, hops in self._wanted.items() if hops is None or changed_ns]
        if not keys:
            return []
        since_ns = changed_ns or time.monotonic_ns()
        rows = [row for key in keys for row in self._look_at(key, since_ns)]
        for netns in {key.netns for key in keys}:
            if (namespace := self._namespaces.known(netns)) is not None:
                namespace.forget()
        if changed_ns:
            self._changed_ns = None
        self._next_s = now_s + (time.monotonic() - now_s) / _SHARE
        return rows

    def _look_at(self, key: WantedPath, since_ns: int) -> Iterator[dict[str, Any]]:
        hops, before = self._find(key), self._wanted[key]
        self._wanted[key] = hops
        if hops == before or (before is None and len(hops) < 2):
            return
        for number, hop in enumerate(hops):
            yield {
                **key._asdict(),
                "since_ns": since_ns,
                "hop": number,
                "kind": int(hop.kind),
                "hop_netns": hop.netns,
                "hop_device": hop.device,
                "hop_direction": hop.direction,
                "header_bytes": hop.header_bytes,
                "about": hop.about,
            }

    def _find(self, key: WantedPath) -> tuple[Hop, ...]:
        namespace = self._namespaces.known(key.netns)
        if namespace is None:
            return ()
        try:
            recorded = {wanted.netns for wanted in self._wanted}
            return find_path(self._namespaces, namespace, key.device, key.direction, key.remote_addr, recorded)
        except (OSError, ValueError) as error:  # a namespace that ends meanwhile, an address that is none
            return (Hop(HopKind.UNSEEN, 0, "", key.direction, 0, f"the path could not be found: {error}"),)

    @property
    def devices(self) -> set[tuple[int, str]]:
        """The devices on any path, by namespace and name."""
        hops = (hop for path in self._wanted.values() for hop in path or ())
        return {(hop.netns, hop.device) for hop in hops if hop.kind is not HopKind.UNSEEN}
