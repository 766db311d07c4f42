"""The paths of the job's flows, found anew when devices or routes change: rows of `flow_paths`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from netprof.probes.nic.path import Hop, find_path
from netprof.probes.nic.places import Place, Places
from netprof.schema import HopKind

_SHARE = 2e-3  # of a core, that finding paths again may take
_MOST = 1024  # of addresses that paths to are looked for: a rank talks to few, over devices that are few


class Way(NamedTuple):
    """What a path is of: a flow's device, which way, and the address at the other end."""

    netns: int
    device: str
    direction: int
    remote_addr: str


class Paths:
    """Finds the paths of `places`."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._wanted: dict[Way, tuple[Hop, ...] | None] = {}
        self._changed_ns: int | None = None
        self._next_s = 0.0

    def want(self, way: Way) -> bool:
        """Look for one more path; tell whether it is new."""
        if way in self._wanted or len(self._wanted) >= _MOST:
            return False
        self._wanted[way] = None
        return True

    @property
    def ways(self) -> tuple[Way, ...]:
        """The paths that are looked for."""
        return tuple(self._wanted)

    def changed(self, at_ns: int) -> None:
        """Look for all paths again, since devices or routes have changed."""
        self._changed_ns = self._changed_ns or at_ns

    def look(self) -> list[dict[str, Any]]:
        """Return rows of table `flow_paths` for each path that is new or another one."""
        now_s = time.monotonic()
        again = self._changed_ns is not None and now_s >= self._next_s
        since_ns = self._changed_ns if again and self._changed_ns is not None else time.monotonic_ns()
        ways = [way for way, hops in self._wanted.items() if hops is None or again]
        if not ways:
            return []
        rows = [row for way in ways for row in self._look_at(way, since_ns)]
        for place in {way.netns for way in ways}:
            if (known := self._places.known(place)) is not None:
                known.forget()
        if again:
            self._changed_ns = None
        self._next_s = now_s + (time.monotonic() - now_s) / _SHARE
        return rows

    def _look_at(self, way: Way, since_ns: int) -> Iterator[dict[str, Any]]:
        hops, before = self._find(way), self._wanted[way]
        self._wanted[way] = hops
        if hops == before or (before is None and len(hops) < 2):
            return
        for number, hop in enumerate(hops):
            yield {
                **way._asdict(),
                "since_ns": since_ns,
                "hop": number,
                "kind": int(hop.kind),
                "hop_netns": hop.netns,
                "hop_device": hop.device,
                "hop_direction": hop.direction,
                "header_bytes": hop.header_bytes,
                "about": hop.about,
            }

    def _find(self, way: Way) -> tuple[Hop, ...]:
        place: Place | None = self._places.known(way.netns)
        if place is None:
            return ()
        try:
            return find_path(
                self._places, place, way.device, way.direction, way.remote_addr, {each.netns for each in self._wanted}
            )
        except (OSError, ValueError) as error:  # a namespace that ends meanwhile, an address that is none
            return (Hop(HopKind.UNSEEN, 0, "", way.direction, 0, f"the path could not be found: {error}"),)

    @property
    def devices(self) -> set[tuple[int, str]]:
        """The devices on any path, by namespace and name."""
        found = (hop for hops in self._wanted.values() for hop in hops or ())
        return {(hop.netns, hop.device) for hop in found if hop.kind is not HopKind.UNSEEN}
