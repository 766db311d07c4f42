"""Chakra execution traces, read back by protobuf: every node, its size, its group, and what it waits for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.synthetic import BUCKET_BYTES, BUCKETS, DONE, ELEMENTS, START_NS, WAIT, Job

from netprof.analysis import analyze
from netprof.files import make_folder
from netprof.trace import TraceReader
from netprof.views import chakra
from netprof.views.chakra_schema import message
from netprof.views.reporter import Report

pytest.importorskip("google.protobuf")

COMPUTE, COLLECTIVE, ALL_REDUCE = 4, 7, 0
US = 1000


def written(job: Job, folder: Path) -> Path:
    reader = TraceReader(job.write(folder / "t.netprof"))
    out = folder / "out"
    out.mkdir()
    chakra.fill(Report(analyze(reader), reader), make_folder(out))
    return out


def messages(path: Path) -> Iterator[bytes]:
    """Yield the messages of a file, each behind its length."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        length = shift = 0
        while True:
            byte, at = data[at], at + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield data[at : at + length]
        at += length
    assert at == len(data)


def read(path: Path) -> tuple[Any, list[Any]]:
    first, *rest = messages(path)
    return message("GlobalMetadata").FromString(first), [message("Node").FromString(each) for each in rest]


def attributes(node: Any) -> dict[str, Any]:
    return {each.name: getattr(each, each.WhichOneof("value")) for each in node.attr}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(Job().fill(), tmp_path)


def test_there_is_a_file_for_each_rank(folder: Path) -> None:
    assert sorted(each.name for each in folder.iterdir()) == ["comm_groups.json", "job.0.et", "job.1.et"]
    for rank in (0, 1):
        about, _ = read(folder / f"job.{rank}.et")
        assert about.version == "0.0.4"
        said = attributes(about)
        assert (said["rank"], said["world_size"], said["iterations"]) == (rank, 2, 10)


def test_the_collectives_are_those_of_the_job(folder: Path) -> None:
    for rank in (0, 1):
        _, nodes = read(folder / f"job.{rank}.et")
        talking = [node for node in nodes if node.type == COLLECTIVE]
        assert len(talking) == 10 * len(BUCKETS)
        said = [attributes(node) for node in talking]
        assert {each["comm_type"] for each in said} == {ALL_REDUCE}
        assert [each["comm_size"] for each in said] == [4 * elements for elements in ELEMENTS] * 10
        assert sum(each["comm_size"] for each in said) == 10 * BUCKET_BYTES
        assert all(each["is_cpu_op"] is False and "pg_name" not in each for each in said)
        assert [node.duration_micros for node in talking[:2]] == [(end - begin) // US for _, begin, end in BUCKETS]
    assert json.loads((folder / "comm_groups.json").read_text()) == {}


def test_computing_takes_as_long_as_it_did(folder: Path) -> None:
    _, nodes = read(folder / "job.0.et")
    computing = [node for node in nodes if node.type == COMPUTE]
    total_us = sum(node.duration_micros for node in computing)
    assert total_us == pytest.approx(10 * (200_000 - (DONE - WAIT) / US), abs=10 * 4)
    assert {node.name for node in computing} == {"forward", "backward", "rest"}


def test_nodes_come_after_what_they_wait_for(folder: Path) -> None:
    _, nodes = read(folder / "job.0.et")
    assert [node.id for node in nodes] == list(range(len(nodes)))
    for node in nodes:
        assert all(parent < node.id for parent in node.data_deps)
        assert len(set(node.data_deps)) == len(node.data_deps)
    assert [node.id for node in nodes if not node.data_deps] == [0]


def test_a_bucket_waits_for_its_gradients_and_the_next_forward_pass_for_all_buckets(folder: Path) -> None:
    _, nodes = read(folder / "job.0.et")
    order = [(node.name, [nodes[parent].name for parent in node.data_deps]) for node in nodes]
    iteration = [
        ("forward", ["rest"]),
        ("backward", ["forward"]),
        ("ALL_REDUCE", ["backward"]),
        ("backward", ["backward"]),
        ("ALL_REDUCE", ["backward"]),
        ("rest", ["ALL_REDUCE", "ALL_REDUCE", "backward"]),
    ]
    by_name = [(name, sorted(parents)) for name, parents in order[6:]]
    assert by_name == [(name, sorted(parents)) for name, parents in iteration] * 9


def test_a_simulated_link_of_the_recorded_speed_gives_the_recorded_time(folder: Path) -> None:
    """Run the graph: each node as long as it took, from when all that it needs is done."""
    _, nodes = read(folder / "job.0.et")
    done = np.zeros(len(nodes))
    for node in nodes:
        done[node.id] = max((done[parent] for parent in node.data_deps), default=0.0) + node.duration_micros
    assert done.max() == pytest.approx(10 * 200_000, rel=0.01)


def test_a_rank_that_misses_a_collective_holds_no_other_up(tmp_path: Path) -> None:
    job = Job().fill()
    lost = [mark for mark in job.marks if mark[2] == 310 and mark[3] in (10, 11, 12)][9:12]
    job.marks = [mark for mark in job.marks if mark not in lost]
    folder = written(job, tmp_path)
    counts = [sum(node.type == COLLECTIVE for node in read(folder / f"job.{rank}.et")[1]) for rank in (0, 1)]
    assert counts == [19, 19]


def test_of_a_job_that_was_started_again_the_last_run_is_written(tmp_path: Path) -> None:
    job = Job(iterations=4).fill()
    job.marks += [(at + 2 * 10**9, pid + 50, tid + 50, *rest) for at, pid, tid, *rest in job.marks]
    targets = job.meta().targets
    again = tuple(replace(each, pid=each.pid + 50, start_ticks=9) for each in targets)
    job.changes = {"targets": (*targets, *again), "stopped_ns": START_NS + 4 * 10**9}
    folder = written(job, tmp_path)
    for rank in (0, 1):
        about, nodes = read(folder / f"job.{rank}.et")
        assert attributes(about)["iterations"] == 4
        assert min(node.start_time_micros for node in nodes) >= 2 * 10**6


def test_ranks_that_were_not_recorded_are_said(tmp_path: Path) -> None:
    about, _ = read(written(Job(world_size=4).fill(), tmp_path) / "job.1.et")
    assert "ranks 2, 3 were not recorded" in attributes(about)["notes"].values[0]


def fields(data: bytes) -> dict[int, list[Any]]:
    """Take a message apart by protobuf's wire format alone: numbers of fields to what they hold."""
    found: dict[int, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        assert key & 7 in (0, 2), "all that is written is a varint or has a length"
        if key & 7 == 0:
            found.setdefault(key >> 3, []).append(varint())
        else:
            length = varint()
            found.setdefault(key >> 3, []).append(data[at : at + length])
            at += length
    return found


def test_fields_have_the_numbers_of_the_public_definition(folder: Path) -> None:
    """Numbers as in et_def.proto: no definition of netprof's own is used here."""
    first, *rest = messages(folder / "job.0.et")
    assert fields(first)[1] == [b"0.0.4"]
    assert {fields(each)[1][0] for each in fields(first)[2]} >= {b"schema", b"generator", b"rank"}
    bucket = fields(rest[2])
    assert (bucket[1], bucket[2], bucket[3], bucket[5]) == ([2], [b"ALL_REDUCE"], [COLLECTIVE], [b"\x01"])
    assert (bucket[6], bucket[7]) == ([41_000], [59_000])  # after the recording's begin, 10 ms before the job's
    said = {fields(each)[1][0]: fields(each) for each in bucket[10]}
    assert said[b"is_cpu_op"][27] == [0]
    assert said[b"comm_type"][9] == [ALL_REDUCE]
    assert said[b"comm_size"][9] == [4 * ELEMENTS[0]]
