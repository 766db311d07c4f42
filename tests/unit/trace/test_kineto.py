"""What torch.profiler writes: whose it is and when, or one line that says why it is none."""

from __future__ import annotations

import errno
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from netprof.errors import TraceError
from netprof.trace.kineto import copy_json, read_kineto


def event(ts: Any, pid: Any = 7, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "ts": ts, "pid": pid, **more}


def profile(path: Path, *events: Any, zipped: bool = False, **more: Any) -> Path:
    content = json.dumps({"traceEvents": list(events), **more}).encode()
    path.write_bytes(gzip.compress(content) if zipped else content)
    return path


@pytest.mark.parametrize("zipped", [False, True])
def test_what_a_profile_says_of_itself(zipped: bool, tmp_path: Path) -> None:
    path = profile(
        tmp_path / "p",
        event(2.5),
        event(1),
        event(9.0, pid=8),
        event(0.25, ph="M", pid=99),
        zipped=zipped,
        baseTimeNanoseconds=1_000_000,
        distributedInfo={"rank": 3},
    )
    found = read_kineto(path)
    assert (found.base_ns, found.first_ns, found.last_ns) == (1_000_000, 1_001_000, 1_009_000)
    assert (found.pids, found.rank, found.path) == (frozenset({7, 8}), 3, path)


def test_what_it_does_not_say_is_unknown(tmp_path: Path) -> None:
    found = read_kineto(profile(tmp_path / "p", event(1, pid="python")))
    assert (found.base_ns, found.first_ns, found.pids, found.rank) == (0, 1000, frozenset(), None)


@pytest.mark.parametrize("value", [-1, 1 << 62, True, 1.5, "1", None])
def test_numbers_that_are_none_are_unknown(value: Any, tmp_path: Path) -> None:
    path = profile(tmp_path / "p", event(1, pid=value), baseTimeNanoseconds=value, distributedInfo={"rank": value})
    found = read_kineto(path)
    assert (found.base_ns, found.pids, found.rank) == (0, frozenset(), None)


@pytest.mark.parametrize("value", [0, (1 << 62) - 1])
def test_the_least_and_the_largest_number(value: int, tmp_path: Path) -> None:
    path = profile(tmp_path / "p", event(0, pid=value), baseTimeNanoseconds=value, distributedInfo={"rank": value})
    found = read_kineto(path)
    assert (found.base_ns, found.first_ns, found.pids, found.rank) == (value, value, frozenset({value}), value)


@pytest.mark.parametrize("ts", [-1, -0.5, float(1 << 62), "1", None, True])
def test_times_that_are_none_are_left_out(ts: Any, tmp_path: Path) -> None:
    assert read_kineto(profile(tmp_path / "p", event(ts), event(5))).first_ns == 5000
    with pytest.raises(TraceError, match="holds no event of a known time"):
        read_kineto(profile(tmp_path / "q", event(ts)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no JSON"),
        (b"[" * 100_000, "is nested 100 deep"),
        (b"[]", "no traceEvents"),
        (b"{}", "no traceEvents"),
        (b'{"traceEvents": {}}', "no traceEvents"),
        (b'{"traceEvents": [1, null]}', "no event of a known time"),
        (b"\x1f\x8b damaged", "is compressed, and damaged"),
        (gzip.compress(b"{}" * 1000, mtime=0)[:-9], "is compressed, and damaged"),
    ],
)
def test_what_is_no_profile_is_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(TraceError, match=said):
        read_kineto(tmp_path / "p")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"traceEvents": [' + b'{"a": ' * 99 + b"1" + b"}" * 99 + b"]}", "is nested 100 deep"),
        (b'{"traceEvents": ["' + b"a" * (5 << 20), "a text in it does not end"),
        (gzip.compress(b" " * (5 << 20)), "a text in it does not end"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\0\xff\xff\xff", "is compressed, and damaged"),
    ],
)
def test_what_would_take_memory_without_end_is_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(TraceError, match=said):
        read_kineto(tmp_path / "p")


@pytest.mark.parametrize(("limit", "most"), [("_MOST_EVENTS", 3), ("_MOST_PIDS", 3), ("_MOST_BYTES", None)])
def test_a_profile_may_be_so_large_and_no_larger(
    limit: str, most: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = profile(tmp_path / "p", *(event(1, pid=pid) for pid in range(3)))
    monkeypatch.setattr(f"netprof.trace.kineto.{limit}", most or path.stat().st_size)
    assert len(read_kineto(path).kinds) == 3
    monkeypatch.setattr(f"netprof.trace.kineto.{limit}", (most or path.stat().st_size) - 1)
    with pytest.raises(TraceError, match="larger than profiles are"):
        read_kineto(path)


def test_no_more_is_read_than_a_token_may_have_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = profile(tmp_path / "p", event(1))
    monkeypatch.setattr("netprof.trace.kineto._MOST_TOKEN_BYTES", path.stat().st_size)
    assert read_kineto(path).first_ns == 1000
    monkeypatch.setattr("netprof.trace.kineto._MOST_TOKEN_BYTES", path.stat().st_size - 1)
    with pytest.raises(TraceError, match="a text in it does not end"):
        read_kineto(path)


def test_a_profile_may_name_so_many_processes_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "p"
    assert len(read_kineto(profile(path, *(event(1, pid=pid) for pid in range(4096)))).pids) == 4096
    with pytest.raises(TraceError, match="larger than profiles are"):
        read_kineto(profile(path, *(event(1, pid=pid) for pid in range(4097))))


def test_an_event_without_a_known_length_ends_where_it_begins(tmp_path: Path) -> None:
    found = read_kineto(profile(tmp_path / "p", event(1), event(2, dur="long"), event(3, dur=0.5)))
    assert (found.end_ns - found.begin_ns).tolist() == [0, 0, 500]


def test_entries_are_those_of_the_event_itself(tmp_path: Path) -> None:
    inner = {"ts": 9, "pid": 9, "ph": "X", "dur": [4]}
    path = profile(
        tmp_path / "p",
        event(5, dur=2, args=inner, more=[inner, [inner]]),
        distributedInfo={"backend": {"rank": 4}, "ranks": [1, 2]},
        other={"baseTimeNanoseconds": 7, "traceEvents": [event(1)]},
    )
    found = read_kineto(path)
    assert (found.begin_ns.tolist(), found.end_ns.tolist()) == ([5000], [7000])
    assert (found.pids, found.rank, found.base_ns) == (frozenset({7}), None, 0)


@pytest.mark.parametrize("zipped", [False, True])
def test_how_far_a_profile_is_read_is_told_as_it_is_on_the_way(zipped: bool, tmp_path: Path) -> None:
    path = profile(tmp_path / "p", *(event(at) for at in range(10_000)), zipped=zipped)
    size, told = path.stat().st_size, list[tuple[int, int]]()
    read_kineto(path, on_read=lambda done, of: told.append((done, of)))
    assert told == sorted(told)
    assert told[-1] == (size, size)
    assert any(0 < done < size == of for done, of in told)


def test_a_copy_is_what_was_packed(tmp_path: Path) -> None:
    path = profile(tmp_path / "p", *(event(at) for at in range(10_000)), zipped=True)
    out = io.BytesIO()
    copy_json(path, out)
    assert out.getvalue() == gzip.decompress(path.read_bytes())


def test_a_copy_for_which_there_is_no_room_says_so(tmp_path: Path) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        copy_json(profile(tmp_path / "p", event(1)), Full())


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot read .*absent: No such file"):
        read_kineto(tmp_path / "absent")


def test_the_last_time_that_is_one(tmp_path: Path) -> None:
    last_us = (1 << 61) // 1000
    assert read_kineto(profile(tmp_path / "p", event(last_us))).first_ns == 1000 * last_us
    with pytest.raises(TraceError, match="holds no event of a known time"):
        read_kineto(profile(tmp_path / "q", event(last_us + 1)))
