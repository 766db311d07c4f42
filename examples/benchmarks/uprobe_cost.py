"""What a mark costs the job, and how long attaching and detaching take. Needs root, gcc, and a quiet machine.

    python examples/benchmarks/uprobe_cost.py [--pairs 60] [--library /path/to/libtorch_cpu.so]

Three tables:

1. ns a call. A C program calls a function in a tight loop, window after window; its entry, its return or both are
   probed in half of them, in ABBA order. "wall" is the median over the pairs of the difference, divided by the calls,
   with a bootstrap interval of 95 %; "BPF" is the kernel's own run time of the program (BPF_ENABLE_STATS, which costs
   time itself, so it is measured apart from the wall time). The A/A row is the same with no probe in either half: it
   says how much of a wall time is noise.
2. The same for each kind of first instruction: which ones this kernel emulates, and which it single-steps.
3. Attaching, dropping the sampled marks and detaching on a process with the library loaded (median of 5).

The loop does nothing else, so that breakpoint, cache misses and BPF program are all in the wall time; a job that works
between two hits pays more for cache misses.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from netprof.probes.frameworks import FRAMEWORKS
from netprof.probes.frameworks.table import Argument, Framework, Mark, MemoryField, Register
from netprof.probes.kernel.loader import program_statistics, run_time_statistics
from netprof.probes.marks.instructions import examine_entry
from netprof.probes.marks.probe import MarkProbe
from netprof.probes.marks.symbols import find_functions
from netprof.schema import MarkKind

CALLS = 20_000
SLOW_CALLS = 2_000

# Functions by their first instruction; each ends as it began.
FIRST_INSTRUCTIONS = {
    "push_rbp": "push %rbp; pop %rbp",
    "push_r15": "push %r15; pop %r15",
    "jmp": ".byte 0xe9, 0, 0, 0, 0",
    "jmp_short": "jmp 1f; 1:",
    "jcc_short": "jz 1f; 1:",
    "jcc_near": ".byte 0x0f, 0x84, 0, 0, 0, 0",
    "call": ".byte 0xe8, 0, 0, 0, 0; pop %rax",
    "nop": "nop",
    "nop2": ".byte 0x66, 0x90",
    "nop4": ".byte 0x0f, 0x1f, 0x40, 0",
    "nop5": ".byte 0x0f, 0x1f, 0x44, 0, 0",
    "nop9": ".byte 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0",
    "nop10": ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0",
    "endbr64": "endbr64",
    "endbr64_push": "endbr64; push %rbp; pop %rbp",
    "push_imm": "push $1; pop %rax",
    "sub": "sub $8, %rsp; add $8, %rsp",
    "mov": "mov %rdi, %rax",
    "lea": "lea 8(%rdi), %rax",
    "xor": "xor %eax, %eax",
    "test": "test %rdi, %rdi",
}

MAIN = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW);
	char name[128];
	uint64_t calls, memory[16] = { 0 };
	puts("ready");
	fflush(stdout);
	while (scanf("%127s %lu", name, &calls) == 2) {
		void (*function)(void *, uint64_t) = dlsym(library, name);
		uint64_t begin = now();
		for (uint64_t i = 0; i < calls; i++)
			function(memory, i);
		printf("%lu\n", now() - begin);
		fflush(stdout);
	}
}
"""


class Refused(Exception):
    """The kernel does not attach to this instruction."""


class Loop:
    """A C program that calls functions of a library in a tight loop and times itself."""

    def __init__(self, folder: Path) -> None:
        (folder / "main.c").write_text(MAIN)
        subprocess.run(["gcc", "-O2", "main.c", "-o", "loop", "-ldl"], cwd=folder, check=True)
        bodies = FIRST_INSTRUCTIONS if platform.machine() == "x86_64" else {"push_rbp": "nop"}
        assembly = [".section .note.GNU-stack\n.text\n"] + [
            f".globl f_{name}\n.type f_{name}, %function\nf_{name}: {body}\nret\n.size f_{name}, . - f_{name}\n"
            for name, body in bodies.items()
        ]
        (folder / "functions.s").write_text("".join(assembly))
        subprocess.run(["gcc", "-shared", "functions.s", "-o", "libloop.so"], cwd=folder, check=True)
        self.library = folder / "libloop.so"
        self.process = subprocess.Popen(
            [folder / "loop", self.library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line()

    def ns_per_call(self, name: str, calls: int) -> float:
        """Call `f_NAME` in a loop; returns the wall time of one call."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"f_{name} {calls}\n")
        self.process.stdin.flush()
        return int(self._line()) / calls

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@dataclass(frozen=True)
class Wall:
    """The median difference of a call with and without, in ns, and its interval of 95 %."""

    median_ns: float
    low_ns: float
    high_ns: float

    def __str__(self) -> str:
        return f"{self.median_ns:8.0f}  [{self.low_ns:.0f}, {self.high_ns:.0f}]"


def bootstrap(differences: Sequence[float]) -> Wall:
    """Return the median of the pairs' differences with a bootstrap interval."""
    values = np.array(differences)
    draws = np.random.default_rng(0).choice(values, (2000, len(values)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return Wall(float(np.median(values)), float(low), float(high))


def mark_of(name: str, *arguments: Argument, at_return: bool = False) -> Mark:
    """A mark of one function of the loop's library."""
    return Mark(MarkKind.DDP_FORWARD, f"f_{name}", arguments, at_return=at_return)


def attached(loop: Loop, marks: Sequence[Mark]) -> MarkProbe:
    """Attach marks to the loop. Raises Refused."""
    framework = Framework("loop", "libloop.so", tuple(marks))
    probe = MarkProbe([loop.process.pid], frameworks=[framework], ring_bytes=1 << 23)
    if probe.skipped:
        probe.close()
        raise Refused(probe.skipped[0].reason)
    return probe


def wall(loop: Loop, name: str, marks: Sequence[Mark], pairs: int, calls: int) -> Wall:
    """Measure with and without the probes in ABBA order. No marks: neither half has one, the A/A control."""

    def with_probe() -> float:
        if not marks:
            return loop.ns_per_call(name, calls)
        with attached(loop, marks) as probe:
            time_ns = loop.ns_per_call(name, calls)
            assert len(probe.drain()["marks"]["kind"]) == calls * len(marks), "some hits were not recorded"
        return time_ns

    def without() -> float:
        return loop.ns_per_call(name, calls)

    differences = []
    for pair in range(pairs):
        if pair % 2:
            a, b = without(), with_probe()
        else:
            b, a = with_probe(), without()
        differences.append(b - a)
    return bootstrap(differences)


def bpf_ns(loop: Loop, name: str, marks: Sequence[Mark]) -> float:
    """Return the kernel's own time of the program, per call."""
    with attached(loop, marks) as probe:
        loop.ns_per_call(name, 1000)
        probe.drain()
        with run_time_statistics():
            before_ns, _ = program_statistics(probe.objects[0].program_fd("mark"))
            loop.ns_per_call(name, CALLS)
            after_ns, _ = program_statistics(probe.objects[0].program_fd("mark"))
    return (after_ns - before_ns) / CALLS


def hit_table(loop: Loop, pairs: int) -> None:
    """Print what a call costs, by what the marks keep and where they are."""
    print(f"1. A call, {CALLS} calls a window, {pairs} pairs\n")
    print(f"{'marks keep':40}{'BPF ns':>8}   {'wall ns':>8}  [95 %]")
    print(f"{'A/A: no probe in either half':40}{'':>8}   {wall(loop, 'push_rbp', (), pairs, CALLS)}")
    time_alone, at_return = mark_of("push_rbp"), mark_of("push_rbp", at_return=True)
    two, fields = (Register(2), Register(1)), (MemoryField(1, 80, 8), MemoryField(1, 88, 8))
    three = (time_alone, mark_of("push_rbp", *two), mark_of("push_rbp", *fields))
    variants: dict[str, tuple[Mark, ...]] = {
        "time, process, thread": (time_alone,),
        "and two arguments": (three[1],),
        "and two fields behind a pointer": (three[2],),
        "these three of one entry": three,
        "the return": (at_return,),
        "entry and return": (time_alone, at_return),
        "the three of the entry, and the return": (*three, at_return),
    }
    for title, marks in variants.items():
        measured = wall(loop, "push_rbp", marks, pairs, CALLS)
        print(f"{title:40}{bpf_ns(loop, 'push_rbp', marks):8.0f}   {measured}", flush=True)


def instruction_table(loop: Loop, pairs: int) -> None:
    """Print what a hit costs, by first instruction, and what netprof takes it for."""
    print(f"\n2. First instruction, {SLOW_CALLS} calls a window, {pairs} pairs\n")
    print(f"{'instruction':16}{'taken for':>16}   {'wall ns':>8}  [95 %]")
    with open(loop.library, "rb") as file:
        symbols = find_functions(file.fileno(), [f"f_{name}" for name in FIRST_INSTRUCTIONS])
    for name in FIRST_INSTRUCTIONS:
        code = next(each.code for each in symbols.functions[f"f_{name}"] if each.name == f"f_{name}")
        entry = examine_entry(code, symbols.machine)
        taken = "emulated" if entry.emulated else f"like {entry.like}"
        try:
            measured = str(wall(loop, name, (mark_of(name),), pairs, SLOW_CALLS))
        except Refused as refused:
            measured = f" refused: {refused}"
        print(f"{name:16}{taken:>16}   {measured}", flush=True)


def attach_table(library: Path) -> None:
    """Print how long attaching and detaching take, for each way that the kernel has."""
    print("\n3. Attach and detach, process with", library.name, "loaded, ms (median of 5)\n")
    print(f"{'method':14}{'functions':>10}{'load':>8}{'attach':>8}{'2nd process':>12}{'drop':>8}{'close':>8}")
    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('ready', flush=True); input()"
    argv = [sys.executable, "-c", program, str(library)]
    jobs = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for job in jobs:
            assert job.stdout is not None
            if job.stdout.readline() != b"ready\n":
                raise SystemExit(f"{library} cannot be loaded into a process")
        for multi in (True, False):
            times = [attach_times([job.pid for job in jobs], multi) for _ in range(5)]
            method = "uprobe_multi" if multi else "perf events"
            functions = sum(len(framework.marks) for framework in FRAMEWORKS)
            values = [statistics.median(column) * 1e3 for column in zip(*times, strict=True)]
            print(f"{method:14}{functions:10}" + "{:8.1f}{:8.1f}{:12.1f}{:8.1f}{:8.1f}".format(*values))
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def attach_times(pids: Sequence[int], multi: bool) -> list[float]:
    """Return the seconds of loading, attaching to the first and the second process, dropping, and closing."""
    probe: list[MarkProbe] = []
    steps: list[Callable[[], object]] = [
        lambda: probe.append(MarkProbe(multi=multi)),
        lambda: probe[0].attach(pids[0]),
        lambda: probe[0].attach(pids[1]),
        lambda: probe[0].drop_sampled(),
        lambda: probe[0].close(),
    ]
    times = []
    for step in steps:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return times


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--library", type=Path, help="libtorch_cpu.so; default: that of the installed torch")
    options = parser.parse_args()
    print(f"kernel {platform.release()}, {platform.machine()}\n")
    with tempfile.TemporaryDirectory() as folder, Loop(Path(folder)) as loop:
        hit_table(loop, options.pairs)
        if platform.machine() == "x86_64":
            instruction_table(loop, max(10, options.pairs // 4))
    library = options.library or _torch_library()
    if library is None:
        print("\n3. skipped: torch is not installed; give --library")
    else:
        attach_table(library)


def _torch_library() -> Path | None:
    from importlib.util import find_spec

    spec = find_spec("torch")
    path = Path(spec.origin).parent / "lib" / "libtorch_cpu.so" if spec and spec.origin else None
    return path if path and path.exists() else None


if __name__ == "__main__":
    main()
