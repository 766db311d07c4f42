"""Traces that are whole, cut off anywhere, damaged, foreign or hostile."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples
from support.unprivileged import let_through

from netprof.analysis.tables.columns import UNKNOWN, int64_column
from netprof.errors import NetprofError, TraceError
from netprof.files import Directory
from netprof.model import (
    Clock,
    Cost,
    Device,
    LineRate,
    Losses,
    Meta,
    ProbeCost,
    ProgramCost,
    Series,
    SkippedProbe,
    StartedProbe,
    Target,
)
from netprof.schema import COUNT, SCHEMA_VERSION, recorded_columns, tables
from netprof.trace import TraceReader, TraceWriter
from netprof.trace import reader as reader_module
from netprof.trace.columns import to_arrow
from netprof.trace.follower import TableFollower
from netprof.trace.meta import read_meta

META = Meta(
    netprof_version="0",
    host="<script>",
    boot_id="b",
    kernel="k",
    clock=Clock(1, 2),
    command=("netprof", "attach"),
    bin_ns=1_000_000,
    started_ns=3,
    targets=(Target(7, 8, "python", 9, 0, None, ("torch",)),),
    devices=(Device("eth0", 9, LineRate(None, "unknown")), Device("eth1", 9, LineRate(1e9, "ethtool"), 1500, "veth")),
    series=(Series(4, "host", "cpu0", "dropped", "packets", COUNT, "no room"),),
    probes_started=(StartedProbe("flows"),),
    probes_skipped=(SkippedProbe("marks", "stripped", "install symbols"),),
    warnings=("slow",),
    losses=Losses(lost_marks=3),
    cost=Cost(1.5, 0.25, programs=(ProgramCost("mark", 1, 2),), probes=(ProbeCost("nic", 0.5),)),
)


def marks(count: int, first: int = 0) -> dict[str, Any]:
    numbers = np.arange(first, first + count)
    return dict.fromkeys(tables()["marks"].names, numbers % 250) | {"time_ns": numbers, "kind": np.ones(count)}


def write(path: Path, batches: int = 3, rows: int = 100) -> TraceWriter:
    writer = TraceWriter(path, META)
    for batch in range(batches):
        writer.append("marks", marks(rows, batch * rows))
    return writer


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    final = dataclasses.replace(META, stopped_ns=99, stop_reason="the job ended")
    writer = write(tmp_path / "t")
    flows = {field.name: ["ä\x1b[1m", "b"] if str(field.type) == "string" else [1, 2] for field in tables()["flows"]}
    writer.append("flows", flows | {"family": [4, 6]})
    counters = {"series": [0, 2**32 - 1], "time_ns": [1, 2], "value": [-(2**62), 2**62]}
    writer.append("counters", counters)
    writer.close(final)
    reader = TraceReader(tmp_path / "t")
    assert reader.meta == final
    assert reader.table("counters").to_pydict() == counters
    assert reader.table("marks").column("time_ns").to_pylist() == list(range(300))
    assert reader.table("flows").column("device").to_pylist() == ["ä\x1b[1m", "b"]
    assert reader.table("wire").num_rows == 0
    assert not reader.truncated
    files = {"meta.json", "marks.arrows", "flows.arrows", "counters.arrows"}
    assert {entry.name for entry in (tmp_path / "t").iterdir()} == files
    assert all(entry.stat().st_mode & 0o022 == 0 for entry in (tmp_path / "t").iterdir())


@pytest.mark.slow
def test_a_recorder_killed_at_any_moment_leaves_a_trace(tmp_path: Path) -> None:
    """Cut the table at every length: every complete batch is read, and the trace says that its end is missing."""
    write(tmp_path / "t")
    path = tmp_path / "t" / "marks.arrows"
    whole = path.read_bytes()
    rows = []
    for length in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:length])
        reader = TraceReader(tmp_path / "t")
        table = reader.table("marks")
        assert table.column("time_ns").to_pylist() == list(range(table.num_rows))
        assert reader.truncated
        rows.append(table.num_rows)
    assert set(rows) == {0, 100, 200, 300} or set(rows) == {0, 100, 200}
    assert rows == sorted(rows)


@pytest.mark.slow
@examples(300)
@given(st.data())
def test_a_damaged_table_is_an_error_or_shorter_never_a_crash(tmp_path_factory: Any, data: Any) -> None:
    path = tmp_path_factory.mktemp("damaged") / "t"
    write(path, batches=2, rows=20).close(META)
    content = bytearray((path / "marks.arrows").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from([0, 127, 128, 255]))
    (path / "marks.arrows").write_bytes(content)
    try:
        assert TraceReader(path).table("marks").num_rows <= 40
    except TraceError as error:
        assert error.message  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not readable"),
        ("[1, 2]", "not a netprof trace"),
        ("{}", "not a netprof trace"),
        ('{"schema_version": true, "a": 1', "not readable"),
        (json.dumps(dataclasses.asdict(META) | {"schema_version": SCHEMA_VERSION + 1}), "schema"),
        (json.dumps(dataclasses.asdict(META) | {"bin_ns": "wide"}), "damaged"),
        (json.dumps(dataclasses.asdict(META) | {"targets": [7]}), "damaged"),
        (json.dumps({"schema_version": 1}), "damaged"),
        (json.dumps(dataclasses.asdict(META) | {"schema_version": 0}), "names no schema version"),
        (json.dumps(dataclasses.asdict(META) | {"schema_version": True}), "names no schema version"),
        ("[" * 100_000, "not readable"),
    ],
)
def test_meta_that_is_not_ours(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(TraceError, match=words):
        read_meta(Directory(tmp_path))


@pytest.mark.slow
def test_meta_may_be_so_large_and_no_larger(tmp_path: Path) -> None:
    text = json.dumps(dataclasses.asdict(META))
    (tmp_path / "meta.json").write_text(text.ljust(16 << 20))
    assert read_meta(Directory(tmp_path)) == META
    (tmp_path / "meta.json").write_text(text.ljust((16 << 20) + 1))
    with pytest.raises(TraceError, match="is larger than 16 MiB"):
        read_meta(Directory(tmp_path))


def test_a_table_that_is_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text(json.dumps(dataclasses.asdict(META)))
    (tmp_path / "wire.arrows").symlink_to(tmp_path / "meta.json")
    for read in (TraceReader.table, lambda reader, name: list(reader.batches_at(name, [0]))):
        with pytest.raises(TraceError, match=r"wire\.arrows"):
            read(TraceReader(tmp_path), "wire")


def test_a_file_is_asked_for_no_more_than_it_has(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"abcdef")
    with open(tmp_path / "t", "rb") as raw:
        file = reader_module._Bounded(raw)
        assert (file.read(0), file.read(2), file.tell(), file.read(1 << 60), file.read(3)) == (
            b"",
            b"ab",
            2,
            b"cdef",
            b"",
        )
        raw.seek(1)
        assert file.read() == b"bcdef"


def test_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "absent", tmp_path / "file", tmp_path):
        with pytest.raises(TraceError, match="not a netprof trace") as caught:
            TraceReader(path)
        assert caught.value.exit_code == 1


def test_an_older_meta_without_later_fields_is_read(tmp_path: Path) -> None:
    document = dataclasses.asdict(META)
    for later in ("warnings", "cost", "losses"):
        del document[later]
    document["something_new"] = 1
    (tmp_path / "meta.json").write_text(json.dumps(document))
    assert read_meta(Directory(tmp_path)) == dataclasses.replace(META, warnings=(), cost=Cost(), losses=Losses())


def test_a_full_disk_undoes_the_batch_that_did_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = write(tmp_path / "t", batches=1)
    real_write, room = os.write, 50

    def small_disk(descriptor: int, data: Any) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        written = real_write(descriptor, bytes(data)[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", small_disk)
    with pytest.raises(OSError, match="No space"):
        writer.append("marks", marks(100, 100))
    monkeypatch.undo()
    writer.append("marks", marks(100, 100))  # somebody made room
    writer.close(META)
    assert TraceReader(tmp_path / "t").table("marks").column("time_ns").to_pylist() == list(range(200))


def test_the_sudo_user_owns_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        pytest.skip("only root can give files away")
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1234")
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 1234, 1234)
    let_through(home)
    trace = home / "made" / "for" / "t"
    write(trace).close(META)
    made = [trace, trace.parent, trace.parent.parent, *trace.iterdir()]
    assert {(entry.stat().st_uid, entry.stat().st_gid) for entry in made} == {(1234, 1234)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's link")
def test_no_trace_is_made_behind_another_user_s_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    os.lchown(tmp_path / "link", 65534, 65534)
    with pytest.raises(NetprofError, match="is a symbolic link of another user"):
        write(tmp_path / "link" / "t")
    assert not list((tmp_path / "there").iterdir())


@given(st.lists(st.text()), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_columns(texts: list[str], numbers: list[int]) -> None:
    import pyarrow as pa

    shown = [text.encode("utf-8", "replace").decode() for text in texts]
    assert to_arrow(texts, pa.string()).to_pylist() == shown
    assert to_arrow(numbers, pa.int64()).to_pylist() == numbers
    to_arrow(texts, pa.string()).validate(full=True)


def write_table(directory: Path, name: str, schema: pa.Schema, rows: Mapping[str, list[Any]]) -> None:
    with pa.ipc.new_stream(str(directory / f"{name}.arrows"), schema) as stream:
        stream.write_batch(pa.RecordBatch.from_pydict(rows, schema=schema))


def test_what_an_older_schema_did_not_record_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "t"
    old_meta = dataclasses.replace(META, schema_version=1, stopped_ns=9)
    TraceWriter(path, old_meta).close(old_meta)
    old = recorded_columns("tcp", 1)
    assert old.names == ["flow_id", "time_ns", "retransmits", "rtt_us", "cwnd", "mss_bytes"]
    write_table(path, "tcp", old, {key: [1, 2] for key in old.names})
    reader = TraceReader(path)
    table = reader.table("tcp")
    (followed,) = TableFollower(Directory(path), "tcp", reader.meta).fresh()
    for read in (table, followed):
        assert read.schema.names == tables()["tcp"].names
        assert read.column("rtt_us").to_pylist() == [1, 2]
        assert read.column("busy_us").to_pylist() == [None, None]
        assert int64_column(read, "busy_us").tolist() == [UNKNOWN, UNKNOWN]
        assert int64_column(read, "ca_state").tolist() == [UNKNOWN, UNKNOWN]
    assert not reader.truncated


@pytest.mark.parametrize("version", [1, 2])
def test_columns_of_another_version_than_the_trace_names_are_damage(tmp_path: Path, version: int) -> None:
    path = tmp_path / "t"
    TraceWriter(path, dataclasses.replace(META, schema_version=version))
    other = recorded_columns("tcp", 3 - version)
    write_table(path, "tcp", other, {key: [1] for key in other.names})
    with pytest.raises(TraceError, match=r"tcp\.arrows.* other columns"):
        TraceReader(path).table("tcp")
    with pytest.raises(TraceError, match=r"tcp\.arrows.* other columns"):
        TableFollower(Directory(path), "tcp", read_meta(Directory(path))).fresh()


@pytest.mark.parametrize("piece_bytes", [100, 1000, 1 << 20])
def test_a_table_is_followed_in_pieces_of_any_size(
    piece_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netprof.trace.follower._PIECE_BYTES", piece_bytes)
    write(tmp_path / "t")
    whole = TraceReader(tmp_path / "t").table("marks").column("time_ns").to_pylist()
    follower = TableFollower(Directory(tmp_path / "t"), "marks", META)
    assert [time for batch in follower.fresh() for time in batch.column("time_ns").to_pylist()] == whole


@pytest.mark.parametrize(("less", "read"), [(0, True), (1, False)])
def test_what_is_followed_unpacks_to_as_much_as_it_may_and_no_more(
    less: int, read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "t")
    monkeypatch.setattr("netprof.trace.follower.unpacked_bytes", lambda *_: 1000)
    monkeypatch.setattr("netprof.trace.follower.budget_bytes", lambda _: 1000 - less)
    with nullcontext() if read else pytest.raises(TraceError, match="bytes unpacks to 1000"):
        list(TableFollower(Directory(tmp_path / "t"), "marks", META).fresh())


def test_a_null_that_no_recorder_wrote_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "t"
    TraceWriter(path, META).close(META)
    schema = tables()["tcp"]
    write_table(path, "tcp", schema, {key: [1] for key in schema.names} | {"busy_us": [None]})
    reader = TraceReader(path)
    assert reader.table("tcp").num_rows == 0
    assert reader.truncated
    with pytest.raises(TraceError, match="damaged"):
        list(TableFollower(Directory(path), "tcp", META).fresh())


def message_type(data: bytes) -> str:
    try:
        return str(pa.ipc.read_message(data).type)
    except (pa.ArrowException, OSError):
        return ""


def test_a_table_that_begins_with_no_schema_is_damage(tmp_path: Path) -> None:
    """One byte says what a message is; Arrow does not look at it where it reads a schema, and would read anything."""
    path = tmp_path / "t"
    TraceWriter(path, META).close(META)
    schema = tables()["tcp"]
    write_table(path, "tcp", schema, {key: [1] for key in schema.names})
    file = path / "tcp.arrows"
    data = file.read_bytes()
    changed = [data[:at] + b"\0" + data[at + 1 :] for at in range(200) if data[at] == 1]
    (without,) = [each for each in changed if message_type(each) not in ("schema", "")]
    file.write_bytes(without)
    with pytest.raises(TraceError, match="damaged"):
        list(TableFollower(Directory(path), "tcp", META).fresh())
    assert TraceReader(path).table("tcp").num_rows == 0


def test_what_a_version_added_is_at_the_end() -> None:
    """So that the columns of an older trace are in its own order."""
    for name, schema in tables().items():
        kept = recorded_columns(name, 1)
        assert kept.names == schema.names[: len(kept)]


@pytest.mark.parametrize(
    ("name", "said"), [("a.json", "netprof timeline"), ("a.pcap", "netprof capture"), ("a.txt", "")]
)
def test_a_file_is_named_as_one_with_what_reads_it(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(TraceError, match="it is a file") as caught:
        TraceReader(tmp_path / name)
    assert said in caught.value.hint
