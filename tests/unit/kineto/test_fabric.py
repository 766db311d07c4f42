"""The messages of the job's profilers, and the desk that answers them."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Clock, Target
from netprof.probes.job import procfs
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kineto import fabric
from netprof.probes.kineto.desk import Desk
from netprof.probes.kineto.files import ProfileFolder
from netprof.probes.kineto.probe import KinetoProbe

THE_ADDRESS = fabric.DAEMON


@pytest.fixture(autouse=True)
def _own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests that run side by side not ask at each other's desk: there is one address in a network namespace."""
    monkeypatch.setattr(fabric, "DAEMON", b"\0netprof-test-%d\0" % os.getpid())


def question(kinds: int = 3, pids: tuple[int, ...] = (1, 2)) -> bytes:
    return fabric.answer("req", struct.pack(f"=iiq{len(pids)}i", kinds, len(pids), 0, *pids))


def test_the_address_is_the_one_at_which_torch_asks() -> None:
    assert THE_ADDRESS == b"\0dynolog\0"


def test_a_question_is_understood() -> None:
    message = fabric.parse(question())
    assert message is not None
    assert message.asks_for_activities
    events_only = fabric.parse(question(kinds=1))
    assert events_only is not None
    assert not events_only.asks_for_activities


@pytest.mark.parametrize("data", [b"", b"x" * 39, struct.pack("=Q32s", 10**9, b"req"), question()[:-1]])
def test_what_is_no_message_is_none(data: bytes) -> None:
    assert fabric.parse(data) is None


def test_too_short_a_question_asks_for_nothing() -> None:
    message = fabric.parse(fabric.answer("req", b"abc"))
    assert message is not None
    assert not message.asks_for_activities


def test_the_answer_names_the_file_and_the_iterations() -> None:
    message = fabric.parse(fabric.configuration("/tmp/x.json", 3))
    assert message is not None
    lines = message.body.decode().split("\n")
    assert "ACTIVITIES_LOG_FILE=/tmp/x.json" in lines
    assert "ACTIVITIES_ITERATIONS=3" in lines


def ask(data: bytes) -> fabric.Message:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.bind(b"\0netprof-test-%d-%d" % (os.getpid(), threading.get_ident()))
        client.settimeout(5)
        client.sendto(data, fabric.DAEMON)
        answered = fabric.parse(client.recv(fabric.LONGEST))
        assert answered is not None
        return answered


@pytest.fixture
def netns() -> NetworkNamespace:
    return NetworkNamespace.of(os.getpid())


def test_a_desk_answers_who_asks_by_the_kernels_word(netns: NetworkNamespace) -> None:
    asked: list[int] = []

    def wanted(pid: int) -> bytes:
        asked.append(pid)
        return fabric.configuration("/tmp/x.json", 2)

    desk = Desk(netns, wanted)
    try:
        assert ask(fabric.answer("ctxt", struct.pack("=iiq", 0, 1, 0))).name == "ctxt"
        assert b"ACTIVITIES_ITERATIONS=2" in ask(question(pids=(1,))).body
        assert asked == [os.getpid()], "whatever the question says"
        assert ask(question(kinds=1)).body == b""
    finally:
        desk.close()


def test_an_address_that_is_taken_is_an_error_that_says_so(netns: NetworkNamespace) -> None:
    desk = Desk(netns, lambda pid: None)
    try:
        with pytest.raises(NetprofError, match="taken"):
            Desk(netns, lambda pid: None)
    finally:
        desk.close()


def test_without_being_asked_for_it_does_nothing() -> None:
    probe = KinetoProbe(None)
    probe.follow([Target(os.getpid(), 1, frameworks=("torch",))])
    assert probe.drain(final=True) == {}
    said = probe.describe()
    assert (said.started, said.skipped) == ((), ())
    probe.close()


def test_a_job_that_does_not_ask_is_told_of(tmp_path: Path) -> None:
    probe = KinetoProbe(2)
    probe.follow([Target(os.getpid(), 1, frameworks=("torch",))])
    (skipped,) = probe.describe().skipped
    assert "KINETO_USE_DAEMON=1" in skipped.remedy
    probe.close()


def test_a_profile_is_taken_when_it_is_whole_and_removed(tmp_path: Path) -> None:
    folder = ProfileFolder(os.getpid())
    written = Path(folder.file)
    assert written.parent.stat().st_mode & 0o777 == 0o700
    assert folder.complete() is None
    written.write_text('{"traceEvents": [')
    assert folder.complete() is None
    written.write_text('{"traceEvents": [{"ph": "X"}')
    assert folder.complete() is None, "it ends like one, within"
    (written.parent / "link.json").symlink_to("/etc/hostname")
    written.write_text('{"traceEvents": [{"ph": "X", "ts": 5}]}\n')
    found = folder.complete()
    assert found is not None
    assert found.begin_ns.tolist() == [5000]
    folder.close()
    folder.close()
    assert not written.parent.exists()


ASKING = """
import socket, sys
asking = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
asking.bind(b"")
asking.settimeout(5)
print("ready", flush=True)
for line in sys.stdin:
    asking.sendto(bytes.fromhex(line), sys.argv[1].encode())
    print(asking.recv(65536).hex(), flush=True)
"""


class Asking:
    """A process that was started so that it asks, and does when told to."""

    def __init__(self) -> None:
        program = ASKING.replace("sys.argv[1].encode()", repr(fabric.DAEMON))
        environment = {**os.environ, fabric.ENVIRONMENT: "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"  # one that is being started has no environment
        stat = procfs.read_stat(self.process.pid)
        assert stat is not None
        netns = Path("/proc/self/ns/net").stat().st_ino
        self.target = Target(self.process.pid, stat.start_ticks, frameworks=("torch",), netns=netns)

    def ask(self) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(question().hex() + "\n")
        self.process.stdin.flush()
        answered = fabric.parse(bytes.fromhex(self.process.stdout.readline()))
        assert answered is not None
        return answered.body.decode()


@pytest.fixture
def asking(netns: NetworkNamespace) -> Iterator[Asking]:
    process = Asking()
    yield process
    process.process.kill()
    process.process.communicate()


def test_nobody_is_told_to_profile_before_all_is_recorded(asking: Asking) -> None:
    with KinetoProbe(2) as probe:
        probe.follow([asking.target])
        assert asking.ask() == ""
        probe.drain()
        assert "ACTIVITIES_ITERATIONS=2" in asking.ask()
        assert asking.ask() == "", "once"


@pytest.mark.parametrize("set_ns", [0, 1_001_000_000, -1_001_000_000])
def test_a_clock_that_is_set_while_a_job_is_profiled_misplaces_nothing(
    set_ns: int, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KinetoProbe(2) as probe:
        probe.follow([asking.target])
        probe.drain()
        (file,) = [line for line in asking.ask().split("\n") if line.startswith("ACTIVITIES_LOG_FILE=")]
        now = Clock.now()
        monkeypatch.setattr(Clock, "now", lambda: Clock(now.monotonic_ns, now.realtime_ns + set_ns))
        event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 5, "dur": 7}'
        Path(file.partition("=")[2]).write_text(
            f'{{"baseTimeNanoseconds": {now.realtime_ns}, "traceEvents": [{event}]}}\n'
        )
        found = probe.drain()
        if set_ns == 0:
            assert found["profiled"]["first_ns"].tolist() == [now.monotonic_ns + 5_000] * 2
        else:
            assert found == {}
            (skipped,) = probe.describe().skipped
            assert "clock was set by 1.00 s" in skipped.reason


def test_a_job_in_a_container_is_told_why_it_is_not_profiled_and_not_waited_for(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int) -> None:
        raise NotPermittedError("it sees other files than this host's", "")

    monkeypatch.setattr("netprof.probes.kineto.files._require_our_files", refused)
    begin_s = time.monotonic()
    with KinetoProbe(2) as probe:
        probe.follow([asking.target])
        probe.drain()
        assert asking.ask() == ""
        assert probe.drain(final=True) == {}
        assert time.monotonic() - begin_s < 1
        (skipped,) = probe.describe().skipped
        assert "other files" in skipped.reason


@pytest.mark.slow
def test_a_job_that_writes_its_profile_long_after_the_end_is_not_waited_for(asking: Asking) -> None:
    begin_s = time.monotonic()
    with KinetoProbe(2) as probe:
        probe.follow([asking.target])
        probe.drain()
        (file,) = [line for line in asking.ask().split("\n") if line.startswith("ACTIVITIES_LOG_FILE=")]
        assert probe.drain(final=True) == {}
        (skipped,) = probe.describe().skipped
        assert "1 of 1 profiles were not written before the end" in skipped.reason
    assert time.monotonic() - begin_s < 3
    late = Path(file.partition("=")[2])
    with pytest.raises(FileNotFoundError):  # however late: its place is gone, and nothing is left behind
        late.write_text("{}")
    assert not late.parent.exists()
