"""RDMA ports as links: what their counters moved, over time, and what is concluded from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.synthetic import DONE, ITERATION_NS, MS, RATE_BPS, START_NS, WAIT, Job, mark_columns, wire_columns

from netprof.analysis.account.causes import LINK_FULL, TRANSPORT, UNSEEN
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.links.queue_pairs import QUEUE_PAIRS
from netprof.analysis.findings.links.rdma_ports import reported
from netprof.analysis.findings.recording.recording import RECORDING
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.findings.waiting.waiting import WAITING
from netprof.analysis.form import Grid
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.live.window import Window
from netprof.analysis.pieces import Pieces, PieceSize
from netprof.analysis.result_tables import result_table
from netprof.analysis.section import Analysis
from netprof.analysis.sections import analyze
from netprof.analysis.tables.flow_table import LinkKey
from netprof.analysis.wire.ports import MOST_BINS, PortUse, port_lanes, spread_evenly
from netprof.model import Device, LineRate, Series, StartedProbe, Target
from netprof.schema import COUNT, FIRST_QUEUE_PAIR, RDMA_PORTS, ROCE, LinkState, MarkKind, tables
from netprof.trace import TraceReader, TraceWriter
from netprof.views.json_report import to_json

PERIOD_NS = 10 * MS
COLLECTIVES = (MarkKind.COLLECTIVE_BEGIN, MarkKind.COLLECTIVE_SIZE, MarkKind.COLLECTIVE_END)


def bins_of(samples: list[tuple[int, int]], bin_ns: int = 10) -> dict[int, int]:
    times, counted = (np.array(column, np.int64) for column in zip(*samples, strict=True))
    bins = spread_evenly(times, counted, bin_ns)
    return dict(zip(bins.number.tolist(), bins.wire_bytes.tolist(), strict=True))


def test_what_a_count_grew_is_spread_over_the_time_between() -> None:
    assert bins_of([(5, 0), (25, 200), (35, 200), (40, 250)]) == {0: 50, 1: 100, 2: 50, 3: 50}


def test_every_byte_is_in_one_bin() -> None:
    samples = [(7_000 * n + n * n % 5, 1_000_003 * n * n) for n in range(100)]
    assert sum(bins_of(samples).values()) == samples[-1][1]


def test_a_bin_knows_when_in_it_anything_moved() -> None:
    bins = spread_evenly(np.array([12, 14, 17, 18]), np.array([0, 5, 5, 9]), 10)
    assert (bins.number.tolist(), bins.lead_ns.tolist(), bins.last_ns.tolist()) == ([1], [8], [8])


def test_a_year_between_two_samples_takes_little_room() -> None:
    """And what was sampled as often as it should be is spread over all of its bins beside it."""
    year_ns = 366 * 86_400 * 10**9
    times, counted = np.array([0, 5_000_000, 5_000_000 + year_ns]), np.array([0, 50, 10**15])
    bins = spread_evenly(times, counted, 100_000)
    assert len(bins) <= MOST_BINS
    assert int(bins.wire_bytes.sum(dtype=np.int64)) == 10**15
    assert bins.number[:51].tolist() == list(range(51))


def test_ports_share_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netprof.analysis.wire.ports.MOST_BINS", 100)
    links = [LinkKey(7, f"mlx5_{number}/1") for number in range(4)]
    long = np.array([0, 10**9]), np.array([0, 10**6]), np.array([0, 10**6])
    lanes = port_lanes({link: PortUse(PERIOD_NS, (1,)) for link in links}, dict.fromkeys(links, long), MS)
    assert [len(bins) for bins in lanes.values()] == [25] * 8


@pytest.mark.slow
def test_a_long_recording_of_ports_is_cut_by_the_bins_that_they_take(tmp_path: Path) -> None:
    """Sixteen for each reading of a bin's worth each way; and pieces of it say what the whole says."""
    job = PortJob(iterations=40)
    job.fill()
    path = job.write(tmp_path / "t.netprof")
    uncut, cut = job.in_pieces(1), job.in_pieces(5)
    assert len(Pieces(TraceReader(path), uncut)) == 1
    assert 5 <= len(Pieces(TraceReader(path), cut)) <= 6
    whole, pieces = (analyze(TraceReader(path), size=size).document() for size in (uncut, cut))
    for name in ("tx_bytes", "rx_bytes", "idle_total_s", "utilization_tx", "period_s"):
        assert [link[name] for link in pieces["links"]] == pytest.approx([link[name] for link in whole["links"]])
    assert [rank["tx_bytes"] for rank in pieces["ranks"]] == [rank["tx_bytes"] for rank in whole["ranks"]]
    assert pieces["waiting"]["exposed_s"] == whole["waiting"]["exposed_s"]


def test_what_no_port_moves_is_damage() -> None:
    assert bins_of([(0, 0), (10, 1 << 60), (20, (1 << 60) + 7)]) == {1: 7}


def test_silences_shorter_than_a_period_are_nobodys(tmp_path: Path) -> None:
    """Who of two ports goes on first is not known where both are only seen every 10 ms."""
    job = port_job(10e9)
    job.wire = [row for row in job.wire if (row[2] - START_NS) % ITERATION_NS // MS not in range(80, 110)]
    waited_ns = DONE - WAIT
    arrived_ns = (90 - 80) * MS + (DONE - 130 * MS)  # nothing moves until the first bucket is done, nor at the end
    assert shares(analysis_of(job, tmp_path))["host"] == pytest.approx(arrived_ns / waited_ns, abs=0.01)


def test_counters_that_do_not_move_give_nothing() -> None:
    assert bins_of([(0, 5), (100, 5)]) == {}
    assert bins_of([(0, 5)]) == {}


@dataclass
class PortJob(Job):
    """The job of other tests, but what was TCP goes over RDMA ports: only their counters tell of it."""

    pids_on_port: int = 1
    numbers: tuple[int, int] | None = None
    gone: tuple[int, int] | None = None
    reports: dict[str, int] = field(default_factory=dict)
    stands_still: bool = False
    goes_by_tcp: bool = False

    def port(self, rank: int) -> str:
        return f"mlx5_{rank}/1"

    def meta(self) -> Any:
        found = super().meta()
        devices = [
            Device(self.port(r), 7, LineRate(self.rate_bps, "the port's"), 0, "RDMA port", PERIOD_NS)
            for r in range(self.ranks)
        ]
        series = [
            Series(n, RDMA_PORTS, self.port(0), name, "packets", COUNT, "") for n, name in enumerate(self.reports)
        ]
        started = (StartedProbe("rdma", "mlx5_0/1: read every 10.0 ms (50 µs, 0.50% of a core)"),)
        found = replace(found, devices=tuple(devices), series=tuple(series), probes_started=started)
        return replace(found, **self.changes)

    def port_flows(self) -> dict[str, Any]:
        users = [
            (rank, (rank + shift) % self.ranks) for rank in range(self.ranks) for shift in range(self.pids_on_port)
        ]
        columns: dict[str, Any] = {name: [0] * len(users) for name in tables()["flows"].names}
        columns |= {"flow_id": [FIRST_QUEUE_PAIR + n for n in range(len(users))], "family": [4] * len(users)}
        columns |= {name: [""] * len(users) for name in ("local_addr", "remote_addr", "congestion_control")}
        columns |= {"device": [self.port(port) for port, _ in users], "pid": [100 + user for _, user in users]}
        columns |= {"netns": [7] * len(users), "protocol": [ROCE] * len(users), "rank": [user for _, user in users]}
        local, remote = ([50 + (n + shift) % len(users) for n in range(len(users))] for shift in (0, 1))
        if self.numbers is not None:
            local, remote = ([number] * len(users) for number in self.numbers)
        return columns | {"local_queue_pair": local, "remote_queue_pair": remote}

    def counted(self) -> dict[str, Any]:
        """Samples of every port, each 10 ms, of what the job would have sent as packets."""
        end_ns = START_NS + (self.iterations + 1) * ITERATION_NS
        times = np.arange(START_NS - 20 * MS, end_ns, PERIOD_NS)
        rows = []
        for rank in range(self.ranks):
            own = [row for row in self.wire if row[0] == rank + 1]
            for name, way in (("tx", 0), ("rx", 1)):
                at = np.array([row[2] + MS for row in own if row[1] == way])
                moved = np.concatenate(([0], np.cumsum([row[4] for row in own if row[1] == way])))
                rows.append((name, moved[np.searchsorted(np.sort(at), times, "right")].astype(np.int64)))
        columns: dict[str, Any] = {name: np.zeros(len(times) * self.ranks, np.int64) for name in tables()["nic"].names}
        columns["device"] = [self.port(rank) for rank in range(self.ranks) for _ in times]
        columns |= {"netns": np.full(len(times) * self.ranks, 7), "time_ns": np.tile(times, self.ranks)}
        for name in ("tx", "rx"):
            columns[f"{name}_bytes"] = np.concatenate([values for way, values in rows if way == name])
            columns[f"{name}_bytes"] *= not self.stands_still
        if self.gone is not None:
            before, after = columns["time_ns"] < self.gone[0], columns["time_ns"] >= self.gone[1]
            for name in ("tx_bytes", "rx_bytes"):  # counters go on from where they were, whatever passed meanwhile
                for rank in range(self.ranks):
                    own = np.array(columns["device"]) == self.port(rank)
                    columns[name][own & after] -= columns[name][own & after][0] - columns[name][own & before][-1]
            kept = before | after
            columns = {name: [v for v, k in zip(values, kept, strict=True) if k] for name, values in columns.items()}
        return columns

    def changed(self) -> dict[str, Any]:
        low, high = self.gone or (0, 0)
        rows = [(self.port(r), 0, LinkState.UP) for r in range(self.ranks)]
        rows += [
            (self.port(r), at, state)
            for r in range(self.ranks)
            for at, state in ((low, LinkState.GONE), (high, LinkState.UP))
        ]
        rows = rows if self.gone else rows[: self.ranks]
        return {
            "device": [row[0] for row in rows],
            "netns": [7] * len(rows),
            "since_ns": [row[1] for row in rows],
            "name": [row[0] for row in rows],
            "state": [int(row[2]) for row in rows],
            "line_rate_bps": [self.rate_bps or 0.0 if row[2] is LinkState.UP else 0.0 for row in rows],
            "line_rate_source": ["the port's"] * len(rows),
            "qdisc": [""] * len(rows),
            "mtu_bytes": [0] * len(rows),
            "receive_rate_bps": [0.0] * len(rows),
            "receive_rate_source": ["the port's"] * len(rows),
        }

    def in_pieces(self, number: int) -> PieceSize:
        """Return how to cut the recording into about so many pieces."""
        weight = len(self.counted()["time_ns"]) * 16 * PERIOD_NS // MS + 4 * len(self.marks) + 4
        return PieceSize(rows=weight // number, at_once=weight // number, shortest_ns=1)

    def write(self, path: Path) -> Path:
        writer = TraceWriter(path, self.meta())
        writer.append("flows", self.port_flows())
        if self.goes_by_tcp:
            writer.append("flows", self.flows())
            writer.append("wire", wire_columns(self.wire))
        writer.append("marks", mark_columns(self.marks))
        writer.append("nic", self.counted())
        writer.append("link_changes", self.changed())
        end_ns = START_NS + (self.iterations + 1) * ITERATION_NS
        for number, amount in enumerate(self.reports.values()):
            writer.append("counters", {"series": [number] * 2, "time_ns": [START_NS, end_ns], "value": [0, amount]})
        writer.close(self.meta())
        return path


def port_job(rate_bps: float = RATE_BPS) -> PortJob:
    job = PortJob(rate_bps=rate_bps)
    job.fill()
    return job


def analysis_of(job: Job, tmp_path: Path) -> Analysis:
    return analyze(TraceReader(job.write(tmp_path / "t.netprof")))


def first_sentence(found: Analysis) -> str:
    waiting = found.of(WAITING)
    assert waiting is not None
    return waiting.causes[0].sentence


def shares(found: Analysis) -> dict[str, float]:
    waiting = found.of(WAITING)
    assert waiting is not None
    return {share.cause.name: share.share for share in waiting.causes}


@pytest.mark.slow
def test_a_port_gives_what_packets_would(tmp_path: Path) -> None:
    by_packet = analysis_of(Job(rate_bps=10e9).fill(), tmp_path / "a")
    by_port = analysis_of(port_job(10e9), tmp_path / "b")
    for one, other in zip(by_packet.of(LINKS), by_port.of(LINKS), strict=True):
        assert other.tx_bytes == pytest.approx(one.tx_bytes, rel=0.02)
        assert other.utilization_tx == pytest.approx(one.utilization_tx, rel=0.02)
        assert other.idle.total_ns <= one.idle.total_ns
        assert other.ranks == one.ranks
    ranks = list(zip(by_packet.of(RANKS), by_port.of(RANKS), strict=True))
    assert [other.link.device for _, other in ranks if other.link] == ["mlx5_0/1", "mlx5_1/1"]
    for one_rank, other_rank in ranks:
        one_ratio, other_ratio = (each.bandwidths.wire_to_algorithm_ratio for each in (one_rank, other_rank))
        assert other_ratio == pytest.approx(one_ratio, rel=0.03)


def test_every_number_says_how_coarse(tmp_path: Path) -> None:
    found = analysis_of(port_job(), tmp_path)
    assert any("mlx5_0/1 is an RDMA port" in note and "10.0 ms" in note for note in found.notes)
    (said,) = (
        row for part in found.parts(RECORDING) for row in getattr(part.bodies[0], "rows", ()) if row[0] == "RDMA ports"
    )
    assert "read every" in said[1]
    assert [link["period_s"] for link in to_json(found)["links"]] == [0.01, 0.01]


def test_a_full_port_is_named(tmp_path: Path) -> None:
    job = port_job()
    job.rate_bps = 8e9 * max(row[4] for row in job.wire) / MS * 1.02
    found = analysis_of(job, tmp_path)
    assert found.of(VERDICT).case is LINK_FULL
    assert "seen every 10.0 ms" in first_sentence(found)


@pytest.mark.parametrize(
    ("reports", "word"),
    [
        ({"cnp_received": 100_000}, "CNP"),
        ({"ack_timeouts": 9_000}, "acknowledgement"),
        ({"cnp_received": 0, "dropped": 0}, "it reports neither congestion nor loss"),
        ({"cnp_received": 0}, "whether it met loss is unknown"),
        ({}, "whether it met congestion or loss is unknown"),
    ],
)
def test_what_a_port_reports_is_evidence(tmp_path: Path, reports: dict[str, int], word: str) -> None:
    job = port_job(100e9)
    job.reports = reports
    found = analysis_of(job, tmp_path)
    assert found.of(VERDICT).case is TRANSPORT
    assert word in first_sentence(found)


def test_without_collectives_a_port_tells_what_carried_the_buckets(tmp_path: Path) -> None:
    job = port_job()
    job.without(COLLECTIVES)
    job.rate_bps = 8e9 * max(row[4] for row in job.wire) / MS * 1.02
    found = analysis_of(job, tmp_path)
    assert found.of(VERDICT).case is LINK_FULL
    assert "mlx5" in first_sentence(found)


def test_what_no_port_moves_is_unseen_and_never_idle(tmp_path: Path) -> None:
    job = port_job(10e9)
    job.wire = []
    found = analysis_of(job, tmp_path)
    assert found.of(VERDICT).case is UNSEEN


def is_idle_known(found: Analysis) -> bool:
    """Tell whether a report says when ports were idle, in each of its forms, or in none."""
    links = [link for link in to_json(found)["links"] if "/" in link["device"]]
    (grid,) = (part.bodies[0] for part in found.parts(LINKS) if part.title == "Idle link time")
    assert isinstance(grid, Grid)
    shown = [row[grid.headings.index("idle")] for row in grid.rows if "/" in str(row[0])]
    idle = result_table(found, "idle")
    known = {
        *(link["idle_total_s"] is not None for link in links),
        *(link["tx_bytes"] is not None for link in links),
        *(link["utilization_rx"] is not None for link in links),
        *(link["unknown_s"] == 0 for link in links),
        *(cell != "unknown" for cell in shown),
        any("/" in device for device in idle["device"]),
    }
    assert len(links) == 2
    assert len(known) == 1, known
    return True in known


@pytest.mark.parametrize("pieces", [1, 3])
def test_counters_that_stand_still_while_the_job_communicates_tell_no_idleness(tmp_path: Path, pieces: int) -> None:
    job = port_job(10e9)
    job.stands_still = True
    found = analyze(TraceReader(job.write(tmp_path / "t.netprof")), size=job.in_pieces(pieces))
    assert found.of(VERDICT).case is UNSEEN
    assert not is_idle_known(found)
    said = [note for note in found.notes if "did not move" in note]
    assert [note.split(" did")[0] for note in said] == ["the counters of mlx5_0/1", "the counters of mlx5_1/1"]
    assert [link["ranks"] for link in to_json(found)["links"]] == [[0], [1]]


def test_ports_of_a_job_that_does_not_communicate_are_idle(tmp_path: Path) -> None:
    job = PortJob()
    assert is_idle_known(analysis_of(job, tmp_path))


def test_ports_beside_the_wire_that_carries_all_are_idle(tmp_path: Path) -> None:
    job = port_job(10e9)
    job.stands_still = job.goes_by_tcp = True
    found = analysis_of(job, tmp_path)
    assert is_idle_known(found)
    assert not any("did not move" in note for note in found.notes)


def test_ports_that_stand_still_in_a_part_of_a_recording_only_are_idle_then(tmp_path: Path) -> None:
    job = port_job(10e9)
    job.wire = [row for row in job.wire if row[2] < START_NS + 5 * ITERATION_NS]
    cut = to_json(analyze(TraceReader(job.write(tmp_path / "t.netprof")), size=job.in_pieces(3)))["links"]
    assert [link["idle_total_s"] for link in cut] == pytest.approx([link["window_s"] for link in cut], rel=0.5)
    assert all(link["unknown_s"] == 0 for link in cut)


def test_a_port_whose_bytes_nothing_counts_is_never_idle(tmp_path: Path) -> None:
    job = port_job(10e9)
    job.changes["devices"] = ()
    found = analysis_of(job, tmp_path)
    assert not is_idle_known(found)
    assert any("how many bytes pass mlx5_0/1 is unknown" in note for note in found.notes)


def test_time_in_which_a_port_was_gone_is_unknown(tmp_path: Path) -> None:
    job = port_job(10e9)
    job.gone = START_NS + ITERATION_NS, START_NS + 3 * ITERATION_NS
    found = analysis_of(job, tmp_path)
    (link, _) = found.of(LINKS)
    assert shares(found)["unseen"] == pytest.approx(0.2, abs=0.02)
    assert link.unknown_ns == pytest.approx(2 * ITERATION_NS, rel=0.01)
    assert any("what mlx5_0/1 moved is unknown for" in note for note in found.notes)
    assert not any("held up" in note for note in found.notes)
    assert link.idle.total_ns + link.unknown_ns <= link.window_ns


def test_what_a_port_that_was_gone_for_a_moment_moved_is_unseen(tmp_path: Path) -> None:
    job = port_job(10e9)
    job.gone = START_NS + ITERATION_NS + 60 * MS, START_NS + ITERATION_NS + 100 * MS
    found = analysis_of(job, tmp_path)
    unseen_ns = 100 * MS - WAIT  # of the first bucket nothing was seen, of the second not until the port was back
    assert shares(found)["unseen"] == pytest.approx(unseen_ns / (10 * (DONE - WAIT)), rel=0.02)
    waiting = found.of(WAITING)
    assert waiting is not None
    assert any("an RDMA port was not there" in cause.sentence for cause in waiting.causes)


def test_processes_on_one_port_are_taken_to_move_alike(tmp_path: Path) -> None:
    job = port_job(10e9)
    job.pids_on_port = 2
    found = analysis_of(job, tmp_path)
    sent = [rank.tx_bytes for rank in found.of(RANKS)]
    assert sent[0] == pytest.approx(sent[1], rel=1e-3)
    assert sum(sent) == sum(row[4] for row in job.wire if row[1] == 0)
    assert any("2 processes use mlx5_0/1, and each is taken to move as much" in note for note in found.notes)


def test_the_live_view_sees_ports_too() -> None:
    job = port_job(10e9)
    window = Window(MS)
    window.set_ranks(job.meta())
    for table, rows in (("flows", job.port_flows()), ("link_changes", job.changed()), ("nic", job.counted())):
        window.add(table, rows)
    evidence = window.evidence(job.meta(), START_NS, START_NS + 5 * ITERATION_NS)
    assert [link.device for link in evidence.links.lanes.links] == ["mlx5_0/1", "mlx5_1/1"]
    sent = evidence.sent_bytes[100]
    assert sum(sent.values()) > 0


def test_queue_pairs_name_process_and_peer(tmp_path: Path) -> None:
    found = analysis_of(port_job(), tmp_path)
    assert [(each.device, each.pid, each.rank, each.peers) for each in found.of(QUEUE_PAIRS)] == [
        ("mlx5_0/1", 100, 0, (1,)),
        ("mlx5_1/1", 101, 1, (0,)),
    ]
    document = to_json(found)["queue_pairs"]
    assert document[0]["pairs"] == [{"local": 50, "remote": 51, "sent_bytes": None, "received_bytes": None}]


@pytest.mark.parametrize(("ranks", "peers"), [(2, [(1,), (0,)]), (4, [(), (), (), ()])])
def test_numbers_that_several_have_name_no_peer(tmp_path: Path, ranks: int, peers: list[tuple[int, ...]]) -> None:
    job = port_job()
    job.ranks = ranks
    job.numbers = (17, 17)
    assert [each.peers for each in analysis_of(job, tmp_path).of(QUEUE_PAIRS)] == peers


def test_what_ports_of_several_hosts_report_is_each_ones_own(tmp_path: Path) -> None:
    paths = []
    for host, dropped in enumerate((0, 9_000)):
        target = Target(100, 5, "python train.py", 7, host, 2, ("ddp", "gloo"))
        changes = {"host": f"h{host}", "boot_id": f"boot{host}", "targets": (target,)}
        job = PortJob(ranks=1, reports={"dropped": dropped}, changes=changes)
        job.fill()
        paths.append(job.write(tmp_path / f"h{host}.netprof"))
    evidence = analyze(open_job(paths)).evidence
    ports = evidence.links.ports
    found = {evidence.host_of_link(link): reported(evidence, link, evidence.recording) for link in ports}
    assert found["h0"] == {"dropped": 0}
    assert found["h1"]["dropped"] > 1000
