"""What jobs write down of their own collectives: read without unpickling, and laid beside each other."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.synthetic import Job

from netprof.analysis import analyze
from netprof.analysis.findings.verdict.grounds import Case
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.hosts.placed_profiles import WithProfiles, disagreements
from netprof.errors import TraceError
from netprof.trace import TraceReader
from netprof.trace.flight import read_flight
from netprof.trace.plain_pickle import read_plain


def entry(number: int, kind: str = "all_reduce", size: int = 10, done: bool = True) -> dict[str, Any]:
    return {
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "profiling_name": f"gloo:{kind}",
        "input_sizes": [[size]],
        "state": "scheduled",
        "retired": done,
        "is_p2p": False,
    }


def dump(folder: Path, rank: int, entries: list[dict[str, Any]], as_json: bool = False) -> Path:
    path, document = folder / f"trace_{rank}", {"version": "2.10", "entries": entries}
    path.write_bytes(json.dumps(document).encode() if as_json else pickle.dumps(document, 2))
    return path


def told(folder: Path, *ranks: list[dict[str, Any]], as_json: bool = False) -> list[str]:
    paths = [dump(folder, rank, entries, as_json) for rank, entries in enumerate(ranks)]
    return disagreements([one for path in paths for one in read_flight(path)])


@pytest.mark.parametrize("as_json", [False, True])
def test_a_rank_that_has_not_come_is_named(as_json: bool, tmp_path: Path) -> None:
    ahead = [entry(number, done=number < 5) for number in range(1, 6)]
    assert told(tmp_path, ahead, ahead[:4], ahead, as_json=as_json) == [
        "rank 1 has not asked for operation 5 (all_reduce) of group default_pg, and ranks 0, 2 wait"
    ]


def test_ranks_that_want_different_things_are_named_first(tmp_path: Path) -> None:
    one, other = [entry(1), entry(2, done=False)], [entry(1), entry(2, "broadcast", done=False)]
    assert told(tmp_path, one, other) == [
        "ranks disagree on operation 2 of group default_pg: rank 0 asks for all_reduce, rank 1 asks for broadcast"
    ]
    assert told(tmp_path, one, [entry(1), entry(2, size=11, done=False)]) == [
        "ranks disagree on operation 2 of group default_pg: rank 0 asks for all_reduce of [10], rank 1 asks for "
        "all_reduce of [11]"
    ]


def test_ranks_that_agree_and_ones_that_are_done_are_not(tmp_path: Path) -> None:
    assert told(tmp_path, [entry(1), entry(2)], [entry(1), entry(2)]) == []
    assert told(tmp_path, [entry(1), entry(2)], [entry(1)]) == [], "nobody waits"
    assert told(tmp_path, [entry(1, "all_gather", 3)], [entry(1, "all_gather", 4)]) == [], "parts of any size"


def inspector(rank: int, coll: str, number: int, size: int) -> str:
    """A line as NCCL's plugins/profiler/inspector/inspector_json.cc wrote it (format v4.0), compiled and run."""
    return (
        f'{{"header":{{"id":"e62dedaa97644a","comm_name":"DP Group 0","rank":{rank},"n_ranks":2,"nnodes":1}},'
        '"metadata":{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"nccl_profiler_interface",'
        '"dump_timestamp_us":1752867229276385,"hostname":"vm","pid":3561},"coll_perf":'
        f'{{"coll":"{coll}","coll_sn":{number},"coll_msg_size_bytes":{size},"coll_exec_time_us":812,'
        '"coll_timing_source":"kernel_gpu","coll_algobw_gbs":1.290000,"coll_busbw_gbs":1.290000,"event_trace_sn":'
        '{"coll_start_sn":0,"coll_stop_sn":0,"kernel_events":[{"channel_id":0,"kernel_start_sn":0,"kernel_stop_sn":0,'
        '"kernel_record_sn":0}]},"event_trace_ts":{"coll_start_ts":0,"coll_stop_ts":0,"kernel_events":[{"channel_id":0,'
        '"kernel_start_ts":0,"kernel_stop_ts":0,"kernel_record_ts":0}]}}}'
    )


INSPECTOR_P2P = (
    '{"header":{"id":"e62dedaa97644a","comm_name":"unknown","rank":0,"n_ranks":2,"nnodes":1},"metadata":'
    '{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"nccl_profiler_interface",'
    '"dump_timestamp_us":1752867229276385,"hostname":"vm","pid":3561},"p2p_perf":{"p2p":"Send","p2p_sn":0,"p2p_peer":1,'
    '"p2p_msg_size_bytes":1048576,"p2p_exec_time_us":812,"p2p_timing_source":"kernel_gpu","p2p_algobw_gbs":1.290000,'
    '"p2p_busbw_gbs":1.290000}}'
)


def inspector_log(path: Path, rank: int, size: int) -> Path:
    calls = [("Broadcast", 0, 1 << 20), ("AllReduce", 0, 1 << 20), ("AllReduce", 1, size), ("AllGather", 0, 1 << 20)]
    path.write_text("\n".join([*(inspector(rank, *call) for call in calls), INSPECTOR_P2P]) + "\n")
    return path


def test_inspector_is_read_line_by_line_and_numbered_function_by_function(tmp_path: Path) -> None:
    one, same, other = (
        inspector_log(tmp_path / f"{name}-pid1.log", rank, size)
        for name, rank, size in (("a", 0, 1 << 20), ("b", 1, 1 << 20), ("c", 1, 2 << 20))
    )
    assert len(read_flight(one)[0].operations) == 4
    assert disagreements([*read_flight(one), *read_flight(same)]) == []
    assert disagreements([*read_flight(one), *read_flight(other)]) == [
        "ranks disagree on operation 1 of group e62dedaa97644a (DP Group 0), AllReduce: rank 0 asks for AllReduce of "
        "1048576 bytes, rank 1 asks for AllReduce of 2097152 bytes"
    ]


def test_inspector_of_a_job_that_was_killed_or_only_sends(tmp_path: Path) -> None:
    path = inspector_log(tmp_path / "a-pid1.log", 0, 1 << 20)
    whole = path.read_text()
    path.write_text(whole[:-300])
    assert len(read_flight(path)[0].operations) == 4
    path.write_text(INSPECTOR_P2P)
    assert read_flight(path) == []
    path.write_text(whole.replace('"coll_perf"', '"coll_perf', 1))
    with pytest.raises(TraceError):
        read_flight(path)


def test_it_is_the_verdict_of_a_job_that_moves_nothing(tmp_path: Path) -> None:
    job = Job().fill()
    job.wire = []
    reader = TraceReader(job.write(tmp_path / "t.netprof"))
    paths = [dump(tmp_path, 0, [entry(1), entry(2, done=False)]), dump(tmp_path, 1, [entry(1)])]
    found = analyze(WithProfiles(reader, (), dumps=paths))
    assert found.of(VERDICT).case is Case.STALLED
    assert "rank 1 has not asked for operation 2" in found.of(VERDICT).sentence
    assert any("rank 1 has not asked" in note for note in found.notes)


class _Calls:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/netprof-was-fooled",)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(_Calls()),
        pickle.dumps({"entries": [_Calls()]}, 2),
        pickle.dumps(Path("/tmp")),
        pickle.dumps({1, 2}),
        b"\x80\x02]q\x00(K\x01e",  # without an end
        b"\x80\x02K\x01K\x02e.",
        b"",
        b"c",
        b"\x80\x02h\x07.",
    ],
)
def test_a_pickle_of_more_than_plain_values_is_refused(data: bytes) -> None:
    with pytest.raises(TraceError):
        read_plain(data, "file")
    assert not Path("/tmp/netprof-was-fooled").exists()


def test_plain_values_are_what_they_were() -> None:
    value = {"a": [1, -2, 3.5, None, True, "ä", (1,), (1, 2, 3, 4), (), 1 << 40], "b": {}, "c": [[1], [1]]}
    for protocol in (2, 3, 4, 5):
        assert read_plain(pickle.dumps(value, protocol), "file") == value


def test_lists_within_lists_are_not_written_out(tmp_path: Path) -> None:
    sizes: list[Any] = [1]
    for _ in range(40):
        sizes = [sizes, sizes]
    deep = entry(1) | {"input_sizes": sizes, "profiling_name": sizes}
    (found,) = read_flight(dump(tmp_path, 0, [deep]))
    assert len(found.operations[0].elements) < 100


@pytest.mark.slow
def test_a_dump_of_torch_itself(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """
import sys, torch, torch.distributed as dist
from torch._C import _distributed_c10d as c10d
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
for _ in range(3): dist.all_reduce(torch.ones(10))
open(sys.argv[1], "wb").write(c10d._dump_fr_trace())
open(sys.argv[2], "wb").write(c10d._dump_fr_trace_json())
"""
    paths = [tmp_path / "trace_0", tmp_path / "json_0"]
    environment = os.environ | {"TORCH_FR_BUFFER_SIZE": "100"}
    done = subprocess.run([sys.executable, "-c", program, *paths], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path in paths:
        (found,) = read_flight(path)
        own = [(each.number, each.kind, each.elements) for each in found.operations]
        assert own[:3] == [(number, "all_reduce", "[10]") for number in (1, 2, 3)]
