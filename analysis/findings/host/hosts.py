"""The hosts that recorded the job: whose ranks they run, what recording cost there, and how their clocks compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from netprof.analysis.declared import Column, json_of, table
from netprof.analysis.definitions import CLOCKS
from netprof.analysis.evidence import Evidence
from netprof.analysis.form import Part
from netprof.analysis.section import Section
from netprof.model import Host, HostClock
from netprof.units import UNKNOWN, duration, share

_WIDE_NS = 10**6
"""How wide a bound is that is worth a note: an iteration holds many events that are closer."""
_BRIEF = 64


@dataclass(frozen=True)
class HostSummary:
    """A host, and which ranks of the job are recorded there."""

    host: Host
    ranks: tuple[int, ...]


def _ranks(host: Host, evidence: Evidence) -> tuple[int, ...]:
    alone = len(evidence.hosts) == 1
    return tuple(sorted(rank for pid, rank in evidence.ranks.items() if alone or pid in host.pids))


def _host(summary: HostSummary) -> dict[str, Any]:
    clock = summary.host.clock
    return {
        **json_of(summary, "host=host.name boot_id=host.meta.boot_id ranks losses=host.meta.losses"),
        "trace": summary.host.trace or None,
        "cpu_share": summary.host.meta.cost.cpu_share,
        "clock": {
            **json_of(clock, "offset_s bound_s source residual_s pairs"),
            "drift_ppm": clock.drift * 1e6,
            "drift_bound_ppm": None if clock.drift_bound is None else clock.drift_bound * 1e6,
        },
    }


def _parts(hosts: Sequence[HostSummary]) -> Sequence[Part]:
    if len(hosts) < 2:
        return ()
    return [Part("Hosts", f"clocks against that of {hosts[0].host.name}", [table(_COLUMNS, hosts, brief=_BRIEF)])]


def _of_clock(heading: str, write: Callable[[HostClock], str | None], goes: int = 0) -> Column:
    """Return a column on clocks; the reference has none against itself."""

    def value(summary: HostSummary) -> str | None:
        clock = summary.host.clock
        return None if clock.source in ("reference", "same host") else write(clock)

    return Column(heading, value, none="-", goes=goes)


_COLUMNS = (
    Column("host", "host.name"),
    Column("ranks", "ranks", lambda ranks: ",".join(map(str, ranks)) or "?", left=True),
    _of_clock("clock ahead by", lambda clock: duration(clock.offset_ns / 1e9)),
    _of_clock("drift", lambda clock: None if clock.drift_bound is None else f"{clock.drift * 1e6:+.3f} ppm", goes=2),
    _of_clock("known to", lambda clock: UNKNOWN if clock.bound_ns is None else f"±{duration(clock.bound_ns / 1e9)}"),
    Column("from", "host.clock.source", left=True, goes=3),
    Column("CPU", "host.meta.cost.cpu_share", share, "-", goes=1),
)


def _notes(hosts: Sequence[HostSummary]) -> Iterator[str]:
    for host in (each.host for each in hosts):
        if host.clock.bound_ns is not None and host.clock.bound_ns > _WIDE_NS:
            yield (
                f"the clock of {host.name} is known to {duration(host.clock.bound_ns / 1e9)}: no rank there is called "
                "late by less"
            )


HOSTS = Section(
    "hosts",
    lambda analysis: tuple(HostSummary(host, _ranks(host, analysis.evidence)) for host in analysis.evidence.hosts),
    (),
    lambda hosts: {"hosts": [_host(each) for each in hosts]},
    _parts,
    _notes,
    lambda hosts: (CLOCKS,) if len(hosts) > 1 else (),
)
