"""What is posted to NCCL's network: a stub with the real tables that moves real bytes, and the real library's file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.nccl_net import Poster, compiled, needs_compiler, real_library
from support.training import netprof

from netprof.model import Target
from netprof.probes.kernel.elf import Elf
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.marks.instructions import examine_entry
from netprof.probes.marks.libraries import Library
from netprof.probes.marks.symbols import X86_64
from netprof.probes.nccl.net_functions import POINTER_TABLE, SYMBOL_TABLE, find_by_tables, find_net_functions
from netprof.probes.nccl.pointers import Pointers
from netprof.probes.nccl.probe import NcclNetworkProbe
from netprof.probes.probe import Shared
from netprof.schema import RECEIVE, TRANSMIT, NcclNetwork
from netprof.trace import TraceReader

pytestmark = pytest.mark.timing

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="attaching uprobes needs root")
pytestmark = needs_compiler

TOGETHER = ("-Wl,-z,noseparate-code",)
"""Texts in the segment of the code, as in the real library."""

KINDS = {
    "symbols": ("libnccl.so.2", ()),
    "table": ("libnccl.so.2", ("-s", *TOGETHER)),
    "plugin": ("libnccl-net.so", ("-s", "-DPLUGIN=8")),
    "plugin-of-two-versions": ("libnccl-net-stub.so", ("-s", "-DPLUGIN=10")),
}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def library(kind: str) -> Path:
        if kind not in made:
            name, options = KINDS[kind]
            made[kind] = compiled(tmp_path_factory.mktemp(kind) / name, *options)
        return made[kind]

    return library


@pytest.fixture
def posters() -> Iterator[list[Poster]]:
    running: list[Poster] = []
    yield running
    for poster in running:
        assert poster.end() == 0, "the program did not survive being probed"


class Recorded:
    """What the probe hands over of a process."""

    def __init__(self, pid: int, *, multi: bool | None = None, bin_ns: int = 1_000_000) -> None:
        self.targets = TargetMap()
        self.targets.add(pid)
        shared = SimpleNamespace(targets=self.targets, bin_ns=bin_ns, series_ids=count())
        self.probe = NcclNetworkProbe(cast(Shared, shared), multi=multi)
        self.probe.follow([Target(pid, 1, frameworks=("nccl",))])
        self.parts: list[Any] = []

    def rows(self, *, final: bool = True) -> dict[str, Any]:
        self.parts.append(self.probe.drain(final=final)["nccl_posted"])
        return {name: np.concatenate([part[name] for part in self.parts]) for name in self.parts[0]}

    def close(self) -> None:
        self.probe.close()
        self.targets.close()

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def sums(rows: dict[str, Any], direction: int) -> tuple[int, int, int]:
    """Posts, bytes and refusals one way."""
    own = rows["direction"] == direction
    return tuple(int(rows[name][own].sum()) for name in ("posts", "posted_bytes", "refused"))  # type: ignore[return-value]


@pytest.mark.core
@needs_root
@pytest.mark.parametrize("multi", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_once_however_often_it_is_asked_for(
    kind: str, multi: bool, libraries: Callable[[str], Path], posters: list[Poster]
) -> None:
    poster = Poster(libraries(kind))
    posters.append(poster)
    with Recorded(poster.pid, multi=multi) as recorded:
        poster.say("send a 300 70000 3 0")
        poster.say("send b 50 1000 0 0")
        rows = recorded.rows()
        (started,) = recorded.probe.describe().started
    assert sums(rows, TRANSMIT) == (350, 300 * 70_000 + 50 * 1000, 900)
    assert set(rows["pid"].tolist()) == {poster.pid}
    by_connection = {address: int(rows["posts"][rows["connection"] == address].sum()) for address in rows["connection"]}
    assert sorted(by_connection.values()) == [50, 300]
    expected = NcclNetwork.PLUGIN if "plugin" in kind else NcclNetwork.SOCKET
    assert set(rows["network"].tolist()) == {int(expected)}
    assert (rows["first_ns"] // 1_000_000 * 1_000_000 == rows["bin_start_ns"]).all()
    assert {"symbols": SYMBOL_TABLE, "table": POINTER_TABLE}.get(kind, "exported") in started.detail


@needs_root
@pytest.mark.parametrize("refusals", [0, 2])
def test_operations_that_use_the_memory_of_others_are_all_counted(
    refusals: int, libraries: Callable[[str], Path], posters: list[Poster]
) -> None:
    poster = Poster(libraries("symbols"))
    posters.append(poster)
    with Recorded(poster.pid) as recorded:
        poster.say(f"share a 200 5000 {refusals}")
        rows = recorded.rows()
    assert sums(rows, TRANSMIT) == (800, 800 * 5000, 800 * refusals)


@needs_root
@pytest.mark.parametrize("number", range(4, 13))
@pytest.mark.parametrize("kind", ["symbols", "table", "plugin"])
def test_sends_and_receives_of_every_version(kind: str, number: int, posters: list[Poster], tmp_path: Path) -> None:
    name, options = KINDS[kind]
    own = f"-DPLUGIN={number}" if kind == "plugin" else f"-DINTERFACE={number}"
    poster = Poster(compiled(tmp_path / name, *options, own))
    posters.append(poster)
    together = 1 if number == 4 else 8
    with Recorded(poster.pid) as recorded:
        poster.say("send dry 50 70000 1 0")
        poster.say("receive dry 100 4096 2")
        poster.say(f"receive dryer 10 1000000 0 {together}")
        rows = recorded.rows()
        said = recorded.probe.describe()
    grouped = sum(1_000_000 + more for more in range(together))
    assert sums(rows, TRANSMIT) == (50, 50 * 70_000, 50)
    assert sums(rows, RECEIVE) == (110, 100 * 4096 + 10 * grouped, 200)
    assert not said.warnings


@needs_root
@pytest.mark.parametrize("lost", ["receive dry 7 -1 0", "receive dry 7 100 0 9"], ids=["unreadable", "too many"])
def test_receives_of_unknown_room_are_said_and_not_counted(
    lost: str, libraries: Callable[[str], Path], posters: list[Poster]
) -> None:
    poster = Poster(libraries("plugin"))
    posters.append(poster)
    with Recorded(poster.pid) as recorded:
        poster.say("receive dry 20 4096 0")
        poster.say(lost)
        rows, said = recorded.rows(), recorded.probe.describe()
    assert sums(rows, RECEIVE) == (20, 20 * 4096, 0)
    assert said.warnings == ("7 posts to NCCL's network are not counted: their sizes could not be read",)
    assert said.losses.lost_marks == 7


@needs_root
def test_what_is_posted_while_rows_are_taken(libraries: Callable[[str], Path], posters: list[Poster]) -> None:
    poster = Poster(libraries("table"))
    posters.append(poster)
    with Recorded(poster.pid, bin_ns=100_000) as recorded:
        for _ in range(30):
            poster.say("send a 200 5000 1 0")
            recorded.rows(final=False)
            time.sleep(0.01)
        rows = recorded.rows()
    assert sums(rows, TRANSMIT) == (6000, 6000 * 5000, 6000)


@needs_root
def test_a_stranger_is_not_counted(libraries: Callable[[str], Path], posters: list[Poster]) -> None:
    own, other = Poster(libraries("symbols")), Poster(libraries("symbols"))
    posters += [own, other]
    with Recorded(own.pid, multi=False) as recorded:  # with perf events the probes are in every process
        other.say("send a 100 5000 0 0")
        own.say("send a 10 500 0 0")
        rows = recorded.rows()
    assert sums(rows, TRANSMIT) == (10, 5000, 0)


IN_ITS_OWN_NAMESPACE = """
import json, sys
from pathlib import Path
from support.nccl_net import Poster
from test_nccl_network import TRANSMIT, Recorded, sums
poster = Poster(Path(sys.argv[1]))
with Recorded(poster.pid) as recorded:
    poster.say("send a 300 70000 3 0")
    rows = recorded.rows()
print(json.dumps([poster.pid, sorted(set(rows["pid"].tolist())), sums(rows, TRANSMIT), poster.end()]))
"""


@needs_root
def test_netprof_in_a_pid_namespace_of_its_own_counts_by_its_own_pids(libraries: Callable[[str], Path]) -> None:
    inside = [sys.executable, "-c", IN_ITS_OWN_NAMESPACE, str(libraries("table"))]
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *inside]
    environment = os.environ | {"PYTHONPATH": ":".join([str(Path(__file__).parent), *filter(None, sys.path)])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    pid, pids, counted, code = json.loads(done.stdout)
    assert (pids, counted, code) == ([pid], [300, 300 * 70_000, 900], 0)


@pytest.mark.core
@needs_root
def test_posts_and_flows_agree_from_attach_to_report(
    libraries: Callable[[str], Path], posters: list[Poster], tmp_path: Path
) -> None:
    poster = Poster(libraries("table"), {"RANK": "0", "WORLD_SIZE": "1"})
    posters.append(poster)
    trace = tmp_path / "t.netprof"
    command = ("attach", str(poster.pid), "--duration", "3s", "--json", "--no-live", "--out", str(trace))
    done: list[Any] = []
    recording = threading.Thread(target=lambda: done.append(netprof(*command)))
    recording.start()
    while recording.is_alive():
        poster.say("send a 50 100000 1 2000")
    recording.join()
    assert done[0].returncode == 0, done[0].stderr
    report = json.loads(done[0].stdout)
    (use,) = report["nccl_network"]["processes"]
    assert (use["pid"], use["rank"], use["network"]) == (poster.pid, 0, "socket")
    assert use["posted_bytes"] == use["posts"] * 100_000 > 10**8
    assert 0.995 < use["sent_to_posted"] < 1.01
    assert "found by its table" in report["nccl_network"]["found"][0]
    assert sum(each["posted_bytes"] for each in use["connections"]) == use["posted_bytes"]
    text = netprof("report", "--full", str(trace)).stdout
    assert "NCCL's network" in text
    assert TraceReader(trace).table("nccl_posted").num_rows > 100


CALLS = """
import ctypes, sys
path, offset, has_handle = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "7"
ctypes.CDLL(path)
base = next(int(line.partition("-")[0], 16) for line in open("/proc/self/maps") if path in line)
isend = ctypes.CFUNCTYPE(
    ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_size_t, ctypes.c_int, *[ctypes.c_void_p] * (3 if has_handle else 2)
)
connection, requests = ctypes.create_string_buffer(1 << 20), (ctypes.c_void_p * 8)()
print(flush=True)
for line in sys.stdin:
    for number in range(20):
        request = ctypes.addressof(requests) + number % 8 * 8
        arguments = ctypes.addressof(connection), None, 1000 + number, 0, *[None] * (2 if has_handle else 1), request
        assert isend(base + offset)(*arguments) == 0
        assert requests[number % 8], "it was not accepted"
    print(flush=True)
"""
"""Calls isend of NCCL's sockets, on a connection that is all zeros: requests are taken, and nothing moves."""


@pytest.fixture(scope="module")
def real() -> Path:
    path = real_library()
    if path is None:
        pytest.skip("REAL NCCL NOT CHECKED: make nccl gets it (190 MB), or name its libnccl.so.2 in NETPROF_NCCL")
    return path.resolve()


def test_the_real_library_has_both_networks_by_symbol_and_by_table(real: Path) -> None:
    library = Library(os.open(real, os.O_RDONLY), real.name)
    try:
        begin_s = time.monotonic()
        functions = find_net_functions(library, begin_s + 60)
        elf = Elf(library.descriptor)
        tables = list(find_by_tables(elf, Pointers(elf)))
        assert time.monotonic() - begin_s < 2
    finally:
        library.close()
    assert {each.network for each in functions} == {NcclNetwork.SOCKET, NcclNetwork.INFINIBAND}
    assert {each.found_by for each in functions} == {SYMBOL_TABLE}
    assert {(each.offset, each.call, each.network) for each in functions} == {
        (each.offset, each.call, each.network) for each in tables
    }
    slow = {each.name for each in functions if not examine_entry(each.code, X86_64).emulated and not each.call.counted}
    assert not slow, "a send would be single-stepped"


@needs_root
def test_sends_of_the_real_library_are_counted(real: Path) -> None:
    library = Library(os.open(real, os.O_RDONLY), real.name)
    functions = find_net_functions(library, time.monotonic() + 60)
    library.close()
    (send,) = (each for each in functions if each.name == "Socket" and each.call.direction == TRANSMIT)
    command = [sys.executable, "-c", CALLS, str(real), str(send.offset), str(send.call.request)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        with Recorded(process.pid) as recorded:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "\n", "a call failed"
            rows = recorded.rows()
        process.stdin.close()
        assert process.wait(30) == 0
    assert sums(rows, TRANSMIT) == (20, sum(1000 + number for number in range(20)), 0)
