"""NCCL without a GPU: a stub of the real signatures that moves real bytes, and the real library's own file."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.nccl_net import real_library
from support.training import netprof, training

from netprof.analysis.events.job_ranks import CommunicatorRanks
from netprof.probes.frameworks.nccl import NCCL
from netprof.probes.marks.instructions import examine_entry
from netprof.probes.marks.probe import MarkProbe
from netprof.probes.marks.symbols import X86_64, choose, find_functions
from netprof.schema import MarkKind
from netprof.trace import TraceReader

pytestmark = pytest.mark.timing

PROGRAMS = Path(__file__).parents[1] / "programs"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="attaching uprobes needs root")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="the stub needs gcc to be compiled")


class Trainer:
    """The process that calls the stub, and the peer that receives its bytes."""

    def __init__(self, libraries: list[Path], **environment: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._receive, daemon=True).start()
        port = str(self._listener.getsockname()[1])
        command = [sys.executable, str(PROGRAMS / "nccl_train.py"), *map(str, libraries), port]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment
        )
        self._answer()
        self.pid = self.process.pid

    def say(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(30)
        self._listener.close()
        return code

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def _receive(self) -> None:
        try:
            peer, _ = self._listener.accept()
            while peer.recv(1 << 20):
                pass
        except OSError:
            pass


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("nccl") / "libnccl.so.2")


def compiled(library: Path, prefix: str = "nccl") -> Path:
    """Compile the stub, its functions with `prefix` in place of `nccl`."""
    source = (PROGRAMS / "nccl_stub.c").read_text().replace("nccl", prefix)
    flags = ["-O0", "-shared", "-fPIC", "-pthread"]
    if platform.machine() == "x86_64":
        flags.append("-fcf-protection=none")
    command = ["gcc", *flags, "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    return library


@pytest.fixture
def trainers() -> Iterator[list[Trainer]]:
    running: list[Trainer] = []
    yield running
    for trainer in running:
        assert trainer.end() == 0, "the program did not survive being probed"


def recorded(probe: MarkProbe) -> list[tuple[Any, ...]]:
    return rows_of(probe.drain()["marks"])


def rows_of(table: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    names = ("arg0", "arg1", "arg2")
    return [
        (MarkKind(kind).name, *(int(table[name][index]) for name in names)) for index, kind in enumerate(table["kind"])
    ]


@pytest.mark.core
@needs_root
@needs_gcc
def test_every_call_with_count_datatype_communicator_and_stream(trainers: list[Trainer], stub: Path) -> None:
    trainer = Trainer([stub])
    trainers.append(trainer)
    with MarkProbe([trainer.pid]) as probe:
        (answer,) = trainer.say("call")["libraries"]
        marks = probe.drain()["marks"]
        assert probe.skipped == []
        assert probe.lost() == 0
    expected = Counter(tuple(row) for row in answer["rows"])
    assert len(answer["rows"]) > 100
    expected |= Counter({("NCCL_GROUP_BEGIN", 0, 0, 0): 1, ("NCCL_GROUP_END", 0, 0, 0): 1})
    assert Counter(rows_of(marks)) == expected
    named = CommunicatorRanks()
    named.add(marks)
    assert (named.world_size, named.ranks()) == (32, {trainer.pid: 31})


@needs_root
@needs_gcc
@pytest.mark.parametrize(("name", "prefix"), [("librccl.so.1", "nccl"), ("libccl.so.2.0", "oneccl")])
def test_libraries_with_the_functions_of_nccl(name: str, prefix: str, trainers: list[Trainer], tmp_path: Path) -> None:
    trainer = Trainer([Path(f"{compiled(tmp_path / name, prefix)}:{prefix}")])
    trainers.append(trainer)
    with MarkProbe([trainer.pid]) as probe:
        (answer,) = trainer.say("call")["libraries"]
        rows = recorded(probe)
        assert probe.skipped == []
    expected = Counter(tuple(row) for row in answer["rows"])
    expected |= Counter({("NCCL_GROUP_BEGIN", 0, 0, 0): 1, ("NCCL_GROUP_END", 0, 0, 0): 1})
    assert Counter(rows) == expected


@needs_root
@needs_gcc
def test_two_copies_of_the_library_in_one_process(trainers: list[Trainer], stub: Path, tmp_path: Path) -> None:
    copy = tmp_path / "nvidia" / "libnccl.so.2"
    copy.parent.mkdir()
    shutil.copy(stub, copy)
    trainer = Trainer([stub, copy])
    trainers.append(trainer)
    with MarkProbe([trainer.pid]) as probe:
        first, second = trainer.say("call")["libraries"]
        rows = recorded(probe)
    expected = Counter(tuple(row) for row in first["rows"] + second["rows"])
    expected |= Counter({("NCCL_GROUP_BEGIN", 0, 0, 0): 2, ("NCCL_GROUP_END", 0, 0, 0): 2})
    assert Counter(rows) == expected


@needs_root
@needs_gcc
def test_a_training_rhythm_from_attach_to_report(trainers: list[Trainer], stub: Path, tmp_path: Path) -> None:
    trainer = Trainer([stub], RANK="0", WORLD_SIZE="2")
    trainers.append(trainer)
    trainer.say("init 2")
    with ThreadPoolExecutor() as pool:
        training = pool.submit(trainer.say, "train 250")
        trace = tmp_path / "t.netprof"
        done = netprof("attach", str(trainer.pid), "--duration", "2s", "--json", "--no-live", "--out", str(trace))
        assert done.returncode == 0, done.stderr
        log = training.result()
    report, reader = json.loads(done.stdout), TraceReader(trace)
    enqueue_ns = np.array(log["enqueue_ns"])
    inside = (enqueue_ns > reader.meta.started_ns) & (enqueue_ns < (reader.meta.stopped_ns or 0))
    assert inside.sum() > 40
    (kind,) = report["collectives"]["by_kind"]
    assert abs(kind["count"] - 2 * inside.sum()) <= 2, "only the edges are cut"
    assert kind["bytes"] == kind["count"] // 2 * log["bytes"]
    assert (kind["backend"], kind["kind"], kind["timing"]) == ("nccl", "all-reduce", "enqueue times only")
    assert kind["running_ns"] is kind["bus_bandwidth_bps"] is None, "nothing is known of when it ran"
    (summary,) = report["nccl"]
    assert (summary["pid"], summary["ranks"], summary["ranks_source"]) == (trainer.pid, [2], "environment")
    assert summary["launches"] == pytest.approx(inside.sum(), abs=1)
    assert 1 < summary["wire_to_algorithm_ratio"] < 1.02
    _check_words(report, trace)


def _check_words(report: dict[str, Any], trace: Path) -> None:
    """Nothing may present an enqueue time as the time of a transfer."""
    assert any("NCCL only enqueues" in note for note in report["notes"])
    assert report["iterations"]["source"] in ("inferred", None)
    assert any(probe["name"] == "marks:nccl" for probe in report["probes"]["started"])
    text = netprof("report", "--full", str(trace)).stdout
    assert "enqueue times only" in text
    assert "what was enqueued" in text


@needs_root
@needs_gcc
def test_nccl_that_is_mapped_and_not_called_changes_nothing(stub: Path, tmp_path: Path) -> None:
    """What a gloo job on a CUDA build of torch is: the library is there, with its marks, and nobody calls it."""
    pytest.importorskip("torch", reason="the job is a PyTorch one")

    def with_nccl(command: list[str], env: dict[str, str], **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=env | {"LD_PRELOAD": str(stub)}, **options)

    with training([with_nccl, with_nccl], tmp_path, "--gradient-mb", "8") as job:
        pids = [str(pid) for pid in job.pids]
        done = netprof("attach", *pids, "--iterations", "10", "--json", "--no-live", "--out", str(tmp_path / "t"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert any(probe["name"] == "marks:nccl" for probe in report["probes"]["started"])
    assert not report["nccl"]
    assert {kind["backend"] for kind in report["collectives"]["by_kind"]} == {"gloo"}
    assert all(kind["running_ns"] for kind in report["collectives"]["by_kind"])
    assert report["scaling_factor"] is not None
    assert not any("NCCL" in text for text in (report["verdict"], *report["notes"]))


@needs_root
@needs_gcc
def test_a_library_without_symbols_is_said_and_the_flows_are_recorded(stub: Path, tmp_path: Path) -> None:
    source = tmp_path / "empty.c"
    source.write_text("static int nothing; int *somewhere(void) { return &nothing; }")
    library = tmp_path / "libnccl.so.2"
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(library)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with MarkProbe([process.pid]) as probe:
            reasons = {skipped.name: skipped.reason for skipped in probe.skipped}
            assert {each.name for each in probe.started} <= {"marks:python"}
        process.communicate()
    assert "libnccl.so.2 has no function ncclGroupStart" in reasons["marks:nccl:nccl_group_begin"]


@needs_root
@needs_gcc
def test_doctor_says_which_functions_it_found(trainers: list[Trainer], stub: Path) -> None:
    trainer = Trainer([stub])
    trainers.append(trainer)
    text = " ".join(netprof("doctor", str(trainer.pid)).stdout.split())
    assert "marks of nccl" in text
    assert re.search(r"\d+ of \d+ functions found in libnccl.so.2; \d+ came with later versions", text)


def test_the_real_library_has_every_function_with_a_cheap_first_instruction() -> None:
    path = real_library()
    if path is None:
        pytest.skip("REAL NCCL NOT CHECKED: make nccl gets it (190 MB), or name its libnccl.so.2 in NETPROF_NCCL")
    with open(path, "rb") as file:
        symbols = find_functions(file.fileno(), [mark.symbol_prefix for mark in NCCL.marks])
    slow = set()
    for mark in NCCL.marks:
        function = choose(symbols.functions[mark.symbol_prefix], mark.symbol_prefix)
        if function is None:
            assert mark.newer, f"{mark.symbol_prefix} is missing"
        elif symbols.machine == X86_64 and not examine_entry(function.code, X86_64).emulated:
            slow.add(mark.symbol_prefix)
            assert mark.seldom, f"{mark.symbol_prefix} would be single-stepped at every call"
    assert slow <= {"ncclCommInitRankConfig", "ncclCommInitAll"}
