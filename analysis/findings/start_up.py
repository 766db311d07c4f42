"""What a job waits for that has not come to its first step: name servers, hosts, listen queues, other processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netprof.analysis.declared import json_of
from netprof.analysis.events.exits import clock_time
from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.advice import Advice
from netprof.analysis.findings.flows.connects import CONNECTS, FailedConnects
from netprof.analysis.findings.flows.seen_flows import SEEN_FLOWS, FlowSummary
from netprof.analysis.findings.names import name_on_host
from netprof.analysis.section import Analysis, Section
from netprof.analysis.tables.intervals import merge
from netprof.schema import ASKS, LISTEN_OVERFLOWS, LISTENS
from netprof.units import count, duration

_LEAST_ASKED_NS = 10**9
"""A name server that answers does so sooner."""
_FEW_BYTES = 4096
_LEAST_TRIES = 3
_TICK_NS = 500_000_000


@dataclass(frozen=True)
class Obstacle:
    """One thing that a job waits for before its first step, in a few words and in a sentence, and what repairs it."""

    kind: str
    headline: str
    sentence: str
    advice: Advice


def find_obstacles(
    evidence: Evidence, connects: Sequence[FailedConnects], flows: Sequence[FlowSummary]
) -> tuple[Obstacle, ...]:
    """Return what keeps a job from its first step, the surest first; nothing of a job that has come to one."""
    if len(evidence.iterations) or evidence.is_recent:
        return ()
    return (*_name_servers(evidence), *_full_queues(evidence), *_strangers(evidence, flows), *_unanswered(connects))


def _name_servers(evidence: Evidence) -> Iterator[Obstacle]:
    for (pid, name), (time_ns, value) in evidence.process_counts.series.items():
        if not name.startswith(ASKS) or not (value > 0).any():
            continue
        until_ns = np.append(time_ns[1:], time_ns[-1:] + _TICK_NS)
        asked = merge(time_ns[value > 0], until_ns[value > 0])
        if asked.total_ns < _LEAST_ASKED_NS:
            continue
        who, (server, _, about) = name_on_host(pid, evidence, "process"), name[len(ASKS) :].partition(" ")
        since = clock_time(evidence.meta, int(asked.begin_ns[0]))
        asked_for = f"for {duration(asked.total_ns / 1e9)} since {since}{f' {about}' if about else ''}"
        yield Obstacle(
            "name_server",
            f"NOT STARTED: {who} waits for name server {server}",
            f"{who} has waited for an answer of {server} (UDP) {asked_for}",
            Advice(
                f"see whether {server.rpartition(':')[0]} answers; take it out of /etc/resolv.conf, or give addresses "
                "instead of names (MASTER_ADDR, /etc/hosts)"
            ),
        )


_ALL = {
    "refused": "all refused",
    "given up at once": "each given up within a second: refused, or by a time limit that short",
    "not answered": "none answered",
}


def _unanswered(connects: Sequence[FailedConnects]) -> Iterator[Obstacle]:
    for each in connects:
        how = "refused" if each.answered else "given up at once" if each.at_once else "not answered"
        sent = f"{each.who + ': ' if each.who else ''}{count(each.packets, 'SYN')} to {each.remote}"
        address = "the address of rank 0 (MASTER_ADDR, /etc/hosts)"
        yield Obstacle(
            "refused" if each.answered else "unanswered",
            f"NOT STARTED: connections to {each.remote} are {how}",
            f"{sent}, {how if each.packets == 1 else _ALL[how]}",
            Advice(
                f"start what listens at {each.remote}, or correct the address (MASTER_ADDR, MASTER_PORT)"
                if each.answered or each.at_once
                else f"see whether {each.remote} is {address}, and what drops packets to it: a firewall, a route, a "
                "host that is down"
            ),
        )


def _full_queues(evidence: Evidence) -> Iterator[Obstacle]:
    for (pid, name), (_, value) in evidence.process_counts.series.items():
        more = int(value[-1] - value[0]) if name == LISTEN_OVERFLOWS and len(value) else 0
        if more <= 0:
            continue
        who, lasted = name_on_host(pid, evidence, "process"), duration(evidence.recording.total_ns / 1e9)
        yield Obstacle(
            "listen_queue",
            f"NOT STARTED: a listen queue of {who} is full: {count(more, 'connection')} dropped",
            f"ListenOverflows of {who}'s network namespace grew by {more} in {lasted}: who connects has to try again "
            "after 1, 2, 4 s and more",
            Advice(
                "raise net.core.somaxconn there before the job starts (the backlog of listen() is cut to it), or let "
                "fewer ranks connect at once",
                "sysctl -w net.core.somaxconn=4096",
            ),
        )


def _strangers(evidence: Evidence, flows: Sequence[FlowSummary]) -> Iterator[Obstacle]:
    for pid, name in evidence.process_counts.series:
        if not name.startswith(LISTENS):
            continue
        address, _, command = name[len(LISTENS) :].partition(" ")
        tries = [flow for flow in flows if flow.remote == address and _is_short(flow)]
        if len(tries) < _LEAST_TRIES:
            continue
        command = command.strip("()")
        yield Obstacle(
            "stranger",
            f"NOT STARTED: {address} is pid {pid} ({command}), which is no rank",
            f"{count(len(tries), 'connection')} to {address} were closed by pid {pid} ({command}), which is no process "
            "of the job",
            Advice(f"end pid {pid}, or give the job another port (MASTER_PORT)", f"ps -fp {pid}"),
        )


def _is_short(flow: FlowSummary) -> bool:
    return flow.tx.payload_bytes + flow.rx.payload_bytes < _FEW_BYTES and flow.rx.packets > 0


def _conclude(analysis: Analysis) -> tuple[Obstacle, ...]:
    return find_obstacles(analysis.evidence, analysis.of(CONNECTS), analysis.of(SEEN_FLOWS))


START_UP = Section(
    "start-up",
    _conclude,
    ("counters", "flows", "wire"),
    lambda found: {"start_up": [_document(each) for each in found]},
    merge=lambda parts, whole: parts[-1],
)
"""What keeps a job from its first step."""


def _document(each: Obstacle) -> dict[str, Any]:
    return json_of(each, "kind sentence", advice=each.advice.text)
