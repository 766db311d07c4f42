"""The live view as a pure function: snapshots at pinned sizes, any other size, hostile names, and what must be in it.

A snapshot that is meant to change is rewritten with NETPROF_UPDATE_SNAPSHOTS=1 and looked at before it is committed.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.synthetic import MS, START_NS, Job, enqueued, with_late_rank

from netprof.model import Device, LineRate, Losses, Target
from netprof.schema import GpuMetric
from netprof.session.live_follow import FollowedTraceSource
from netprof.views import progress
from netprof.views.live.draw import draw
from netprof.views.live.gpus import gpu_rows
from netprof.views.live.view_state import View, ViewState

SNAPSHOTS = Path(__file__).parents[3] / "snapshots"
SIZES = [(80, 24), (120, 40), (200, 60)]
HOSTILE = "\x1b]0;owned\x07[red]name[/red]\u202egnp\n模型"
STATE = ViewState("recording t.netprof")


def unknown_rate():
    return Job(ranks=2, rate_bps=None, world_size=None).fill()


def with_losses():
    job = Job(ranks=1).fill()
    job.changes["losses"] = Losses(merged_bins=4, lost_marks=2, untracked_flows=1)
    return job


def no_marks():
    job = Job().fill()
    job.marks = []
    return job


def nothing():
    return Job(ranks=0, iterations=0)


JOBS = {
    "nothing_yet": nothing,
    "one_rank": lambda: Job(ranks=1).fill(),
    "four_ranks": lambda: Job(ranks=4, world_size=4).fill(),
    "unknown_rate": unknown_rate,
    "losses": with_losses,
}


@pytest.fixture
def look(tmp_path):
    def recent(job):
        return FollowedTraceSource(job.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.netprof")).look()

    return recent


def text(recent, width, height, state=STATE):
    rows = draw(recent, state, width, height)
    assert len(rows) == height
    assert {row.cell_len for row in rows} == {width}
    return "\n".join(row.plain.rstrip() for row in rows) + "\n"


def check(name, drawn):
    snapshot = SNAPSHOTS / f"live_{name}.txt"
    if os.environ.get("NETPROF_UPDATE_SNAPSHOTS"):
        snapshot.write_text(drawn, encoding="utf-8")
    assert drawn == snapshot.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", JOBS)
def test_snapshot(name, look):
    recent = look(JOBS[name]())
    for width, height in SIZES:
        check(f"{name}_{width}x{height}", text(recent, width, height))


@pytest.mark.slow
@pytest.mark.parametrize("view", [View.FLOWS, View.STEPS, View.EVERYTHING])
def test_snapshot_of_the_other_views(view, look):
    check(f"{view.value}_80x24", text(look(Job().fill()), 80, 24, replace(STATE, view=view)))


@pytest.mark.slow
def test_snapshot_of_the_help(look):
    check("help_80x24", text(look(Job().fill()), 80, 24, replace(STATE, help=True)))


@pytest.mark.slow
@pytest.mark.parametrize("view", View)
@pytest.mark.parametrize("job", [lambda: Job(ranks=4, world_size=4).fill(), unknown_rate, no_marks, nothing])
def test_any_size_is_filled_exactly(job, view, look):
    recent = look(job())
    for width, height in [
        (1, 1),
        (12, 3),
        (39, 8),
        (40, 8),
        (41, 9),
        (63, 17),
        (79, 23),
        (81, 25),
        (101, 33),
        (250, 70),
    ]:
        text(recent, width, height, replace(STATE, view=view))
        text(recent, width, height, replace(STATE, view=view, help=True, paused=True, notice="nothing new for 9 s"))
        text(None, width, height, replace(STATE, view=view))


@pytest.mark.parametrize("view", View)
def test_hostile_names_stay_text(view, look):
    job = Job(ranks=1).fill()
    job.changes["devices"] = (Device("eth0", 7, LineRate(1e9, HOSTILE)), Device(HOSTILE, 7, LineRate(1e9, HOSTILE)))
    job.changes["targets"] = (Target(100, 5, HOSTILE, 7, 0, 2, ("ddp",)),)
    job.flow_changes |= {"device": [HOSTILE], "local_addr": [HOSTILE]}
    drawn = text(look(job), 120, 40, ViewState(HOSTILE, view=view, notice=HOSTILE))
    assert not set(drawn) & {"\x1b", "\x07", "\u202e"}
    assert "\\x1b]0;owned\\x07[red]" in drawn


def test_the_numbers_are_those_of_the_job(look):
    """200 ms a step: 20 forward, 22 backward, 98 exposed, 60 rest; line rate from 50 to 130 ms, 40 % of the time."""
    recent = look(Job().fill())
    overview = text(recent, 120, 40)
    assert "200 ms a step" in overview
    assert overview.count("↑  40 %") == overview.count("↓  40 %") == 2
    rows = text(recent, 120, 40, replace(STATE, view=View.STEPS))
    assert "200.0 ms   20.0 ms   22.0 ms   98.0 ms   60.0 ms" in rows
    assert "nothing lost" in overview
    assert "1 % of a core" in overview


def test_losses_are_pointed_out(look):
    assert "lost 2 marks, 1 flow, 4 bins merged" in text(look(with_losses()), 120, 40)


def test_an_iteration_that_does_not_end_is_pointed_out(look):
    job = Job(ranks=1).fill()
    end_ns = START_NS + 10 * 200 * MS
    job.mark(end_ns + 5000 * MS, 999, 102)  # time goes on, the rank does not
    row = next(row for row in draw(look(job), STATE, 120, 40) if "s in this step" in row.plain)
    assert "5 s in this step" in row.plain
    assert any("bold" in str(span.style) for span in row.spans)


def test_the_strip_shows_idle_and_busy_spans_and_why(look):
    """At 10 ms a column an iteration is 20 columns: 5 idle, 8 at line rate, 7 idle."""
    recent = look(Job(ranks=1).fill())
    lines = text(recent, 100, 30, replace(STATE, zoom=10)).splitlines()
    sent = next(line for line in lines if line.startswith(" ↑"))[24:]
    why = next(line for line in lines if "why idle" in line)[24:]
    assert "·" * 7 + "·" * 5 + "█" * 8 + "·" * 7 in sent
    assert "aaaaaagggww        waaaaaaggg" in why  # from 138 ms on nothing is to come, from 30 ms on a bucket waits


def test_gpus_are_shown_when_there_are_samples(look):
    recent = look(Job(ranks=1).fill())
    assert gpu_rows(recent, 120, 5) == []
    assert "GPU" not in text(recent, 120, 40)
    with_gpus = replace(recent, gpus={0: {GpuMetric.BUSY_PERCENT: 87.0, GpuMetric.POWER_W: 312.4}, 1: {}})
    drawn = text(with_gpus, 120, 40)
    assert "87 % busy  312 W" in drawn


@pytest.mark.slow
def test_packets_that_an_interface_dropped_are_pointed_out(look):
    assert "dropped 4 packets" in text(look(Job(ranks=1, drops=4).fill()), 120, 40)
    assert "dropped" not in text(look(Job(ranks=1).fill()), 120, 40)


@pytest.mark.slow
def test_one_outlier_does_not_flatten_the_trend_and_is_marked(look):
    job = Job(ranks=1, iterations=20)
    at = START_NS
    for step in range(21):
        job.step(0, at)
        at += (210 if step % 2 else 200) * MS + (5000 * MS if step == 9 else 0)
    row = next(row for row in text(look(job), 120, 40).splitlines() if "▸ 0" in row)
    assert row.count("↑") == 1
    assert row.count("▆") + row.count("▇") >= 18


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "late"), [(4, 2), (64, 50)])
def test_who_holds_the_job_up_stands_out(ranks, late, look):
    recent = look(with_late_rank(Job(ranks=ranks, world_size=ranks, iterations=14).fill(), late, 45 * MS))
    assert [each.who.rank for each in recent.stragglers] == [late]
    drawn = draw(recent, STATE, 80, 24)
    (own,) = [row for row in drawn if row.plain.rstrip().endswith("LATE")]
    assert own.plain.split()[:2] == ["▸", str(late)]
    assert any("bold" in str(span.style) for span in own.spans)


@pytest.mark.slow
def test_nobody_stands_out_where_nobody_holds_the_job_up(look):
    assert not look(Job(ranks=4, world_size=4, iterations=14).fill()).stragglers


def test_of_a_process_that_is_only_seen_to_launch_no_phase_is_shown(look):
    recent = look(enqueued())
    assert recent.launching == {100, 101}
    steps = [row for row in text(recent, 120, 40, replace(STATE, view=View.STEPS)).splitlines() if "#" in row]
    assert len(steps) > 10
    assert {row.count("unknown") for row in steps} == {4}
    assert "phases" not in text(recent, 120, 40, replace(STATE, detail=True))
    assert "exposed" not in progress.line(recent, None)
