"""A small real program whose calls are known to the last argument, and what its marks are."""

from __future__ import annotations

import platform
import select
import subprocess
from pathlib import Path

import numpy as np

from netprof.model import Target
from netprof.probes.frameworks.table import Framework, Mark, MemoryField, Register
from netprof.probes.job import procfs
from netprof.probes.marks.probe import MarkProbe
from netprof.schema import MarkKind

PROGRAMS = Path(__file__).parents[1] / "programs"


X86 = platform.machine() == "x86_64"


BEGIN = Mark(MarkKind.DDP_FORWARD, "toy_begin", (Register(1), Register(3), Register(6)))


SMALL = Mark(MarkKind.BUCKET_LAUNCH, "toy_fields", (MemoryField(1, 0, 1), MemoryField(1, 2, 2), MemoryField(1, 4, 4)))


LARGE = Mark(MarkKind.COLLECTIVE_SIZE, "toy_fields", (MemoryField(1, 8, 8), Register(2)))


def toy(*marks: Mark) -> tuple[Framework, ...]:
    return (Framework("toy", "libtoy*.so*", marks),)


class Toy:
    """A running toy_main: `say` sends a line and returns the answer."""

    def __init__(self, argv: list[str]) -> None:
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def say(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line.replace("\n", "\1") + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> str:
        """Wait for a line of its output."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        assert ready, "no answer"
        answer = self.process.stdout.readline().strip()
        assert answer, f"the program ended: {self.process.poll()}"
        return answer

    def end(self) -> int:
        """Close its input; it must end well, whatever was done to it."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        return self.process.wait(30)


def start(toys: list[Toy], built: Path, library: Path | None = None) -> Toy:
    process = Toy([str(built / "toy")])
    toys.append(process)
    process.say(f"load {library or built / 'libtoy.so'}")
    return process


def rows(probe: MarkProbe, kind: MarkKind) -> list[tuple[int, ...]]:
    """Drain, and return (pid, tid, arg0, arg1, arg2) of one kind in order of time."""
    table = probe.drain()["marks"]
    order = np.argsort(table["time_ns"], kind="stable")
    names = ("pid", "tid", "arg0", "arg1", "arg2")
    return [tuple(int(table[name][i]) for name in names) for i in order if table["kind"][i] == kind]


def as_target(program: Toy) -> Target:
    stat = procfs.read_stat(program.pid)
    assert stat is not None
    return Target(program.pid, stat.start_ticks, frameworks=("toy",))
