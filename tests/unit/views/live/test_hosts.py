"""The job of many hosts in one view: on clocks of their own, each row read once, the late rank standing out."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from support.growing_hosts import Clocks, GrowingHosts
from support.synthetic import ITERATION_NS, MS, START_NS, Job, with_late_rank

from netprof.analysis.hosts.moved import Mover
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.live.live_state import LiveState
from netprof.analysis.live.now import Recent
from netprof.errors import TraceError
from netprof.model import Gpu, Target
from netprof.schema import UNKNOWN_RANK, GpuMetric, MarkKind
from netprof.session import live_follow, live_job
from netprof.session.live_job import JobSource
from netprof.views.live.draw import draw
from netprof.views.live.gpus import gpu_rows
from netprof.views.live.hosts import host_rows
from netprof.views.live.links import link_name
from netprof.views.live.view_state import View, ViewState
from netprof.views.progress import line

S = 10**9
APART = Clocks([0, -7_123_456_789], [0, 0])
HOSTILE = "\x1b]0;owned\x07[red]name[/red]\u202egnp"


def job(ranks: int = 4, iterations: int = 14) -> Job:
    return Job(ranks=ranks, world_size=ranks, iterations=iterations).fill()


def after(iterations: int) -> int:
    return START_NS + iterations * ITERATION_NS


@pytest.fixture
def hosts(tmp_path: Path) -> Callable[..., GrowingHosts]:
    def made(number: int, of: Job, clocks: Clocks | None = None) -> GrowingHosts:
        (tmp_path / str(number)).mkdir()
        return GrowingHosts(tmp_path / str(number), of, number, clocks)

    return made


def followed(made: GrowingHosts, until_ns: int) -> tuple[JobSource, Recent]:
    made.start()
    made.grow(until_ns)
    source = JobSource(lambda: made.paths)
    return source, source.look()


def text(recent: Recent, width: int = 80, height: int = 24, view: View = View.OVERVIEW) -> str:
    rows = draw(recent, ViewState("following job", view=view), width, height)
    assert len(rows) == height
    assert {row.cell_len for row in rows} == {width}
    return "\n".join(row.plain.rstrip() for row in rows)


@pytest.fixture
def still(monkeypatch):
    """A clock that stands still: how long nothing was added does not grow with the time that a test takes."""
    now_s = time.monotonic()
    monkeypatch.setattr(live_follow, "time", SimpleNamespace(monotonic=lambda: now_s, time=time.time))


def silent(source: JobSource, hosts: dict[int, float]) -> None:
    """Let it be so many seconds since something was added to the traces of hosts, on a clock that stands still."""
    for host, seconds in hosts.items():
        source._traces[host]._grew_s = vars(live_follow)["time"].monotonic() - seconds


@pytest.mark.slow
def test_hosts_on_clocks_of_their_own_are_one_job(hosts):
    _, recent = followed(hosts(2, with_late_rank(job(), 3, 45 * MS), APART), after(14))
    assert [host.name for host in recent.hosts] == ["h0", "h1"]
    assert recent.hosts[1].clock.source == "flows"
    assert recent.hosts[1].clock.offset_ns == pytest.approx(APART.offset_ns[1], abs=1000)
    assert sorted(recent.ranks.values()) == [0, 1, 2, 3]
    for pid in recent.ranks:
        assert recent.past.of_pid(pid).number.tolist() == list(range(1, 14))
    (late,) = recent.stragglers
    assert (late.who.rank, late.who.host) == (3, "h1")
    assert recent.host_of[next(pid for pid, rank in recent.ranks.items() if rank == 3)].name == "h1"
    assert {link_name(recent, link) for link in recent.links} == {
        f"eth{n} of h{host}" for n in (0, 1) for host in (0, 1)
    }


@pytest.mark.slow
@pytest.mark.parametrize("first", [5, 0])
def test_what_was_before_the_bytes_that_are_read_is_not_called_unseen(hosts, monkeypatch, first):
    """Opened late, only the newest batches are read; and of a host that comes later, there is nothing before it."""
    monkeypatch.setattr(live_job, "_CAUGHT_UP_BATCHES", 10)
    monkeypatch.setattr(live_job, "_LEAST_CAUGHT_UP", 5)
    made = hosts(2, job(iterations=60), APART)
    made.start()
    for second in range(1, 11):
        made.grow(START_NS + second * S, None if second > first else [0])
    source = JobSource(lambda: made.paths)
    source.look()
    made.grow(START_NS + 11 * S)
    source.look()
    source._state._conclusions.next_s = 0.0
    source._state._is_fresh = True
    recent = source.look()
    assert recent.window_ns == pytest.approx(6 * S, abs=0.3 * S)
    assert recent.analysis is not None
    waiting = recent.analysis.document()["waiting"]
    assert waiting["exposed_s"] > 1
    assert "unseen" not in [each["cause"] for each in waiting["causes"] if each["share"] > 0.01]


@pytest.mark.slow
def test_ranks_that_nothing_numbers_are_called_after_their_processes_and_stand_out_too(hosts):
    made = hosts(2, with_late_rank(job(), 3, 45 * MS), APART)
    made.start()
    made.describe(1, targets=tuple(replace(each, rank=UNKNOWN_RANK) for each in made.meta(1).targets))
    made.grow(after(14))
    recent = JobSource(lambda: made.paths).look()
    (late,) = recent.stragglers
    assert late.who.rank is None
    assert late.who.pid is not None
    assert recent.name_of(late.who.pid) == "p101"
    _, grid = host_rows(recent, 80, 10)
    assert re.search(r"h0 +0.*1.*h1 +p100.*p101", grid.plain)
    (name,) = [span for span in grid.spans if "reverse" in str(span.style)]
    assert grid.plain[name.start : name.end].strip() == "p101"
    for view in View:
        text(recent, view=view)


@pytest.mark.slow
def test_a_view_that_was_opened_first_finds_the_clocks_when_there_is_something_to_go_by(hosts):
    made = hosts(2, job(), Clocks([0, 3 * S], [0, 700 * MS]))
    source, recent = followed(made, START_NS)
    assert recent.hosts[1].clock.source == "realtime"
    assert "clocks unknown" in text(recent)
    for step in range(2, 15):
        made.grow(after(step))
        source._clocks._budget.next_s = 0.0
        recent = source.look()
    assert recent.hosts[1].clock.source == "flows"
    assert recent.hosts[1].clock.offset_ns == pytest.approx(3 * S, abs=1000)
    made.grow(after(15))
    source.look()
    recent = source.look()
    for pid in recent.ranks:
        assert recent.past.of_pid(pid).number[-1] >= 13
    begins = [recent.past.of_pid(pid).begin_ns[:13].tolist() for pid in recent.ranks]
    for own in begins[1:]:
        assert own == pytest.approx(begins[0], abs=1000), "what was moved by the wrong clock was moved again"


@pytest.mark.slow
def test_every_row_is_read_and_moved_once(hosts, monkeypatch):
    made = hosts(2, job(iterations=40), APART)
    source, _ = followed(made, after(4))
    moved: list[int] = []
    original = Mover.move

    def counted(mover: Mover, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        moved.append(batch.num_rows)
        return original(mover, name, batch)

    monkeypatch.setattr(Mover, "move", counted)
    for step in range(5, 41):
        before = len(moved)
        made.grow(after(step))
        source.look()
        assert len(moved) - before == 4, "marks and wire of two hosts"
    rows = sum(after(4) <= row[2] < after(40) for row in made.job.wire)
    rows += sum(after(4) <= mark[0] < after(40) for mark in made.job.marks)
    assert sum(moved) == rows


@pytest.mark.slow
def test_who_is_slow_to_write_is_not_late(hosts):
    made = hosts(2, job(iterations=40))
    source, _ = followed(made, after(20))
    for step in range(21, 41):
        made.grow(after(step), [0])
        made.grow(after(step - 6), [1])
        recent = source.look()
        assert recent.through_ns <= after(max(20, step - 6))
        assert recent.stall is None
        assert not recent.stragglers
    assert source.notice == ""


@pytest.mark.slow
@pytest.mark.usefixtures("still")
def test_who_writes_nothing_any_more_holds_up_no_view(hosts, monkeypatch):
    made = hosts(2, job(iterations=40))
    source, _ = followed(made, after(20))
    monkeypatch.setattr(live_follow, "QUIET_S", -1.0)
    made.grow(after(40), [0])
    source.look()
    recent = source.look()
    assert recent.through_ns > after(39)
    monkeypatch.setattr(live_follow, "QUIET_S", 5.0)
    silent(source, {0: 0, 1: 9})
    assert source.notice == "nothing new of h1 for 9 s"
    assert source.goes_on, "of the other host there is something new"
    silent(source, {0: 30, 1: 9})
    assert source.notice == "nothing new of h0 for 30 s, h1 for 9 s"
    assert (source.goes_on, source.ended) == (False, "")


@pytest.mark.slow
@pytest.mark.usefixtures("still")
def test_hosts_whose_recorders_are_gone_are_named_and_the_view_ends_with_the_last(hosts, tmp_path):
    made = hosts(4, job())
    made.boots = [Path("/proc/sys/kernel/random/boot_id").read_text().strip()] * 4
    source, _ = followed(made, after(14))
    for host in (1, 2, 3):
        made._writers.pop(host)  # as the kernel does for one that was killed
    silent(source, {0: 0, 1: 10, 2: 20, 3: 30})
    assert source.notice == "the recorder died: the trace has no end marker on h3 30 s ago, h2 20 s ago and 1 more host"
    assert (source.goes_on, source.ended) == (True, "")
    made.stop(0)
    source._traces[0]._next_meta_s = 0.0
    source.look()
    assert source.ended == "the job ended", "which is what the only one said that said something"


@pytest.mark.slow
def test_silence_goes_on_when_the_traces_are_opened_anew(hosts):
    made = hosts(2, job())
    source, _ = followed(made, after(14))
    for file in made.paths[1].iterdir():
        os.utime(file, (time.time() - 60,) * 2)
    source._open(made.paths)
    assert re.fullmatch("nothing new of h1 for 6. s", source.notice)


@pytest.mark.slow
@pytest.mark.usefixtures("still")
@pytest.mark.parametrize(("width", "height"), [(80, 24), (130, 40), (40, 8)])
@pytest.mark.parametrize("number", [2, 8])
def test_what_is_wrong_stands_below_the_title_whatever_the_size(number, width, height, hosts):
    made = hosts(number, job(8))
    source, recent = followed(made, after(14))
    silent(source, {1: 9})
    state = ViewState("following /a/path/that/leaves/no/room/for/anything/else", notice=source.notice)
    drawn = draw(recent, state, width, height)
    assert [len(drawn), *{row.cell_len for row in drawn}] == [height, width]
    assert drawn[1].plain.strip() == f"! {state.notice}"
    assert draw(recent, replace(state, notice=""), width, height)[1].plain != drawn[1].plain


@pytest.mark.slow
def test_the_end_is_that_of_the_last_host(hosts):
    made = hosts(2, job())
    source, _ = followed(made, after(14))
    made.stop(0, "interrupted")
    source._traces[0]._next_meta_s = 0.0
    source.look()
    assert source.ended == ""
    made.stop(1)
    source._traces[1]._next_meta_s = 0.0
    source.look()
    assert source.ended == "the job ended"


@pytest.mark.slow
def test_a_host_that_comes_later_is_taken_in(hosts):
    made = hosts(2, job(iterations=20))
    paths = made.start([0])
    made.grow(after(8))
    source = JobSource(lambda: paths)
    assert sorted(source.look().ranks.values()) == [0, 1]
    paths = made.start([1])
    made.grow(after(16))
    source._find_at_s = 0.0
    recent = source.look()
    assert sorted(recent.ranks.values()) == [0, 1, 2, 3]
    assert len({pid for pid in recent.ranks if len(recent.past.of_pid(pid))}) == 4


def test_a_trace_of_another_job_is_left_out_and_why_is_said(hosts):
    made = hosts(2, job())
    made.start()
    target = Target(500, 9, "python other.py", 7, 0, 2, ("torch",))
    made.describe(1, targets=(target,))
    made.grow(after(14))
    source = JobSource(lambda: made.paths)
    assert len(source.look().hosts) == 1
    said = "it is of another job: of 2 ranks, while h0.netprof is of one of 4"
    assert source.left_out == [f"h1.netprof is left out: {said}"]


@pytest.mark.slow
def test_a_gpu_is_called_by_its_number_on_its_own_host(hosts):
    made = hosts(2, job())
    made.start()
    for number in (0, 1):
        made.describe(number, gpus=(Gpu(1, "H100"),))
    made.grow(after(14))
    recent = JobSource(lambda: made.paths).look()
    busy = {gpu.index: {GpuMetric.BUSY_PERCENT: 87.0} for gpu in recent.meta.gpus}
    assert len(busy) == 2
    rows = [each.plain for each in gpu_rows(replace(recent, gpus=busy), 100, 5)[1:]]
    assert [each.split("  ")[0].strip() for each in rows] == ["h0: 1", "h1: 1"]


def test_the_report_is_of_the_job_that_is_shown(hosts):
    """What is not recorded any more comes first by name, but is not shown."""
    dead, made = hosts(1, job(2)), hosts(2, job(4))
    dead.start()
    dead._writers.clear()
    dead.paths = [dead.paths[0].rename(dead.paths[0].with_name("0dead.netprof"))]
    source = JobSource(lambda: [*dead.paths, *made.start()])
    assert [path.name for path in source.paths] == ["h0.netprof", "h1.netprof", "0dead.netprof"]
    shown = [host.trace for host in source.look().hosts]
    assert [host.trace for host in open_job(source.paths).hosts] == shown == ["h0.netprof", "h1.netprof"]


@pytest.mark.slow
def test_a_trace_that_cannot_be_read_is_left_out_until_it_can_be(hosts):
    """One whose description is just being copied, say; and nothing that appears meanwhile ends the view."""
    made = hosts(2, job())
    made.start()
    made.grow(after(14))
    whole = (made.paths[0] / "meta.json").read_text()
    (made.paths[0] / "meta.json").write_text("{")
    source = JobSource(lambda: made.paths)
    assert [host.name for host in source.look().hosts] == ["h1"]
    assert source.left_out == [f"h0.netprof is left out: {made.paths[0]}/meta.json is not readable as JSON"]
    source._find_at_s = 0.0
    source.look()
    assert len(source.left_out) == 1
    (made.paths[0] / "meta.json").write_text(whole)
    source._find_at_s = 0.0
    assert [host.name for host in source.look().hosts] == ["h0", "h1"]
    assert source.left_out == []
    (made.paths[1] / "meta.json").write_text("{")
    source._traces[1]._next_meta_s = 0.0
    source.look()
    assert [host.name for host in source.look().hosts] == ["h0"]
    (made.paths[0] / "meta.json").write_text("{")
    source._traces[0]._next_meta_s = 0.0
    with pytest.raises(TraceError, match="not readable as JSON"):
        source.look()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["at first", "meanwhile"])
def test_a_trace_whose_tables_are_damaged_ends_the_view_of_no_other(when, hosts):
    made = hosts(2, job())
    made.start()
    made.grow(after(7))
    source = JobSource(lambda: made.paths)
    before = (made.paths[1] / "wire.arrows").stat().st_size if when == "meanwhile" else 0
    if when == "meanwhile":
        source.look()
    made.grow(after(14))
    wire = made.paths[1] / "wire.arrows"
    data = bytearray(wire.read_bytes())
    assert before < len(data) - 200
    data[-200:-100] = b"\xff" * 100
    wire.write_bytes(data)
    if when == "at first":
        source = JobSource(lambda: made.paths)
    source.look()
    assert [host.name for host in source.look().hosts] == ["h0"]
    assert source.left_out == [f"h1.netprof is left out: {wire} is damaged"]
    source._find_at_s = 0.0
    assert [host.name for host in source.look().hosts] == ["h0"], "it is not tried again and again"


@pytest.mark.slow
def test_a_rank_that_does_not_arrive_is_named_with_its_host(hosts):
    made_job = job(iterations=20)
    stop_ns = after(16)
    made_job.marks = [mark for mark in made_job.marks if mark[0] < stop_ns + 10 * MS or mark[1] != 103]
    made_job.marks = [mark for mark in made_job.marks if mark[0] < stop_ns + 60 * MS]
    made_job.wire = [row for row in made_job.wire if row[2] < stop_ns]
    for tenth in range(50):  # the hosts go on
        for pid in (100, 102):
            made_job.mark(stop_ns + tenth * 100 * MS, pid, MarkKind.PROCESS_EXEC)
    made = hosts(2, made_job, APART)
    made.start()
    source = JobSource(lambda: made.paths)
    for tenth in range(33 + 30):
        made.grow(START_NS + tenth * 100 * MS)
        recent = source.look()
    assert recent.stall is not None
    assert "rank 3 (pid 101 on h1) has not arrived" in line(recent, None)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "ranks", "late"), [(2, 8, 5), (8, 64, 50), (16, 64, 63), (64, 64, 33)])
def test_the_late_one_stands_out(number, ranks, late, hosts):
    _, recent = followed(hosts(number, with_late_rank(job(ranks), late, 45 * MS)), after(14))
    marked = [
        row.plain[span.start : span.end].strip()
        for row in host_rows(recent, 80, 12)
        for span in row.spans
        if "reverse bold red" in str(span.style)
    ]
    assert marked == [str(late)]


@pytest.mark.slow
def test_all_64_ranks_are_on_the_screen(hosts):
    _, recent = followed(hosts(8, with_late_rank(job(64), 50, 45 * MS)), after(14))
    drawn = text(recent)
    rows = [line for line in drawn.splitlines() if line.startswith("h") and line[1].isdigit()]
    assert [row.split()[0] for row in rows] == [f"h{host}" for host in range(8)]
    for host, own in enumerate(rows):
        for rank in range(8 * host, 8 * host + 8):
            assert f" {rank}" in own


@pytest.mark.slow
def test_rows_of_a_host_are_about_as_long_as_each_other(hosts):
    _, recent = followed(hosts(2, job(16)), after(14))
    grid = [line for line in text(recent).splitlines() if re.match(r"(h\d|  ) +\d+[·▁-█]", line)]
    ranks = [[int(rank) for rank in re.findall(r"(\d+)[·▁-█]", line)] for line in grid]
    assert ranks == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]


@pytest.mark.slow
@pytest.mark.parametrize("view", View)
def test_any_size_is_filled_exactly(view, hosts):
    _, recent = followed(hosts(16, with_late_rank(job(32), 9, 45 * MS)), after(14))
    for width, height in [(40, 8), (41, 9), (63, 17), (79, 23), (81, 25), (101, 33), (250, 70)]:
        text(recent, width, height, view)
    for most in range(2, 30):
        assert len(host_rows(recent, 80, most)) <= most


@pytest.mark.slow
def test_a_hostile_host_stays_text(hosts):
    made = hosts(2, job())
    made.start()
    made.describe(1, host=HOSTILE)
    made.grow(after(14))
    recent = JobSource(lambda: made.paths).look()
    drawn = text(recent, 120, 40) + text(recent, 120, 40, View.EVERYTHING)
    assert not set(drawn) & {"\x1b", "\x07", "\u202e"}
    assert "\\x1b]0;owned" in drawn


def test_no_grid_where_one_host_is_recorded(hosts):
    made = hosts(2, job(2))
    made.start([0])
    made.grow(after(14))
    assert "Ranks" not in text(JobSource(lambda: made.paths[:1]).look())


@pytest.mark.slow
def test_while_the_job_is_silent_the_clocks_are_what_they_were(hosts):
    made = hosts(2, job(iterations=14), APART)
    source, recent = followed(made, after(14))
    known = recent.hosts[1].clock
    for each in source._recent:
        for kept in each._kept.values():
            kept.clear()
        each._rows = dict.fromkeys(each._rows, 0)
    source._clocks._budget.next_s = 0.0
    assert not source._clocks.look()
    clock = source._clocks.clocks[1]
    assert clock.source == "flows"
    assert clock.offset_ns == pytest.approx(known.offset_ns, abs=1000)
    assert (clock.bound_ns or 0) >= (known.bound_ns or 0) > 0


@pytest.mark.slow
def test_many_rows_are_taken_in_on_the_way(hosts, monkeypatch):
    """The same is shown, and no more than some rows are held."""
    _, expected = followed(hosts(2, job(), APART), after(14))
    monkeypatch.setattr(live_job, "_AT_ONCE", 10)
    taken: list[LiveState] = []
    original = LiveState.take_in

    def counted(state: LiveState) -> Any:
        taken.append(state)
        return original(state)

    monkeypatch.setattr(LiveState, "take_in", counted)
    _, recent = followed(hosts(4, job()), after(14))
    assert len(taken) > 3
    assert {rank: recent.past.of_pid(pid).number.tolist() for pid, rank in recent.ranks.items()} == {
        rank: expected.past.of_pid(pid).number.tolist() for pid, rank in expected.ranks.items()
    }


@pytest.mark.slow
def test_each_host_keeps_its_part_of_the_rows_for_the_clocks(hosts):
    source, _ = followed(hosts(2, job()), after(4))
    alone, _ = followed(hosts(1, job()), after(4))
    for name, rows in live_job._CLOCK_ROWS.items():
        assert [recent._most[name] for recent in source._recent] == [rows // 2] * 2
        assert alone._recent[0]._most[name] == rows


def test_what_a_recorder_learns_of_its_ranks_is_shown(hosts):
    """As where only the first collective says which rank a process is."""
    made = hosts(2, job())
    made.start()
    meta = json.loads((made.paths[1] / "meta.json").read_text())
    known = [target["rank"] for target in meta["targets"]]
    for target in meta["targets"]:
        target["rank"] = -1
    (made.paths[1] / "meta.json").write_text(json.dumps(meta))
    made.grow(after(6))
    source = JobSource(lambda: made.paths)
    assert set(known).isdisjoint(source.look().ranks.values())
    for target, rank in zip(meta["targets"], known, strict=True):
        target["rank"] = rank
    (made.paths[1] / "new.json").write_text(json.dumps(meta))
    (made.paths[1] / "new.json").rename(made.paths[1] / "meta.json")
    for trace in source._traces:
        trace._next_meta_s = 0.0
    made.grow(after(10))
    assert set(known) <= set(source.look().ranks.values())
