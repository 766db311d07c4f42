"""Why a transport does not fill its link: one synthetic job, of which TCP's clocks say one thing after another."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import synthetic
from support.synthetic import ITERATION_NS, START_NS, Job

from netprof.analysis.evidence import Evidence
from netprof.analysis.findings.transport.transport_reason import (
    UNKNOWN_FACTS,
    ClockSums,
    reason_of,
    transport_reason,
    trips_at_most,
    trips_of,
)
from netprof.trace import TraceReader

ITERATIONS = 10
WHOLE_US = ITERATIONS * ITERATION_NS // 1000
BUFFER = 1 << 20


def clocks(
    busy: float,
    receiver: float = 0.0,
    sender: float = 0.0,
    unsent: int = 0,
    queued: int = 0,
    rtt_us: int = 100,
    **more: int,
) -> dict[str, Any]:
    """TCP's samples of two flows at the begin and the end; `busy`, `receiver` and `sender` are shares of the time."""
    at_end = {"busy_us": busy, "rwnd_limited_us": receiver, "sndbuf_limited_us": sender}
    columns: dict[str, Any] = synthetic.tcp_columns(2, START_NS + ITERATIONS * ITERATION_NS)
    columns |= {name: [round(share * WHOLE_US)] * 2 + [0] * 2 for name, share in at_end.items()}
    columns |= {"notsent_bytes": [unsent] * 4, "send_buffer_bytes": [BUFFER] * 4, "send_queued_bytes": [queued] * 4}
    more = {"rtt_us": rtt_us, "min_rtt_us": rtt_us} | more
    return columns | {name: [value] * 4 for name, value in more.items()}


CASES = {
    "the receiver has no room": (clocks(1.0, receiver=0.2, unsent=9000), "receive_window"),
    "the send buffer is too small, TCP says": (clocks(1.0, sender=0.2), "send_buffer"),
    "the send buffer is too small, its level says": (clocks(1.0, queued=BUFFER - 1), "send_buffer"),
    "data waits and may not go": (clocks(1.0, unsent=9000), "congestion_window"),
    "little is ever handed over": (clocks(0.2, unsent=9000), "application"),
    "what is handed over goes at once": (clocks(1.0, queued=1000), "application"),
    "they were read but once": ({name: values[:2] for name, values in clocks(1.0).items()}, "unknown"),
    "a round trip takes longer than it could": (clocks(1.0, unsent=9000, rtt_us=42_000, min_rtt_us=40), "queue"),
    "a round trip is as long as it was": (
        clocks(1.0, unsent=9000, rtt_us=42_000, min_rtt_us=30_000),
        "congestion_window",
    ),
    "the program asked for a pace": (
        clocks(1.0, unsent=9000, pacing_bytes_per_s=25_000_000, pacing_limit_bytes_per_s=25_000_000),
        "pacing",
    ),
    "there is a pace that holds nothing back": (
        clocks(1.0, unsent=9000, pacing_bytes_per_s=25_000_000, unacked_bytes=20 * 1448, cwnd=20),
        "congestion_window",
    ),
    "the congestion control's pace holds back": (
        clocks(1.0, unsent=9000, pacing_bytes_per_s=25_000_000, unacked_bytes=4 * 1448, cwnd=20),
        "pacing",
    ),
    "a round trip takes longer than the link does": (clocks(1.0, unsent=9000, rtt_us=10_000_000), "small_messages"),
}


def said(job: Job, columns: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(synthetic, "tcp_columns", lambda ranks, end_ns: columns)
    job = job if job.wire else job.fill()
    evidence = Evidence.of_trace(TraceReader(job.write(folder / "t.netprof")))
    assert len(evidence.account.waiting)
    return transport_reason(evidence, evidence.account.waiting).name


@pytest.mark.parametrize("case", CASES)
def test_what_the_clocks_say(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, reason = CASES[case]
    assert said(Job(ITERATIONS), columns, tmp_path, monkeypatch) == reason


@pytest.mark.parametrize(
    ("size", "ranks", "unsent", "reason"),
    [
        (1_330_000, 2, 0, "small_messages"),
        (3_000_000, 2, 0, "application"),
        (3_000_000, 4, 0, "small_messages"),
        (3_000_000, 4, 900, "congestion_window"),
        (-1, 4, 0, "application"),
    ],
)
def test_round_trips_count_once_for_each_rank_but_one(size: int, ranks: int, unsent: int, reason: str) -> None:
    """10 ms there and back, 1 Gbit/s: 1.33 MB of two ranks are 10 ms on the way and 10.6 ms on the link."""
    trips = trips_of(np.array([size]), 10e6, 1e9)
    ran = ClockSums(busy=900, held_back=unsent, whole=1000)
    assert reason_of(ran, knows_rate=True, on_one_host=False, trips=trips, ranks=ranks).name == reason


@pytest.mark.parametrize(
    ("devices", "receiver", "reason"),
    [
        (["lo", "lo"], 0.0, "loopback"),
        (["lo", "lo"], 0.2, "receive_window"),
        (["lo", "eth0"], 0.0, "line_rate_unknown"),
        (["eth0", "eth0"], 0.0, "line_rate_unknown"),
        (["eth0", "eth0"], 0.2, "receive_window"),
    ],
)
def test_only_what_stays_on_a_host_has_no_line_to_ask_for(
    devices: list[str], receiver: float, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can give the line rate of the loopback device; its buffers may still be too small."""
    job = Job(ITERATIONS, rate_bps=None, one_device=True, flow_changes={"device": devices})
    assert said(job, clocks(1.0, receiver=receiver, unsent=9000), tmp_path, monkeypatch) == reason


@pytest.mark.parametrize(
    ("took_ms", "ranks", "reason"),
    [
        (5.6, 2, "small_messages"),
        (9.9, 2, "small_messages"),
        (20.0, 2, "line_rate_unknown"),
        (25.0, 4, "small_messages"),
        (80.0, 4, "line_rate_unknown"),
        (0.0, 2, "line_rate_unknown"),
    ],
)
def test_latency_needs_no_line_rate(took_ms: float, ranks: int, reason: str) -> None:
    """A round trip takes 5 ms. What a collective takes is mostly round trips, or it may be the link's."""
    trips = trips_at_most(np.array([took_ms * 1e6]).astype(np.int64), 5e6, ranks)
    ran = ClockSums(busy=900, held_back=0, whole=1000)
    assert reason_of(ran, knows_rate=False, on_one_host=False, trips=trips, ranks=ranks).name == reason


@pytest.mark.parametrize(("rtt_us", "reason"), [(100, "line_rate_unknown"), (60_000, "small_messages")])
def test_without_a_line_rate_the_collectives_own_time_tells(
    rtt_us: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said(Job(ITERATIONS, rate_bps=None), clocks(1.0, rtt_us=rtt_us), tmp_path, monkeypatch) == reason


@pytest.mark.parametrize(("by_program", "reason"), [(False, "loopback"), (True, "pacing")])
def test_on_one_host_only_a_program_s_own_pace_holds_back(by_program: bool, reason: str) -> None:
    """A congestion control's own pace, 37 Gbit/s there, follows how fast the CPUs copy."""
    facts = replace(UNKNOWN_FACTS, paced_bps=37e9, by_program=by_program)
    ran = ClockSums(busy=1000, held_back=900, whole=1000)
    told = reason_of(ran, knows_rate=False, on_one_host=True, trips=math.inf, ranks=2, facts=facts)
    assert told.name == reason


@pytest.mark.parametrize(
    ("share", "each", "reason"),
    [
        (1.5, 1, "pacing"),
        (10.0, 1, "congestion_window"),
        (0.0, 1, "congestion_window"),
        (1.5, 2, "pacing"),
        (5.0, 2, "congestion_window"),
    ],
)
def test_what_fq_holds_each_flow_to(
    share: float, each: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate that is far above what a flow sends holds nothing back, of however many that a process has."""
    job = Job(ITERATIONS, rate_bps=each * synthetic.RATE_BPS).fill()
    sent_bps = sum(row[3] for row in job.wire if row[:2] == (1, 0)) * 8e9 / (ITERATIONS * ITERATION_NS)
    alike = {name: values * each for name, values in job.flows().items()}
    ports = {
        f"{side}_port": [port + 1000 * n for n in range(each) for port in alike[f"{side}_port"][:2]]
        for side in ("local", "remote")
    }
    job.flow_changes = {**alike, **ports, "flow_id": list(range(1, 2 * each + 1))}
    job.wire += [(row[0] + 2, *row[1:]) for row in job.wire] * (each - 1)
    values = {"netns": [7, 7], "device": ["eth0", "eth1"], "name": ["flow_rate_bps"] * 2, "since_ns": [1, 1]}
    job.extra["settings"] = {**values, "value": [f"{share * sent_bps:.0f}", "no number"]}
    assert said(job, clocks(1.0, unsent=9000), tmp_path, monkeypatch) == reason
