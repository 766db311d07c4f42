"""The devices of one network namespace that carry the job's flows, and every change of them that the kernel tells."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace

from netprof.errors import NetprofError
from netprof.model import Device, LineRate
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.rtnetlink import Changed, LinkEvents
from netprof.probes.nic.line_rate import Condition, conditions, gone
from netprof.probes.probe import Row
from netprof.schema import LinkState

_SHARE, _AT_ONCE_S = 5e-3, 0.1
"""Looking may take this share of a core, and so many seconds at once: a few changes are each looked at; where devices
of any kind come and go all the time, it is done less often."""


@dataclass
class _Followed:
    """A device by its number, None before it was seen, and what it was like at the last look.

    `given_bps` is the line rate that a person gave.
    """

    index: int | None
    now: Condition
    given_bps: float | None

    def rated(self, condition: Condition) -> Condition:
        if self.given_bps is None:
            return condition
        given = LineRate(self.given_bps, "--line-rate")
        return replace(condition, line_rate=given, receive_rate=given)


class LinkHistory:
    """Follows devices of a namespace, which is closed with it; a device goes by the name it had when it was added.

    They are looked at when one is added, and when the kernel tells that any device of the namespace has changed: the
    line rate of one may depend on others.
    """

    def __init__(self, namespace: NetworkNamespace) -> None:
        self._namespace = namespace
        self._devices: dict[str, _Followed] = {}
        self._rows: list[Row] = []
        self._changed_ns: int | None = None
        self.changes_of_paths = 0
        """How often something changed that paths depend on: a device, a filter, a route."""
        self._spent_s, self._spent_at_s = 0.0, 0.0  # more than the share allows, as of the last look
        self._events: LinkEvents | None = None
        with suppress(NetprofError, OSError):  # the first look will say why
            self._events = namespace.run(LinkEvents)

    def add(self, device: str, given_bps: float | None = None) -> Device:
        """Follow one more device, and return what it is like now; `given_bps` is the line rate that a person gave."""
        followed = self._devices[device] = _Followed(None, gone(device), given_bps)
        try:
            self._look(time.monotonic_ns())
        except (NetprofError, OSError) as error:  # nothing is known but that it is there
            followed.now = followed.rated(Condition(device, LinkState.UP, LineRate(None, f"unknown: {error}")))
            self._tell(device, followed.now, time.monotonic_ns())
        now = followed.now
        return Device(device, self._namespace.inode, now.line_rate, now.mtu_bytes, now.kind)

    def names(self) -> dict[str, str]:
        """Return what each device goes by, by its name of today."""
        return {followed.now.name: device for device, followed in self._devices.items()}

    def has(self, name: str) -> bool:
        """Say whether a device that is followed has this name as of now."""
        self.listen(at_once=True)
        return name in self.names()

    def changes(self, *, final: bool = False) -> list[Row]:
        """Return a row for each device that was added or has changed since the last call; `final` does not wait."""
        self.listen(at_once=final)
        rows, self._rows = self._rows, []
        return rows

    def close(self) -> None:
        """Stop following."""
        if self._events is not None:
            self._events.close()
        self._namespace.close()

    def listen(self, *, at_once: bool = False) -> None:
        """Look again if the kernel said that something has changed, and it is time."""
        if self._changed_ns is None and (self._events is None or not self._events.are_waiting):
            return
        with suppress(NetprofError, OSError):  # not permitted, or out of descriptors: the next event tries again
            now_ns = time.monotonic_ns()
            changed = self._events.take() if self._events is not None else Changed()
            self.changes_of_paths += any(changed)
            if changed.links:
                self._changed_ns = self._changed_ns or now_ns
            if self._changed_ns is not None and (at_once or self._beyond_share_s() < _AT_ONCE_S):
                changed_ns, self._changed_ns = self._changed_ns, None
                self._look(changed_ns)

    def _look(self, at_ns: int) -> None:
        """Look at all devices, and tell of those that are new or changed at `at_ns`. Raises NetprofError, OSError."""
        begin_s = time.monotonic()
        wanted = {device: (followed.index, followed.now.name) for device, followed in self._devices.items()}
        present = self._namespace.run(lambda: conditions(wanted))
        for device, followed in self._devices.items():
            index, now = present[device] or (followed.index or 0, gone(followed.now.name))
            now = followed.rated(now)
            if followed.index is None or now != followed.now:
                self._tell(device, now, at_ns)
            followed.index, followed.now = index, now
        self._spent_s = self._beyond_share_s() + time.monotonic() - begin_s
        self._spent_at_s = time.monotonic()

    def _beyond_share_s(self) -> float:
        """Return for how long has been looked at devices beyond the share of the time."""
        return max(0.0, self._spent_s - _SHARE * (time.monotonic() - self._spent_at_s))

    def _tell(self, device: str, now: Condition, at_ns: int) -> None:
        self._rows.append(link_change(self._namespace.inode, device, at_ns, now))


def link_change(netns: int, device: str, since_ns: int, now: Condition) -> Row:
    """Return the row of table `link_changes` that tells what a device is like from a time on."""
    return {
        "device": device,
        "netns": netns,
        "since_ns": since_ns,
        "name": now.name,
        "state": int(now.state),
        "line_rate_bps": now.line_rate.bps or 0.0,
        "line_rate_source": now.line_rate.source,
        "qdisc": now.qdisc,
        "mtu_bytes": now.mtu_bytes,
        "receive_rate_bps": now.receive_rate.bps or 0.0,
        "receive_rate_source": now.receive_rate.source,
    }
