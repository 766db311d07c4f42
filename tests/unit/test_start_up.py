"""What keeps a job from its first step: what is sampled of it, and what is concluded."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.synthetic import MS, START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.findings.start_up import START_UP
from netprof.analysis.findings.verdict.grounds import Case
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.section import Analysis
from netprof.model import Series, Target
from netprof.probes.process import start_up
from netprof.probes.process.start_up import StartUp
from netprof.schema import ASKS, COUNT, LEVEL, LISTEN_OVERFLOWS, LISTENS, PROCESS_SERIES
from netprof.trace import TraceReader

_NETSTAT = b"TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 512 7\nIpExt: A\nIpExt: 3\n"


def test_a_name_server_that_is_asked_is_seen_until_its_socket_is_gone() -> None:
    looks, target = StartUp(), Target(os.getpid(), 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(("127.0.0.1", 53))
        seen = [(pid, measure.name, value) for pid, measure, value in looks.look([target])]
        assert (os.getpid(), f"{ASKS}127.0.0.1:53", 1) in seen
    gone = [(measure.name, value) for _, measure, value in looks.look([target]) if measure.name.startswith(ASKS)]
    assert gone == [(f"{ASKS}127.0.0.1:53", 0)]


def test_another_process_that_listens_where_the_job_connects_to_is_named() -> None:
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    listener = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with listener, socket.socket() as connected:
        assert listener.stdout is not None
        port = int(listener.stdout.readline())
        connected.connect(("127.0.0.1", port))
        looks, target = StartUp(), Target(os.getpid(), 1, netns=7)
        looks.connects(7, "127.0.0.1", port)
        looks.connects(7, "10.9.9.9", port)
        seen = {(pid, measure.name) for pid, measure, _ in looks.look([target])}
        listener.kill()
    told = [(pid, name.partition(" (")[0]) for pid, name in seen if name.startswith(LISTENS)]
    assert told == [(listener.pid, f"{LISTENS}127.0.0.1:{port}")]


def test_full_listen_queues_are_read_by_the_name_of_their_column() -> None:
    assert start_up._overflows(_NETSTAT) == 512
    assert start_up._overflows(b"TcpExt: Other\nTcpExt: 3\n") is None
    assert start_up._overflows(b"") is None


def test_addresses_are_read_as_the_kernel_writes_them() -> None:
    assert start_up._address("6302090A:0035") == ("10.9.2.99", 53)
    assert start_up._address("0000000000000000FFFF00000100007F:01BB") == ("127.0.0.1", 443)
    assert start_up._address("B80D0120000000000000000001000000:0035") == ("2001:db8::1", 53)


def starting(folder: Path, series: list[tuple[str, str, list[int], list[int]]], job: Job | None = None) -> Analysis:
    """A job of two ranks without a step, with what was sampled of processes: subject, name, times in ms and values."""
    job = Job(iterations=50) if job is None else job
    kind = LEVEL if series and series[0][1] != LISTEN_OVERFLOWS else COUNT
    job.changes["series"] = tuple(
        Series(number, PROCESS_SERIES, subject, name, "", kind, "") for number, (subject, name, *_) in enumerate(series)
    )
    job.extra["counters"] = {
        "series": [number for number, (*_, values) in enumerate(series) for _ in values],
        "time_ns": [START_NS + ms * MS for *_, times, _ in series for ms in times],
        "value": [value for *_, values in series for value in values],
    }
    return analyze(TraceReader(job.write(folder / "t.netprof")))


@pytest.mark.parametrize(("lasted_ms", "is_told"), [(9_000, True), (400, False)])
def test_a_name_server_that_does_not_answer_is_the_verdict(lasted_ms: int, is_told: bool, tmp_path: Path) -> None:
    asks = ("pid 101", f"{ASKS}10.9.2.99:53 (MASTER_ADDR=trainer-0.job)", [500, 500 + lasted_ms], [1, 0])
    found = starting(tmp_path, [asks]).of(VERDICT)
    assert (found.case is Case.NOT_STARTED) is is_told
    if is_told:
        assert found.headline == "NOT STARTED: rank 1 waits for name server 10.9.2.99:53"
        assert "for 9.00 s since" in found.sentence
        assert found.sentence.endswith("(MASTER_ADDR=trainer-0.job)")
        assert "resolv.conf" in found.next[0].text
        assert not any("doctor" in each.command for each in found.next)


def test_syns_that_nobody_answers_are_the_verdict(tmp_path: Path) -> None:
    job = Job(iterations=50)
    job.wire = [(1, 0, START_NS + n * 1000 * MS, 0, 74) for n in range(4)]
    job.flow_changes["remote_addr"] = ["10.9.2.77", "10.0.0.1"]
    job.flow_changes["remote_port"] = [29500, 40_000]
    found = starting(tmp_path, [], job).of(VERDICT)
    assert found.headline == "NOT STARTED: connections to 10.9.2.77:29500 are not answered"
    assert found.sentence == "rank 0: 4 SYNs to 10.9.2.77:29500, none answered"


def test_connections_that_are_given_up_at_once_are_not_called_unanswered(tmp_path: Path) -> None:
    """A reset that answers a SYN is not counted as received."""
    job, more = Job(iterations=50), {"remote_addr": "10.9.3.1", "remote_port": 29511}
    job.flow_changes = {
        name: [*column, *(more.get(name, number if name == "flow_id" else column[0]) for number in (3, 4, 5))]
        for name, column in job.flows().items()
    }
    job.wire = [(flow, 0, START_NS + flow * 500 * MS, 0, 74) for flow in (3, 4, 5)]
    found = starting(tmp_path, [], job).of(VERDICT)
    assert found.headline == "NOT STARTED: connections to 10.9.3.1:29511 are given up at once"
    assert "refused, or by a time limit" in found.sentence


def test_a_listen_queue_that_overflows_is_the_verdict(tmp_path: Path) -> None:
    found = starting(tmp_path, [("pid 100", LISTEN_OVERFLOWS, [0, 4000], [3, 515])]).of(VERDICT)
    assert found.headline == "NOT STARTED: a listen queue of rank 0 is full: 512 connections dropped"
    assert found.next[0].command == "sysctl -w net.core.somaxconn=4096"


@pytest.mark.parametrize(("tries", "is_told"), [(3, True), (2, False)])
def test_who_closes_each_connection_and_is_no_rank_is_the_verdict(tries: int, is_told: bool, tmp_path: Path) -> None:
    job, flows = Job(iterations=50), range(3, 3 + tries)
    more = {"remote_addr": "127.0.0.1", "remote_port": 29500, "device": "lo"}
    first = job.flows()
    job.flow_changes = {
        name: [*column, *(more.get(name, number if name == "flow_id" else column[0]) for number in flows)]
        for name, column in first.items()
    }
    job.wire = [(flow, way, START_NS + flow * MS, 0, 66) for flow in flows for way in (0, 1, 1)]
    analysis = starting(tmp_path, [("pid 4711", f"{LISTENS}127.0.0.1:29500 (python3)", [0], [1])], job)
    told = [each for each in analysis.of(START_UP) if each.kind == "stranger"]
    assert bool(told) is is_told
    if told:
        assert told[0].headline == "NOT STARTED: 127.0.0.1:29500 is pid 4711 (python3), which is no rank"
        assert told[0].advice.command == "ps -fp 4711"


def test_a_job_that_steps_has_started(tmp_path: Path) -> None:
    series = [("pid 100", LISTEN_OVERFLOWS, [0, 1000], [3, 515])]
    analysis = starting(tmp_path, series, Job().fill())
    assert analysis.of(START_UP) == ()
    assert analysis.of(VERDICT).case is not Case.NOT_STARTED
