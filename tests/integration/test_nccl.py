"""NCCL without a GPU: a stub of the real signatures that moves real bytes, and the real library's own file."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netprof.probes.frameworks import NCCL
from netprof.probes.instructions import examine_entry
from netprof.probes.marks import MarkProbe
from netprof.probes.symbols import X86_64, choose, find_functions
from netprof.schema import MarkKind

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
    library = tmp_path_factory.mktemp("nccl") / "libnccl.so.2"
    flags = ["-O0", "-shared", "-fPIC", "-pthread"]
    if platform.machine() == "x86_64":
        flags.append("-fcf-protection=none")
    subprocess.run(["gcc", *flags, str(PROGRAMS / "nccl_stub.c"), "-o", str(library)], check=True)
    return library


@pytest.fixture
def trainers() -> Iterator[list[Trainer]]:
    running: list[Trainer] = []
    yield running
    for trainer in running:
        assert trainer.end() == 0, "the program did not survive being probed"


def recorded(probe: MarkProbe) -> list[tuple[Any, ...]]:
    table = probe.drain()
    names = ("arg0", "arg1", "arg2")
    return [
        (MarkKind(kind).name, *(int(table[name][index]) for name in names)) for index, kind in enumerate(table["kind"])
    ]


@needs_root
@needs_gcc
def test_every_call_with_count_datatype_communicator_and_stream(trainers: list[Trainer], stub: Path) -> None:
    trainer = Trainer([stub])
    trainers.append(trainer)
    with MarkProbe([trainer.pid]) as probe:
        (answer,) = trainer.say("call")["libraries"]
        rows = recorded(probe)
        assert probe.skipped == []
        assert probe.lost() == 0
    expected = Counter(tuple(row) for row in answer["rows"])
    assert len(answer["rows"]) > 100
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


def real_library() -> Path | None:
    """Return libnccl.so.2 of the wheel nvidia-nccl-cu12 or -cu13, or the file that NETPROF_NCCL names."""
    if named := os.environ.get("NETPROF_NCCL"):
        return Path(named)
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return None
    places = [Path(place) / "lib" / "libnccl.so.2" for place in (spec.submodule_search_locations or [])] if spec else []
    return next((place for place in places if place.exists()), None)


def test_the_real_library_has_every_function_with_a_cheap_first_instruction() -> None:
    path = real_library()
    if path is None:
        pytest.skip(
            "REAL NCCL NOT CHECKED: pip install nvidia-nccl-cu12 (350 MB), or name its libnccl.so.2 in NETPROF_NCCL"
        )
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
