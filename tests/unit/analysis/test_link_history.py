"""A link whose line rate changes: each moment counts at the rate of the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.synthetic import ITERATION_NS, RATE_BPS, START_NS, Job

from netprof.analysis import analyze
from netprof.analysis.findings.links.link_changes import changes_in_words
from netprof.analysis.tables.flow_table import LinkKey, read_flows
from netprof.analysis.tables.intervals import interval
from netprof.analysis.tables.link_history import LinkChange, LinkPast, RateOverTime, known_as, read_link_history
from netprof.model import Device, LineRate
from netprof.schema import LinkState
from netprof.trace import TraceReader

GBIT = 10**9
HALVED = RateOverTime(np.array([-(10**15), 100, 300]), np.array([1e9, np.nan, 5e8]))
FROM = ((1, 1e9, "ethtool"), (2, 2e8, "tbf"))


def past(*changes: tuple[int, str, LinkState, float | None]) -> LinkPast:
    return LinkPast(tuple(LinkChange(at, name, state, bps, "tbf", "tbf", 1500) for at, name, state, bps in changes))


def test_the_rate_of_the_time() -> None:
    assert HALVED.at(np.array([-5, 99, 300, 10**12])).tolist() == [1e9, 1e9, 5e8, 5e8]
    assert np.isnan(HALVED.at(np.array([100, 299]))).all()
    assert HALVED.most == 1e9
    assert (HALVED.known & interval(0, 400)).total_ns == 200
    assert HALVED.longest(interval(0, 350)) != HALVED.longest(interval(0, 350))  # unknown for longest
    assert HALVED.longest(interval(0, 350) & HALVED.known) == 1e9
    assert HALVED.longest(interval(90, 1000)) == 5e8
    assert not RateOverTime(np.zeros(1, np.int64), np.array([np.nan])).is_known


def test_where_a_rate_came_from_is_told_of_the_nearest_one() -> None:
    first, second = (LinkChange(at, "eth0", LinkState.UP, bps, source, "", 0) for at, bps, source in FROM)
    changes = LinkPast((first, second))
    assert [changes.source_of(bps) for bps in (1e9, 1.003e9, 2e8)] == ["ethtool", "ethtool", "tbf"]
    assert past((1, "eth0", LinkState.UP, None), (2, "eth0", LinkState.UP, 1e9)).source_of(None) == "tbf"


def test_what_is_full_before_and_after_a_change_is_full(tmp_path: Path) -> None:
    """Half as fast from the middle on, and half the bytes in each bin from then on."""
    middle = START_NS + 5 * ITERATION_NS
    job = Job(ranks=1, world_size=1).fill()
    job.wire = [(*row[:3], *((row[3], row[4]) if row[2] < middle else (row[3] // 2, row[4] // 2))) for row in job.wire]
    steady = links(job, tmp_path / "wrong")[0]
    job.rate_changes = [("eth0", middle, RATE_BPS / 2)]
    changed = links(job, tmp_path / "right")[0]
    assert steady["utilization_tx"] == pytest.approx(0.75 * 0.4)
    assert changed["utilization_tx"] == pytest.approx(0.4)
    assert [each["line_rate_bps"] for each in changed["history"]] == [RATE_BPS, RATE_BPS / 2]
    assert changed["history"][1]["from_s"] == pytest.approx(1.01)


def test_utilization_is_of_the_time_in_which_the_rate_is_known(tmp_path: Path) -> None:
    job = Job(ranks=1, world_size=1).fill()
    job.rate_changes = [("eth0", START_NS + 2 * ITERATION_NS, None)]
    (link,) = links(job, tmp_path)
    assert link["utilization_tx"] == pytest.approx(0.4)
    assert link["line_rate_bps"] == RATE_BPS  # not for the longest, but known
    assert link["idle_tx_total_s"] == pytest.approx(0.6 * link["window_s"], rel=0.01)


def test_a_rate_that_was_only_known_before_the_recording_is_not_known(tmp_path: Path) -> None:
    job = Job(ranks=2).fill()
    job.rate_changes = [("eth0", 1, None), ("eth1", 1, None)]
    link, _ = links(job, tmp_path)
    assert (link["utilization_tx"], link["line_rate_bps"]) == (None, None)


def links(job: Job, path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = analyze(TraceReader(job.write(path / "t.netprof"))).document()["links"]
    return found


def test_what_happened_in_plain_words() -> None:
    up, down, gone = LinkState.UP, LinkState.DOWN, LinkState.GONE
    told = past((0, "eth0", up, 5e8), (GBIT, "eth0", up, 1e8), (2 * GBIT, "a", up, 1e8), (3 * GBIT, "a", down, 1e8))
    assert list(changes_in_words("eth0", told, 0)) == [
        "eth0 went from 500.0 Mbit/s to 100.0 Mbit/s (tbf), each counted while it held, 1.00 s into the recording",
        "eth0 was renamed to a 2.00 s into the recording",
        "eth0 went down 3.00 s into the recording",
    ]
    ended = past((0, "eth0", up, 5e8), (GBIT, "eth0", gone, None))
    assert list(changes_in_words("eth0", ended, 0)) == [
        "eth0 was removed, so its own counters end 1.00 s into the recording"
    ]
    flaps = past(*((at * GBIT, "eth0", (down, up)[at % 2], 5e8) for at in range(101)))
    said = list(changes_in_words("eth0", flaps, 0))
    assert len(said) == 6
    assert said[-1] == "eth0 changed 100 times while it was recorded; the first 5 are listed"


def test_a_device_that_nothing_is_told_of_is_as_meta_has_it() -> None:
    empty: dict[str, Any] = {name: [] for name in Job(ranks=1).fill().link_changes()}
    pasts = read_link_history(empty, [Device("eth0", 7, LineRate(1e9, "ethtool"))])
    assert pasts[LinkKey(7, "eth0")].rate.at(np.array([0])).tolist() == [1e9]
    assert pasts[LinkKey(7, "eth0")].changes[0].line_rate_source == "ethtool"


def test_flows_of_a_device_with_a_new_name_are_its_own() -> None:
    up = LinkState.UP
    pasts = {LinkKey(7, "eth0"): past((0, "eth0", up, 1e9), (5, "fast0", up, 1e9))}
    flows = Job(ranks=2).flows() | {"device": ["eth0", "fast0"]}
    assert read_flows(flows, {}, known_as=known_as(pasts)).device.tolist() == ["eth0", "eth0"]
    assert read_flows(flows | {"netns": [7, 8]}, {}, known_as=known_as(pasts)).device.tolist() == ["eth0", "fast0"]
    both = pasts | {LinkKey(7, "fast0"): past((0, "fast0", up, 1e9))}
    assert read_flows(flows, {}, known_as=known_as(both)).device.tolist() == ["eth0", "fast0"]


@pytest.mark.parametrize("bps", [float("nan"), float("inf"), -1.0, 0.0])
def test_rates_that_make_no_sense_are_unknown(bps: float) -> None:
    job = Job(ranks=1).fill()
    job.rate_changes = [("eth0", 10, 1e9)]
    table = job.link_changes() | {"line_rate_bps": [1e9, bps], "state": [2, 99]}
    assert read_link_history(table, ())[LinkKey(7, "eth0")].changes[1].line_rate_bps is None
