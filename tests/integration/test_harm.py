"""A job is never harmed: attached to, let go and killed beside at random moments, it computes what it would have.

NETPROF_HARM_CYCLES says how often (100 takes some minutes), NETPROF_HARM_SEED which moments.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.training import free_port

from netprof.probes.kernel.libbpf import libbpf
from netprof.probes.marks.libraries import executable_mappings
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job is a PyTorch one")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")

CYCLES = int(os.environ.get("NETPROF_HARM_CYCLES", "6"))
SEED = int(os.environ.get("NETPROF_HARM_SEED", "1"))
PROGRAM = Path(__file__).parents[1] / "programs" / "steady_ddp.py"
LIBRARY = next(each.path.decode() for each in executable_mappings(os.getpid()) if each.basename.startswith("libm.so"))
_LONGEST_S = 2.0  # an attach takes 0.5 s: before it, in it and after it
_GONE_WITHIN_S = 30.0


class Job:
    """Two ranks on loopback."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir()
        self.folder = folder
        port = str(free_port())
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), str(folder), LIBRARY, *options],
                stdout=subprocess.PIPE,
                env=os.environ
                | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
                text=True,
            )
            for rank in range(2)
        ]
        for each in self.ranks:
            assert each.stdout is not None
            assert each.stdout.readline() == "training\n"

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self.ranks]

    def end(self, within_s: float = 180) -> None:
        """Let the job end after its next step, or its last one."""
        (self.folder / "stop").touch()
        assert [each.wait(within_s) for each in self.ranks] == [0, 0], "the job did not survive"

    def results(self) -> list[list[str]]:
        return [(self.folder / f"rank{rank}.log").read_text().splitlines() for rank in range(2)]


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Job]:
    job = Job(folder, *options)
    try:
        yield job
    finally:
        for each in job.ranks:
            each.kill()
            each.wait()


@dataclass(frozen=True)
class Traces:
    """What a process and the kernel hold that could be ours."""

    breakpoints: int
    files: frozenset[str]
    mapped: frozenset[str]
    threads: int
    tracer: str


def left_in(pid: int) -> Traces:
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    mappings = executable_mappings(pid)
    return Traces(
        breakpoints=sum(
            changed_bytes(pid, each.address_range, each.path) for each in mappings if b"torch" in each.path
        ),
        files=frozenset(str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()),
        mapped=frozenset(each.path.decode() for each in mappings),
        threads=int(status["Threads"]),
        tracer=status["TracerPid"],
    )


def everything_in(job: Job) -> list[Traces]:
    """Return what the job's processes hold between two of its own disturbances."""
    while (found := [left_in(pid) for pid in job.pids]) != [left_in(pid) for pid in job.pids]:
        time.sleep(0.05)
    return found


def changed_bytes(pid: int, address_range: str, path: bytes) -> int:
    """Count the bytes of mapped code that are not those of the file."""
    begin, end = (int(part, 16) for part in address_range.split("-"))
    lines = Path(f"/proc/{pid}/maps").read_bytes().splitlines()
    offset = next(int(line.split()[2], 16) for line in lines if line.startswith(address_range.encode()))
    with open(f"/proc/{pid}/mem", "rb") as memory, open(path, "rb") as file:
        memory.seek(begin)
        file.seek(offset)
        code, original = memory.read(end - begin), file.read(end - begin)
    return 0 if code == original else sum(a != b for a, b in zip(code, original, strict=False))


def kernel_objects() -> set[tuple[str, int]]:
    """Return every BPF program, map and link of the machine that no process holds: those of others at work are."""
    held = {held for pid in Path("/proc").glob("[0-9]*") for held in held_by(pid)}
    found = set()
    for kind in ("prog", "map", "link"):
        following = ctypes.c_uint32(0)
        after = getattr(libbpf(), f"bpf_{kind}_get_next_id")
        while after(following.value, ctypes.byref(following)) == 0:
            found.add((kind, following.value))
    return found - held


def held_by(process: Path) -> Iterator[tuple[str, int]]:
    """Yield the objects that a process has open."""
    with suppress(OSError):  # it ended
        for each in (process / "fdinfo").iterdir():
            for line in each.read_text().splitlines():
                name, _, value = line.partition(":")
                if name in ("prog_id", "map_id", "link_id"):
                    yield name.removesuffix("_id"), int(value)


def places_for_leftovers() -> set[str]:
    """Return what lies where programs leave things that they forget."""
    folders = (Path("/tmp"), Path("/dev/shm"), Path("/run"), Path("/sys/fs/bpf"), Path("/var/tmp"))
    return {str(each) for folder in folders if folder.exists() for each in folder.glob("*netprof*")}


def cycle(rng: random.Random, job: Job, trace: Path) -> None:
    """Attach, and end that at a random moment in a random way; stop a rank for a while at another one."""
    command = [sys.executable, "-m", "netprof", "attach", str(rng.choice(job.pids)), "--out", str(trace), "--no-live"]
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    moments = sorted(rng.uniform(0, _LONGEST_S) for _ in range(2))
    stops, how = rng.random() < 0.5, rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL))
    begin_s = time.monotonic()
    time.sleep(moments[0])
    rank = rng.choice(job.pids)
    if stops:
        os.kill(rank, signal.SIGSTOP)
    try:
        time.sleep(max(0.0, begin_s + moments[1] - time.monotonic()))
        recorder.send_signal(how)
    finally:
        if stops:
            os.kill(rank, signal.SIGCONT)
    assert recorder.wait(60) in (0, 130, -how, 128 + how), "the recorder did not end well"


@pytest.mark.timeout(600 + 60 * CYCLES)
def test_results_are_those_of_an_undisturbed_run_and_nothing_stays(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    places, objects = places_for_leftovers(), kernel_objects()
    with running(tmp_path / "disturbed", "--pace-ms", "5") as job:
        before = everything_in(job)
        for number in range(CYCLES):
            cycle(rng, job, tmp_path / f"{number}.netprof")
        until_s = time.monotonic() + _GONE_WITHIN_S
        while (kernel_objects() - objects or everything_in(job) != before) and time.monotonic() < until_s:
            time.sleep(0.1)
        assert kernel_objects() - objects == set(), "something stays in the kernel"
        assert everything_in(job) == before, "something stays in the job"
        job.end()
        disturbed = job.results()
    left = places_for_leftovers() - places
    until_s = time.monotonic() + _GONE_WITHIN_S
    while left and time.monotonic() < until_s:  # others at work leave nothing either, but all the time
        time.sleep(0.1)
        left &= places_for_leftovers()
    assert left == set(), "something stays on a disk"
    steps = len(disturbed[0])
    with running(tmp_path / "undisturbed", "--steps", str(steps)) as job:
        job.end(within_s=180 + steps * 0.05)
        undisturbed = job.results()
    assert len(disturbed[1]) == steps > 50 * CYCLES
    assert disturbed == undisturbed
    for trace in tmp_path.glob("*.netprof"):
        if (trace / "meta.json").exists():  # killed before there was anything
            TraceReader(trace).table("wire")


@pytest.mark.core
def test_one_bit_is_seen(tmp_path: Path) -> None:
    """The comparison is worth something: a job that reads another seed differs from its first step on."""
    runs = []
    for name in ("one", "other"):
        with running(tmp_path / name, "--steps", "3") as job:
            job.end()
            runs.append(job.results())
    assert runs[0] == runs[1]
    assert len({*runs[0][0]}) == 3, "every step differs from the one before"
    assert runs[0][0] != runs[0][1], "ranks see other data"
