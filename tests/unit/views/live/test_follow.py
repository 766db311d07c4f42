"""Following a trace that grows: whole batches as they come, half ones later, damage said."""

import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from support.synthetic import ITERATION_NS, START_NS, Job, mark_columns, wire_columns

from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.live.window import LONGEST_NS
from netprof.errors import TraceError
from netprof.files import Directory
from netprof.schema import tables
from netprof.session import live_follow
from netprof.session.live_follow import FollowedTrace, FollowedTraceSource
from netprof.trace import TraceWriter, follower
from netprof.trace.follower import TableFollower


class Growing:
    """A trace to which iterations are added."""

    def __init__(self, path, iterations=20):
        self.job = Job(iterations=iterations).fill()
        self.path = path
        self.meta = replace(self.job.meta(), stopped_ns=None, stop_reason="")
        self.writer = TraceWriter(path, self.meta)
        self.writer.append("flows", self.job.flows())
        self.done = 0

    def grow(self, iterations):
        begin, end = (START_NS + count * ITERATION_NS for count in (self.done, self.done + iterations))
        self.done += iterations
        self.writer.append("marks", mark_columns([row for row in self.job.marks if begin <= row[0] < end]))
        self.writer.append("wire", wire_columns([row for row in self.job.wire if begin <= row[2] < end]))


@pytest.fixture
def growing(tmp_path):
    return Growing(tmp_path / "t.netprof")


@pytest.mark.slow
def test_it_sees_what_is_added(growing):
    source = FollowedTraceSource(growing.path)
    assert len(source.look().past) == 0
    for _ in range(5):
        growing.grow(4)
        source.look()  # the rest of what is being written may come with the next look
        recent = source.look()
        assert recent.past.number.max() == growing.done - 1
    assert source.ended == ""
    assert source.goes_on
    assert source.notice == ""


def test_a_table_that_is_written_before_another_does_not_leave_that_idle(growing):
    growing.grow(4)
    source = FollowedTraceSource(growing.path)
    through_ns = source.look().through_ns
    ahead = [row for row in growing.job.marks if row[0] >= START_NS + 4 * ITERATION_NS]
    growing.writer.append("marks", mark_columns(ahead[:40]))
    assert source.look().through_ns == through_ns, "the bytes of that time are not there yet"
    growing.writer.append("wire", wire_columns([row for row in growing.job.wire if row[2] <= ahead[39][0]]))
    assert source.look().through_ns > through_ns


@pytest.mark.slow
def test_a_batch_that_is_half_written_is_read_when_it_is_whole(growing):
    growing.grow(4)
    source = FollowedTraceSource(growing.path)
    source.look()
    marks = growing.path / "marks.arrows"
    before = marks.stat().st_size
    growing.grow(4)
    whole = marks.read_bytes()
    for cut in (before + 1, before + 7, before + 9, before + 300, len(whole) - 1):
        marks.write_bytes(whole[:cut])
        assert source.look().past.number.max() == 3
    marks.write_bytes(whole)
    source.look()
    assert source.look().past.number.max() == 7


def test_the_end_is_noticed(growing):
    growing.grow(4)
    source = FollowedTraceSource(growing.path)
    growing.writer.close(replace(growing.meta, stopped_ns=START_NS + 4 * ITERATION_NS, stop_reason="the job ended"))
    assert source.look().meta.stop_reason == source.ended == "the job ended"


@pytest.mark.slow
def test_a_long_past_is_counted_but_not_kept(tmp_path):
    growing = Growing(tmp_path / "t.netprof", iterations=600)
    for _ in range(120):
        growing.grow(5)
    recent = FollowedTraceSource(growing.path).look()
    assert recent.past.of_pid(100).number.tolist() == list(range(500, 600))
    assert recent.analysis is not None
    assert recent.analysis.of(ITERATIONS).count == pytest.approx(100, abs=2)


def test_what_is_no_trace_is_said(tmp_path, growing):
    with pytest.raises(TraceError, match="not a netprof trace"):
        FollowedTraceSource(tmp_path / "nothing")
    growing.grow(4)
    (growing.path / "marks.arrows").write_bytes((growing.path / "wire.arrows").read_bytes())
    with pytest.raises(TraceError, match="other columns"):
        FollowedTraceSource(growing.path).look()


def test_a_table_of_noise_is_followed_in_vain_but_harmlessly(growing):
    (growing.path / "marks.arrows").write_bytes(bytes(range(256)) * 64)
    assert len(FollowedTraceSource(growing.path).look().past) == 0


def test_damage_inside_a_batch_is_said(growing):
    growing.grow(4)
    wire = growing.path / "wire.arrows"
    data = bytearray(wire.read_bytes())
    data[-200:-100] = b"\xff" * 100
    wire.write_bytes(data)
    with pytest.raises(TraceError, match="damaged"):
        FollowedTraceSource(growing.path).look()


def test_marks_and_flows_are_read_from_the_beginning_and_bytes_are_not(growing):
    for _ in range(10):
        growing.grow(2)
    followed = FollowedTrace(growing.path, most=2)
    batches = Counter(name for name, _ in followed.fresh())
    assert batches == {"flows": 1, "marks": 10, "wire": 2}


@pytest.mark.parametrize(
    ("after_s", "notice"),
    [
        (5, ""),
        (5.5, "nothing new for 6 s"),
        (599, "nothing new for 599 s"),
        (600, "nothing new for 10 min"),
        (10_800, "nothing new for 180 min"),
    ],
)
def test_after_five_seconds_silence_is_said(after_s, notice, growing, monkeypatch):
    growing.grow(2)
    source = FollowedTraceSource(growing.path)
    source.look()
    source._trace._grew_s = 1000.0
    monkeypatch.setattr(live_follow, "time", SimpleNamespace(monotonic=lambda: 1000.0 + after_s))
    assert (source.notice, source.ended) == (notice, ""), "whose recorder it was is not known: it is of another machine"


def test_a_description_is_looked_at_once_a_second_and_read_where_it_is_another(growing, monkeypatch):
    now_s = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], time=time.time)
    monkeypatch.setattr(live_follow, "time", clock)
    followed = FollowedTrace(growing.path)
    for after_s, writes, is_news in ((0.0, False, True), (0.9, True, False), (0.1, False, True), (1.0, False, False)):
        if writes:
            growing.writer.update_meta(replace(growing.meta, stop_reason="the job ended"))
        now_s[0] += after_s
        assert followed.describe() is is_news
        assert followed.ended == ("the job ended" if followed.meta.stop_reason else "")
    assert followed.ended


def test_what_is_added_ends_the_silence(growing, monkeypatch):
    now_s = [1000.0]
    monkeypatch.setattr(live_follow, "time", SimpleNamespace(monotonic=lambda: now_s[0], time=time.time))
    followed = FollowedTrace(growing.path)
    assert list(followed.fresh())
    now_s[0] += 100
    assert followed.is_silent
    growing.grow(2)
    assert list(followed.fresh())
    assert not followed.is_silent
    now_s[0] += 100
    assert list(followed.fresh()) == []
    assert followed.is_silent


def test_a_link_in_a_trace_tells_no_time_of_what_it_leads_to(growing, tmp_path):
    growing.grow(2)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    (growing.path / "nic.arrows").unlink(missing_ok=True)
    (growing.path / "nic.arrows").symlink_to(elsewhere)
    for file in growing.path.iterdir():
        os.utime(file, (time.time() - 500,) * 2, follow_symlinks=False)
    assert FollowedTrace(growing.path).silent_s > 400


def test_how_long_a_trace_has_been_silent_is_told_by_the_newest_of_its_files(growing):
    growing.grow(2)
    files = [growing.path / "meta.json", *growing.path.glob("*.arrows")]
    assert len(files) > 2
    for newest in files:
        for file in files:
            os.utime(file, (time.time() - (50 if file == newest else 500),) * 2)
        assert 50 <= FollowedTrace(growing.path).silent_s < 60
    for file in files:
        os.utime(file, (time.time() + 500,) * 2)  # by the clock of a file server
    assert FollowedTrace(growing.path).silent_s < 0.9


@pytest.mark.parametrize(("of_here", "age_s"), [(True, 100), (False, 100), (True, 0)])
def test_of_a_recorder_that_is_gone_it_is_said_that_it_ended_without_a_word(of_here, age_s, growing):
    """At once where the files are old; of another machine, or of one that holds its lock, it is unknown."""
    growing.grow(2)
    if of_here:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        growing.writer.update_meta(replace(growing.meta, boot_id=boot_id))
    for file in growing.path.iterdir():
        os.utime(file, (time.time() - age_s,) * 2)
    assert FollowedTraceSource(growing.path).ended == "", "a recorder holds it"
    growing.writer = None  # as the kernel does for one that was killed
    source = FollowedTraceSource(growing.path)
    source.look()
    assert source.ended == ("the recorder died: the trace has no end marker" if of_here and age_s else "")
    assert source.notice == ("nothing new for 100 s" if age_s and not of_here else "")
    assert source.goes_on == (not age_s)


def test_of_a_batch_only_rows_that_may_still_be_shown_are_taken():
    longest, schema = LONGEST_NS, tables()["blocked"]
    times = [5, 6, 7, longest + 6]
    row = {name: [1, 2, 3, 4] for name in schema.names}
    batch = pa.RecordBatch.from_pydict(row | {"time_ns": times}, schema)
    rows = live_follow.recent_rows("blocked", batch)
    assert (rows["time_ns"].tolist(), rows["pid"].tolist()) == ([7, longest + 6], [3, 4])
    later = live_follow.recent_rows("blocked", batch.slice(2))
    assert later["time_ns"].tolist() == [7, longest + 6]
    counters = pa.RecordBatch.from_pydict({"series": [1] * 4, "time_ns": times, "value": times}, tables()["counters"])
    assert live_follow.recent_rows("counters", counters)["time_ns"].tolist() == times, "a value holds until the next"
    flows = pa.RecordBatch.from_pylist([dict.fromkeys(tables()["flows"].names)] * 3, tables()["flows"])
    assert len(live_follow.recent_rows("flows", flows)["flow_id"]) == 3


def test_what_holds_until_later_rows_is_read_however_long_ago_it_was_written(growing):
    ranks = {name: ["a"] if name in ("communicator", "host") else [1] for name in tables()["nccl_ranks"].names}
    for rank in range(5):
        growing.writer.append("nccl_ranks", ranks | {"rank": [rank], "time_ns": [START_NS + rank]})
    growing.grow(1)
    read = FollowedTrace(growing.path, most=2).fresh()
    assert [batch.column("rank")[0].as_py() for name, batch in read if name == "nccl_ranks"] == [0, 1, 2, 3, 4]


def test_a_batch_larger_than_any_is_not_waited_for(growing, monkeypatch):
    growing.grow(21)
    monkeypatch.setattr(follower, "_PIECE_BYTES", 64)
    marks = TableFollower(Directory(growing.path), "marks", growing.meta)
    with monkeypatch.context() as patch:
        patch.setattr(follower, "_MOST_MESSAGE_BYTES", 256)
        with pytest.raises(TraceError, match="holds a batch of more than 256 bytes"):
            marks.fresh()
    assert sum(batch.num_rows for batch in marks.fresh()) == len(growing.job.marks)
