"""Which digests, made each alone, are one job's: the rest is used, and it is said of each other one why it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.synthetic import Job

from netprof.analysis.digest.one_job import Placed, usable
from netprof.model import Host, HostClock
from netprof.schema import UNKNOWN_RANK

S = 10**9
META = Job(ranks=1).meta()


def host(number: int, *, rank: int | None = None, span=(0, 100 * S), world_size: int | None = 4, **meta) -> Placed:
    rank = number if rank is None else rank
    target = replace(META.targets[0], rank=rank, pid=100 + rank)
    described = replace(META, **{"boot_id": f"boot{number}", "targets": (target,)} | meta)
    clock = HostClock("flows", bound_ns=1000.0)
    return Placed(number, Host(f"h{number}", described, f"h{number}", clock), span, world_size)


def test_all_of_one_job():
    found = usable([host(2), host(0), host(1, span=(S, 101 * S))])
    assert list(found.clocks) == [0, 1, 2]
    assert found.span_ns == (S, 100 * S)
    assert found.left_out == {}
    assert found.notes == ()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (host(1, rank=0), "it has rank 0 as h0 has"),
        (host(1, world_size=8), "it is of another job: of 8 ranks, while h0 is of one of 4"),
        (host(1, rank=0, boot_id="boot0"), "it has the same processes of the same host as h0"),
        (host(1, span=(200 * S, 300 * S)), "it was recorded at another time than the others"),
    ],
)
def test_what_is_not_is_left_out_and_named(wrong, why):
    found = usable([host(0), wrong, host(2)])
    assert list(found.clocks) == [0, 2]
    assert list(found.left_out) == [1]
    assert why in found.left_out[1]


@pytest.mark.parametrize("unknown", [0, 1])
def test_a_host_that_does_not_know_how_many_ranks_there_are_is_of_the_job(unknown):
    placed = [host(number, world_size=None if number == unknown else 4) for number in (0, 1, 2)]
    found = usable([*placed, host(3, world_size=8)])
    assert list(found.clocks) == [0, 1, 2]
    assert "of 8 ranks, while" in found.left_out[3]


def test_a_recorder_that_died_early_shortens_nobody_s_report():
    found = usable([host(0), host(1, span=(0, 10 * S))])
    assert list(found.clocks) == [0, 1]
    assert found.span_ns == (0, 100 * S)
    assert "h1 recorded only 10.0 s of these 100.0 s" in found.notes[0]


def test_clocks_that_nobody_compared_and_other_versions_are_said():
    other = host(1, netprof_version="9")
    other = replace(other, host=replace(other.host, clock=HostClock("realtime")))
    found = usable([host(0), other])
    assert any("different versions" in note for note in found.notes)
    no_stream = "no stream of bytes that both ends recorded leads from h0 to h1 and back"
    assert any(no_stream in note for note in found.notes)


def test_who_recorded_most_is_told_among_those_that_are_of_the_time():
    """Beside a long recording of another time these are short ones, and among themselves they are not."""
    spans = ((0, 100 * S), (-S, 50 * S), (55 * S, 110 * S), (500 * S, 999 * S))
    found = usable([host(number, span=span) for number, span in enumerate(spans)])
    assert list(found.clocks) == [0, 1]
    assert found.span_ns == (0, 50 * S)
    assert set(found.left_out.values()) == {"it was recorded at another time than the others"}


def test_of_many_clocks_that_nobody_compared_some_are_named():
    placed = [host(number, world_size=None) for number in range(40)]
    apart = [replace(each, host=replace(each.host, clock=HostClock("realtime"))) for each in placed[1:]]
    (said,) = usable([placed[0], *apart]).notes
    assert "from h0 to h1, h2, h3, h4 and 35 more and back" in said


def test_numbers_that_each_host_has_from_communicators_of_its_own_are_no_ranks_of_the_job():
    """As where gloo groups of each node are the largest that a job uses, and no launcher numbers its ranks."""
    placed = [replace(host(number, rank=UNKNOWN_RANK), told_ranks=frozenset({0, 1})) for number in (0, 1)]
    found = usable([*placed, replace(host(2, rank=UNKNOWN_RANK), told_ranks=frozenset({2, 3}))])
    assert list(found.clocks) == [0, 2]
    assert "it has rank 0 as h0 has" in found.left_out[1]
    assert "record with --rank and --world-size" in found.left_out[1]
