"""The hosts that recorded the job: whose ranks they run, what recording cost there, and how their clocks compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from netprof.analysis.definitions import CLOCKS, Definition
from netprof.analysis.evidence import Evidence
from netprof.analysis.form import Grid, Part
from netprof.analysis.section import Analysis, Section
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


def _conclude(analysis: Analysis) -> tuple[HostSummary, ...]:
    evidence = analysis.evidence
    return tuple(HostSummary(host, _ranks(host, evidence)) for host in evidence.hosts)


def _ranks(host: Host, evidence: Evidence) -> tuple[int, ...]:
    alone = len(evidence.hosts) == 1
    return tuple(sorted(rank for pid, rank in evidence.ranks.items() if alone or pid in host.pids))


def _document(hosts: Sequence[HostSummary]) -> dict[str, Any]:
    return {"hosts": [_host(each) for each in hosts]}


def _host(summary: HostSummary) -> dict[str, Any]:
    host, cost = summary.host, summary.host.meta.cost
    return {
        "host": host.name,
        "boot_id": host.meta.boot_id,
        "trace": host.trace or None,
        "ranks": list(summary.ranks),
        "clock": _clock(host.clock),
        "losses": dataclasses.asdict(host.meta.losses),
        "cpu_share": cost.cpu_share,
    }


def _clock(clock: HostClock) -> dict[str, Any]:
    return {
        "offset_s": clock.offset_ns / 1e9,
        "drift_ppm": clock.drift * 1e6,
        "bound_s": _scaled(clock.bound_ns, 1e-9),
        "drift_bound_ppm": _scaled(clock.drift_bound, 1e6),
        "source": clock.source,
        "residual_s": _scaled(clock.residual_ns, 1e-9),
        "pairs": clock.pairs,
    }


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


def _parts(hosts: Sequence[HostSummary]) -> Sequence[Part]:
    if len(hosts) < 2:
        return ()
    headings = ("host", "ranks", "clock ahead by", "drift", "known to", "from", "CPU")
    grid = Grid(
        headings, [_row(each) for each in hosts], frozenset({"ranks", "from"}), ("CPU", "drift", "from"), _BRIEF
    )
    return [Part("Hosts", f"clocks against that of {hosts[0].host.name}", [grid])]


def _row(summary: HostSummary) -> tuple[str, ...]:
    clock, cost = summary.host.clock, summary.host.meta.cost
    same = clock.source in ("reference", "same host")
    return (
        summary.host.name,
        ",".join(map(str, summary.ranks)) or "?",
        "-" if same else _signed(clock.offset_ns),
        "-" if same or clock.drift_bound is None else f"{clock.drift * 1e6:+.3f} ppm",
        "-" if same else UNKNOWN if clock.bound_ns is None else f"±{duration(clock.bound_ns / 1e9)}",
        clock.source,
        share(cost.cpu_s / cost.wall_s) if cost.wall_s else "-",
    )


def _signed(nanoseconds: float) -> str:
    return ("-" if nanoseconds < 0 else "") + duration(abs(nanoseconds) / 1e9)


def _notes(hosts: Sequence[HostSummary]) -> Iterator[str]:
    for host in (each.host for each in hosts):
        if host.clock.bound_ns is not None and host.clock.bound_ns > _WIDE_NS:
            yield (
                f"the clock of {host.name} is known to {duration(host.clock.bound_ns / 1e9)}: no rank there is called "
                "late by less"
            )


def _definitions(hosts: Sequence[HostSummary]) -> Sequence[Definition]:
    return (CLOCKS,) if len(hosts) > 1 else ()


HOSTS = Section("hosts", _conclude, (), _document, _parts, _notes, _definitions)
