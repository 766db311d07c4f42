"""Digests that others wrote: what is damaged or made up is refused in one line."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from support.made_alone import forget_reports
from support.synthetic import Job

from netprof.analysis import analyze
from netprof.analysis.digest.gather import GATHERED
from netprof.errors import NetprofError, TraceError
from netprof.files import Directory
from netprof.session.digest import write_digests
from netprof.session.digested import _believable, _first_reference, analyze_digests
from netprof.trace import TraceReader
from netprof.trace.digest import (
    DigestPlace,
    digests_in,
    job_of,
    made_name,
    read_json,
    read_table,
    reports_in,
    write_json,
    write_table,
)
from netprof.views.json_report import to_json


@pytest.fixture
def host(tmp_path: Path) -> Path:
    trace = Job(iterations=12).fill().write(tmp_path / "t.netprof")
    reader = TraceReader(trace)
    (folder,) = write_digests(analyze(reader, more=(GATHERED,)), reader, tmp_path / "digests", "job")
    forget_reports(tmp_path)
    return folder


def refused(host: Path) -> str:
    with pytest.raises(TraceError) as caught:
        analyze_digests(digests_in(host.parents[1]))
    assert "\n" not in caught.value.message
    return caught.value.message


def edited(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(ranks=5),
        lambda document: document["ranks"][0].update(rank="first"),
        lambda document: document["ranks"][0].update(pid=-5),
        lambda document: document["ranks"][0].update(pid=1 << 70),
        lambda document: document["links"][0].update(tx_bytes=None),
        lambda document: document.pop("host"),
        lambda document: document["host"]["meta"].update(host="x" * 100_000),
        lambda document: document.update(schema="1"),
        lambda document: document.update(schema=2),
        lambda document: document.update(schema=0),
        lambda document: document.update(schema=True),
        lambda document: document.update(made="../../../etc/passwd"),
        lambda document: document.update(made=""),
        lambda document: document["spans"][0].update(what=None),
        lambda document: document.update(span_ns=[1]),
        lambda document: document.update(open_waits=5),
        lambda document: document.update(open_waits={"waited_ns": [[100, 1 << 61]]}),
        lambda document: document.update(open_waits={"waited_ns": [[100, -1]]}),
        lambda document: document.update(open_waits={"waited_ns": [[1 << 40, 5]]}),
    ],
)
def test_a_document_that_is_not_what_netprof_writes(host, change):
    edited(host / "_digest.json", change)
    refused(host)


@pytest.mark.parametrize("text", ["", "[", "[1]", '{"schema": NaN}', "[" * 100_000, '{"schema": 1e999}', "\x00"])
def test_a_document_that_is_none(host, text):
    (host / "_digest.json").write_text(text)
    refused(host)


def replaced(host: Path, name: str, column: str, values: pa.Array[Any]) -> None:
    path = host / f"{name}.parquet"
    table = pyarrow.parquet.read_table(path)
    table = table.set_column(table.column_names.index(column), column, values)
    pyarrow.parquet.write_table(table, path)


def numbers(host: Path, name: str, value: int) -> pa.Array[Any]:
    rows = pyarrow.parquet.read_metadata(host / f"{name}.parquet").num_rows
    return pa.array([value] * rows, pa.int64())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("collectives", "bytes", -2),
        ("collectives", "end_ns", (1 << 63) - 1),
        ("spans", "set", -1),
        ("spans", "set", 1 << 40),
        ("iterations", "duration_ns", (1 << 63) - 1),
        ("iterations", "begin_ns", -(1 << 63)),
    ],
)
def test_numbers_that_cannot_be_there(host, table, column, value):
    replaced(host, table, column, numbers(host, table, value))
    refused(host)


@pytest.mark.slow
def test_columns_of_another_kind_or_with_holes(host):
    rows = pyarrow.parquet.read_metadata(host / "iterations.parquet").num_rows
    replaced(host, "iterations", "begin_ns", pa.array(["x"] * rows))
    refused(host)
    replaced(host, "iterations", "begin_ns", pa.array([None] * rows, pa.int64()))
    refused(host)


@pytest.mark.slow
def test_a_table_that_is_missing_cut_off_a_link_or_no_parquet(host, tmp_path):
    path = host / "iterations.parquet"
    data = path.read_bytes()
    for damaged in (b"", data[: len(data) // 2], b"PAR1" * 100, data[:-8] + b"\xff\xff\xff\x7fPAR1"):
        path.write_bytes(damaged)
        refused(host)
    path.unlink()
    refused(host)
    elsewhere = tmp_path / "elsewhere.parquet"
    elsewhere.write_bytes(data)
    path.symlink_to(elsewhere)
    assert "symbolic link" in refused(host)


@pytest.mark.slow
def test_a_flipped_byte_is_refused_or_harmless(host):
    """Whatever is damaged, there is a report or one line that says why not."""
    rng = random.Random(7)
    files = sorted(each for each in host.iterdir())
    for _ in range(150):
        path = rng.choice(files)
        data = path.read_bytes()
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        with suppress(NetprofError):
            json.dumps(to_json(analyze_digests(digests_in(host.parents[1]))), allow_nan=False)
        path.write_bytes(data)


@pytest.mark.slow
def test_the_command_says_so_in_one_line(host):
    (host / "iterations.parquet").write_bytes(b"PAR1")
    done = subprocess.run(
        [sys.executable, "-m", "netprof", "report", str(host.parents[1])], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "iterations.parquet is damaged" in done.stderr
    assert "Traceback" not in done.stderr


def test_where_no_digest_can_be_read_the_first_says_why(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "_digest.json").write_text('{"schema": 99}')
    places = [DigestPlace(tmp_path, tmp_path / name) for name in ("first", "second")]
    for order, message, hint in (
        (places, "first/_digest.json: No such file", "name what netprof digest wrote"),
        (places[::-1], "second/_digest.json has a newer schema", "read it with a newer netprof"),
        (places[:1], "first/_digest.json: No such file", "name what netprof digest wrote"),
    ):
        with pytest.raises(TraceError, match=message) as error:
            _first_reference(list(enumerate(order)))
        assert error.value.hint == hint


def _raise_inside(error: type[Exception]) -> None:
    raise error


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyError, IndexError, TypeError, ValueError, OverflowError])
def test_numbers_that_were_made_up_together_are_one_line_that_says_where(error: type[Exception]) -> None:
    with (
        pytest.raises(TraceError, match=f"cannot be put together: {error.__name__} in netprof.") as raised,
        _believable(),
    ):
        _raise_inside(error)
    assert "\n" not in raised.value.message
    assert "in _raise_inside" in raised.value.detail  # the whole way there, for -v


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("_MOST_FILE_BYTES", "larger than any digest"),
        ("_SMALL_BYTES", "unpacks to more than any digest"),
        ("_MOST_UNPACKED_BYTES", "unpacks to more than any digest"),
    ],
)
def test_a_table_may_be_so_large_and_no_larger(
    limit: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(Directory(tmp_path), "t", {"a": [1, 2, 3]}, {"a": int})
    path = tmp_path / "t.parquet"
    about = pyarrow.parquet.read_metadata(path)
    sizes = {"_MOST_FILE_BYTES": path.stat().st_size}
    size = sizes.get(limit, max(about.row_group(0).total_byte_size, 3 * 8))
    monkeypatch.setattr("netprof.trace.digest._UNPACKS_TO", 0 if limit == "_SMALL_BYTES" else 100)
    monkeypatch.setattr(f"netprof.trace.digest.{limit}", size)
    assert read_table(tmp_path, "t", {"a": int})["a"].tolist() == [1, 2, 3]
    monkeypatch.setattr(f"netprof.trace.digest.{limit}", size - 1)
    with pytest.raises(TraceError, match=said):
        read_table(tmp_path, "t", {"a": int})


@pytest.mark.parametrize(("rows", "passes"), [(4000, True), (40_000, False)])
def test_a_large_table_may_be_a_hundred_times_its_file(
    rows: int, passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netprof.trace.digest._SMALL_BYTES", 0)
    write_table(Directory(tmp_path), "t", {"a": [7] * rows}, {"a": int})
    assert (8 * rows <= 100 * (tmp_path / "t.parquet").stat().st_size) == passes
    with nullcontext() if passes else pytest.raises(TraceError, match="unpacks to more than any digest"):
        assert len(read_table(tmp_path, "t", {"a": int})["a"]) == rows


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "passes"), [(8 << 20, True), ((8 << 20) + 1, False)])
def test_a_table_whose_file_is_small_may_take_64_mib_and_no_more(rows: int, passes: bool, tmp_path: Path) -> None:
    write_table(Directory(tmp_path), "t", {"a": np.full(rows, 7)}, {"a": int})
    with nullcontext() if passes else pytest.raises(TraceError, match="unpacks to more than any digest"):
        assert len(read_table(tmp_path, "t", {"a": int})["a"]) == rows


def test_a_document_may_be_so_large_and_no_larger(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text('{"schema":1}'.ljust(16 << 20))
    assert read_json(tmp_path / "d.json") == {"schema": 1}
    (tmp_path / "d.json").write_text('{"schema":1}'.ljust((16 << 20) + 1))
    with pytest.raises(TraceError, match="is larger than 16 MiB"):
        read_json(tmp_path / "d.json")


def test_of_a_job_s_folder_it_is_said_what_was_made_there_or_that_it_cannot_be_read(tmp_path: Path) -> None:
    for made in ("0123456789abcdef.json", "0000000000000001.json", "1.json", "1.json.partial"):
        (tmp_path / f"_report-{made}").touch()
    assert reports_in(tmp_path) == ["0000000000000001", "0123456789abcdef"]
    for path, why in ((tmp_path / "absent", "No such file"), (tmp_path / "_report-1.json", "Not a directory")):
        with pytest.raises(TraceError, match=f"cannot read {path}: {why}") as caught:
            reports_in(path)
        assert caught.value.hint == "name the folder that netprof digest made"


@pytest.mark.parametrize(("rows", "passes"), [(1 << 11, True), ((1 << 11) + 1, False)])
def test_rows_that_are_all_alike_take_no_room_in_the_file(
    rows: int, passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of some hundred bytes may hold as many as it likes: what they take once read is what counts."""
    monkeypatch.setattr("netprof.trace.digest._SMALL_BYTES", 1 << 16)
    monkeypatch.setattr("netprof.trace.digest._UNPACKS_TO", 0)
    columns, kinds = {name: np.full(rows, 7) for name in "abcd"}, dict.fromkeys("abcd", int)
    write_table(Directory(tmp_path), "t", columns, kinds)
    assert (tmp_path / "t.parquet").stat().st_size < 15_000
    with nullcontext() if passes else pytest.raises(TraceError, match="unpacks to more than any digest"):
        assert len(read_table(tmp_path, "t", kinds)["a"]) == rows


@pytest.mark.parametrize(("value", "passes"), [(-1, True), (-2, False), (1 << 62, True), ((1 << 62) + 1, False)])
def test_the_least_and_the_largest_number(value: int, passes: bool, tmp_path: Path) -> None:
    write_table(Directory(tmp_path), "t", {"a": [5, value]}, {"a": int})
    if passes:
        assert read_table(tmp_path, "t", {"a": int})["a"].tolist() == [5, value]
        return
    with pytest.raises(TraceError, match="column a holds a number that cannot be there"):
        read_table(tmp_path, "t", {"a": int})


def test_a_table_of_several_groups_of_rows_is_whole(tmp_path: Path) -> None:
    write_table(Directory(tmp_path), "t", {"a": range(10)}, {"a": int})
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet")
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    assert read_table(tmp_path, "t", {"a": int})["a"].tolist() == list(range(10))


def test_whole_numbers_are_packed_as_differences(tmp_path: Path) -> None:
    """Most go on from the row before: a tenth of what they take as they are."""
    write_table(
        Directory(tmp_path), "t", {"a": range(10**12, 10**12 + 5000), "b": [0.5] * 5000}, {"a": int, "b": float}
    )
    group = pyarrow.parquet.read_metadata(tmp_path / "t.parquet").row_group(0)
    assert "DELTA_BINARY_PACKED" in group.column(0).encodings
    assert "PLAIN" in group.column(1).encodings


def test_a_small_table_may_be_as_much_smaller_than_its_rows_as_it_likes(tmp_path: Path) -> None:
    write_table(Directory(tmp_path), "t", {"a": [7] * 300_000}, {"a": int})
    assert (tmp_path / "t.parquet").stat().st_size < 300_000 * 8 / 100
    assert len(read_table(tmp_path, "t", {"a": int})["a"]) == 300_000


def test_what_another_program_notes_beside_the_columns_is_no_matter(tmp_path: Path) -> None:
    write_table(Directory(tmp_path), "t", {"a": [1, 2]}, {"a": int})
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet").replace_schema_metadata({"by": "another program"})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    assert read_table(tmp_path, "t", {"a": int})["a"].tolist() == [1, 2]


def test_documents_hold_texts_as_they_are_and_numbers_that_are_some(tmp_path: Path) -> None:
    write_json(Directory(tmp_path), "d.json", {"schema": 1, "host": "höst\ud800"})
    assert (tmp_path / "d.json").read_bytes() == '{"schema":1,"host":"höst?"}'.encode()
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_json(Directory(tmp_path), "e.json", {"schema": 1, "number": number})
    assert [each.name for each in tmp_path.iterdir()] == ["d.json"]


@pytest.mark.parametrize(
    ("text", "name"), [("a job/of ours", "a-job-of-ours"), ("..", "unnamed"), ("x" * 101, "x" * 100), (".-a-.", "a")]
)
def test_a_name_of_a_folder_is_read_as_nothing_else(text: str, name: str) -> None:
    assert made_name(text) == name


def test_which_job_s_a_folder_is(tmp_path: Path) -> None:
    assert job_of(tmp_path / "job=a=b") == (tmp_path, "a=b")
    assert job_of(tmp_path / "jobs") is None
