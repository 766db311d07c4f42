"""Who was late on another host is said only as far as the hosts' clocks tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from support.synthetic import MS, collectives

from netprof.analysis.events.collectives import Collectives
from netprof.analysis.events.members import Members, find_members
from netprof.analysis.events.order import ClockBounds, clock_bounds
from netprof.analysis.tables.columns import UNKNOWN, concatenate
from netprof.model import Host, HostClock


def members(bound_ns: float, *posted_ns: int, hosts: tuple[int, ...] = (0, 1, 2)) -> Members:
    """What is found of one all-reduce that processes 0, 1, ... posted at some times, process n on host n."""
    count = len(posted_ns)
    parts = [collectives(pid + 1, [at], [50 * MS], ranks=count, number=pid) for pid, at in enumerate(posted_ns)]
    found: Collectives = concatenate(Collectives, parts)
    clocks = ClockBounds(np.array([0.0, bound_ns, bound_ns]), {pid + 1: hosts[pid] for pid in range(count)})
    return find_members(found, {pid + 1: pid for pid in range(count)}, count, {}, clocks)


def test_lateness_beyond_the_bound_is_said():
    found = members(2 * MS, 0, 5 * MS)
    assert found.late_ns.tolist() == [5 * MS, 5 * MS]
    assert found.last_pid.tolist() == [2, 2]


def test_lateness_within_the_bound_is_not():
    found = members(5 * MS, 0, 5 * MS)
    assert found.late_ns.tolist() == [0, 5 * MS]
    assert found.last_pid.tolist() == [UNKNOWN, UNKNOWN]


def test_one_was_late_but_who_is_not_known():
    found = members(2 * MS, 0, 10 * MS, 13 * MS)
    assert found.late_ns.tolist() == [13 * MS, 10 * MS, 13 * MS]
    assert found.last_pid.tolist() == [UNKNOWN] * 3


def test_two_on_one_host_are_on_one_clock():
    found = members(2 * MS, 0, 10 * MS, 13 * MS, hosts=(0, 1, 1))
    assert found.late_ns.tolist() == [13 * MS] * 3
    assert found.last_pid.tolist() == [3] * 3


def test_a_clock_of_which_nobody_knows_tells_nothing():
    host = Host("a", None, "a.netprof", pids={1: 1})  # type: ignore[arg-type]
    other = replace(host, clock=HostClock("realtime", bound_ns=None), pids={2: 2})
    both = np.array([1]), np.array([0]), np.array([2]), np.array([10**12])
    assert not clock_bounds([host, other]).tell(*both)
    assert clock_bounds([host]).tell(*both)
