"""What has to hold for the numbers to be true, and that each check fails where it should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.synthetic import MS, Job

from netprof.analysis import analyze
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.collectives.ranks import RANKS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.recording.checks import CHECKS, Check
from netprof.analysis.findings.recording.recording import RECORDING
from netprof.analysis.findings.verdict.first_screen import FIRST_SCREEN
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.result_tables import result_table
from netprof.analysis.section import Analysis
from netprof.trace import TraceReader
from netprof.views.perfetto import events


@pytest.fixture
def analysis(tmp_path: Path):
    return lambda job: analyze(TraceReader(job.write(tmp_path / "t.netprof")))


def failed(found: Analysis) -> dict[str, str]:
    return {check.name: check.sentence for check in found.of(CHECKS) if check.holds is False}


def test_all_hold_for_a_whole_recording(analysis):
    found = analysis(Job().fill())
    assert failed(found) == {}
    assert ("lost", "nothing") in found.parts(RECORDING)[0].bodies[0].rows


def test_bytes_that_the_collectives_need_are_missing(analysis):
    job = Job().fill()
    job.wire = [row for row in job.wire if row[0] == 1 or row[2] // 10**6 % 4]
    found = analysis(job)
    assert "fewer bytes were seen to be sent" in failed(found)["payload_of_collectives"]
    assert "rank 1 7" in failed(found)["payload_of_collectives"]
    assert failed(found)["payload_of_collectives"] in found.notes
    lost = dict(found.parts(RECORDING)[0].bodies[0].rows)["lost"]
    assert lost.startswith("nothing known to the recorder, but")


def test_what_a_step_lacks_may_have_been_sent_outside_of_the_recording(analysis):
    """A rank sends before the last one asks: of the first step, before it began."""
    job = Job(iterations=4).fill()
    first_ns = min(row[2] for row in job.wire) + 60 * MS
    job.wire = [row for row in job.wire if row[0] == 1 or row[2] > first_ns]
    found = analysis(job)
    ratios = [rank.bandwidths.payload_to_algorithm_ratio for rank in found.of(RANKS)]
    assert 0.75 < min(ratio for ratio in ratios if ratio is not None) < 0.99
    assert "payload_of_collectives" not in failed(found)


def test_a_line_rate_that_cannot_be(analysis):
    assert "keeps up more than its line rate" in failed(analysis(Job(rate_bps=0.2e9).fill()))["line_rate"]


def test_a_device_that_counted_less_than_the_job_moved(analysis):
    found = analysis(Job(other_traffic=-0.5).fill())
    assert "than the device itself counted (eth0 · rank 0" in failed(found)["device_counters"]


@pytest.mark.parametrize(
    ("world_size", "said"), [(None, "nothing; a part of the job is not recorded: see the notes"), (2, "nothing")]
)
def test_a_peer_that_is_not_recorded(analysis, world_size: int | None, said: str):
    """It is of the job only where not all ranks are recorded: a data set may be streamed, and logs sent away."""
    job = Job(world_size=world_size).fill()
    job.flow_changes["remote_addr"] = ["10.0.0.2", "10.9.9.9"]
    job.wire += [(2, way, at + 100 * MS, new, whole) for flow, way, at, new, whole in job.wire if flow == 2]
    found = analysis(job)
    assert dict(found.parts(RECORDING)[0].bodies[0].rows)["lost"] == said
    sentence = failed(found)["peers"]
    assert sentence.startswith("ranks exchange bytes with peers that are not recorded (10.9.9.9: ")


def test_a_nat_between_two_ranks_leaves_nobody_out(analysis):
    """Neither end names the other's address, but their streams stand at the same bytes."""
    job = Job().fill()
    job.flow_changes |= {"remote_addr": ["10.1.0.254", "10.0.0.254"], "remote_port": [51_000, 40_000]}
    assert "peers" not in failed(analysis(job))


def test_members_that_are_not_recorded(analysis):
    job = Job(ranks=1).fill()
    assert failed(analysis(job))["members"] == "communicators have members that are not recorded (1 of 2 ranks)"


def test_a_piece_that_sees_a_part_of_a_communicator_does_not_lack_the_rest(analysis):
    """A rank that stands still in a piece has no collective in it."""
    whole = analysis(Job().fill())
    (members,) = (check for check in whole.of(CHECKS) if check.name == "members")
    assert members.groups == ((2, frozenset({100, 101})),)
    part = replace(members, holds=False, sentence="1 of 2 ranks", groups=((2, frozenset({100})),))
    assert CHECKS.merge is not None
    for parts, holds in (([(members,), (part,)], True), ([(part,), (members,)], True), ([(part,), (part,)], False)):
        found = {check.name: check for check in CHECKS.merge(parts, whole)}["members"]
        assert found.holds is holds
        assert found.sentence == ("" if holds else "communicators have members that are not recorded (1 of 2 ranks)")


def test_what_nothing_tells_is_neither(analysis):
    job = Job(ranks=1, world_size=None, rate_bps=None).fill()
    found = analysis(job)
    holds = {check.name: check.holds for check in found.of(CHECKS)}
    assert holds["line_rate"] is holds["members"] is holds["payload_of_collectives"] is None


@pytest.mark.parametrize("first", [True, False, None])
@pytest.mark.parametrize("second", [True, False, None])
def test_over_two_pieces_a_check_holds_only_if_it_fails_in_neither(first, second):
    known = [each for each in (first, second) if each is not None]
    found = Check("a", first, "one") | Check("a", second, "two")
    assert found.holds == (all(known) if known else None)
    assert found.sentence == "one" or first is not False, "of two that fail the first is told"


def test_of_a_line_rate_that_cannot_be_nothing_is_a_share(analysis):
    found = analysis(Job(rate_bps=0.2e9).fill())
    (grid,) = [grid for part in found.of(FIRST_SCREEN).parts for grid in part.bodies if "used" in grid.headings]
    assert {row[grid.headings.index("used")] for row in grid.rows} == {"unknown"}
    assert found.of(COLLECTIVES).summary.line_rate_share is None
    assert {link.idle_basis for link in found.of(LINKS)} == {"bins without a packet"}
    assert "of line rate" not in found.of(VERDICT).text
    assert np.isnan(result_table(found, "utilization")["utilization"]).all()
    names = {event["name"] for event in events(found) if event["ph"] == "C"}
    assert names == {"sent, Gbit/s", "received, Gbit/s"}
