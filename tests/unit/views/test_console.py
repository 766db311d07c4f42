"""The report as text: snapshots at pinned widths, hostile names, and widths in between.

A snapshot that is meant to change is rewritten with NETPROF_UPDATE_SNAPSHOTS=1 and looked at before it is committed.
"""

import io
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from support.synthetic import START_NS, Job

from netprof.analysis import analyze
from netprof.model import Device, LineRate, Losses
from netprof.trace import TraceReader
from netprof.views.console import render

SNAPSHOTS = Path(__file__).parents[2] / "snapshots"
HOSTILE = "\x1b]0;owned\x07[red]name[/red]\u202egnp\n[link=file:///x]"


def text(job, path, width, **console):
    file = io.StringIO()
    render(
        analyze(TraceReader(job.write(path / f"{width}.netprof"))),
        Console(file=file, width=width, **console),
        full=True,
    )
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def one_rank():
    """No line rate, no world size, losses, a truncated end: everything that a report has to admit."""
    job = Job(ranks=1, world_size=None, rate_bps=None).fill()
    job.changes["stopped_ns"] = None
    job.changes["losses"] = Losses(merged_bins=4, lost_marks=2, healed_bytes=4096)
    return job


def no_marks():
    job = Job().fill()
    job.marks = []
    return job


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize(
    ("name", "job"),
    [("two_ranks", lambda: Job().fill()), ("unknowns", one_rank), ("no_marks", no_marks)],
)
def test_snapshot(name, job, width, tmp_path):
    drawn = text(job(), tmp_path, width)
    snapshot = SNAPSHOTS / f"report_{name}_{width}.txt"
    if os.environ.get("NETPROF_UPDATE_SNAPSHOTS"):
        snapshot.write_text(drawn, encoding="utf-8")
    assert drawn == snapshot.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 47, 60, 79, 100, 200])
def test_no_line_is_wider_than_the_terminal(width, tmp_path):
    for index, job in enumerate((Job(ranks=4, world_size=4).fill(), one_rank())):
        place = tmp_path / str(index)
        place.mkdir()
        assert max(map(len, text(job, place, width).splitlines())) <= width


@pytest.mark.parametrize("width", [40, 80, 120])
def test_hostile_names_stay_text(width, tmp_path):
    job = Job(ranks=1).fill()
    meta = job.meta()
    job.changes["host"] = HOSTILE
    job.changes["devices"] = (Device("eth0", 7, LineRate(1e9, HOSTILE)), Device(HOSTILE, 7, LineRate(None, HOSTILE)))
    job.changes["warnings"] = (HOSTILE,)
    job.changes["targets"] = (replace(meta.targets[0], command=HOSTILE),)
    drawn = text(job, tmp_path, width, force_terminal=True, color_system=None)
    assert "\x1b" not in drawn
    assert "\x07" not in drawn
    assert "\u202e" not in drawn
    joined = "".join(drawn.split())
    assert "\\x1b]0;owned\\x07[red]name[/red]\\u202egnp" in joined


@pytest.mark.slow
def test_losses_and_cost_are_in_every_report(tmp_path):
    for width, job in ((80, Job(ranks=0)), (81, no_marks()), (82, Job().fill())):
        drawn = text(job, tmp_path, width)
        assert "lost " in drawn
        assert "cost " in drawn
        assert "20.0 ms CPU (1.0 % of a core)" in drawn


def test_a_link_with_hardly_any_traffic_is_left_out_and_said(tmp_path):
    job = Job().fill()
    job.wire = [row for row in job.wire if row[0] == 1] + [(2, 0, START_NS, 66, 66)]
    drawn = text(job, tmp_path, 120)
    assert "1 with hardly any traffic left out" in drawn
    assert "eth1" not in drawn.split("Flows")[0]


@pytest.mark.slow
def test_devices_of_one_name_are_told_apart(tmp_path):
    job = Job().fill()
    first, second = job.meta().devices
    job.changes["devices"] = (replace(first, device="eth0"), replace(second, device="eth0", netns=8))
    job.flow_changes |= {"device": ["eth0", "eth0"], "netns": [7, 8]}
    assert "eth0 of rank 1" in text(job, tmp_path, 100)
    job.changes["targets"] = tuple(replace(target, rank=0) for target in job.meta().targets)
    job.flow_changes["rank"] = [0, 0]  # restarted elsewhere: the rank no longer tells them apart
    assert "eth0@8" in text(job, tmp_path, 101)


@pytest.mark.slow
def test_only_what_is_shown_is_defined(tmp_path):
    empty = text(Job(ranks=0, iterations=0), tmp_path, 80)
    assert "Definitions" not in empty
    assert len(empty.splitlines()) < 24
    assert "scaling factor:" not in text(no_marks(), tmp_path, 81)
    assert "scaling factor:" in text(Job().fill(), tmp_path, 82)


def test_bytes_whose_packets_were_not_seen_are_no_loss_and_said_plainly(tmp_path):
    drawn = text(Job(changes={"losses": Losses(healed_bytes=586_400)}).fill(), tmp_path, 120)
    assert re.search(r"lost +nothing\n +recovered +586.4 kB in packets that were not seen: counted by TCP's", drawn)


@pytest.mark.slow
def test_packets_that_an_interface_dropped_are_in_the_table_of_links(tmp_path):
    assert "dropped" not in text(Job().fill(), tmp_path, 100)
    links = text(Job(drops=4).fill(), tmp_path, 101).split("Links")[1].split("Idle")[0].splitlines()
    assert links[1].endswith("dropped")
    assert links[2].endswith(" 4")


@pytest.mark.slow
def test_a_utilization_that_cannot_be_is_explained(tmp_path):
    drawn = text(Job(ranks=1, rate_bps=0.2e9).fill(), tmp_path, 300)
    assert re.search(r"eth0 keeps up \d{3}\.\d % of its line rate, so 200\.0 Mbit/s \(tbf\) cannot be true", drawn)
    assert "cannot be true" not in text(Job(ranks=1).fill(), tmp_path, 301)
