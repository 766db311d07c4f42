"""What one user's false jobs cost an exporter, and whether another user's job is recorded beside them. Needs root, gcc.

    python examples/benchmarks/exporter_budget.py [--jobs 500] [--seconds 60]

Processes of user nobody map a library that is called like NCCL's and name a rendezvous each. Half way, root starts a
job. Prints CPU, memory, threads and files of the exporter every five seconds, and compares their largest with what
examples/deploy/netprof-exporter.service allows.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import _places  # noqa: F401 - finds netprof

UNIT = Path(__file__).parents[1] / "deploy" / "netprof-exporter.service"
NOBODY = 65534
LIBRARY = "int ncclGroupStart(void) { return 0; }"
PROGRAM = "#include <unistd.h>\nint ncclGroupStart(void); int main(void) { ncclGroupStart(); sleep(600); return 0; }"
TICKS = 100
_HIGH_FROM_S = 15.0


def unit(name: str) -> float:
    """Return a limit of the unit: a share of a core, bytes, or a number."""
    found = re.search(rf"^{name}=(\d+)([%G]?)$", UNIT.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * {"%": 0.01, "G": float(1 << 30), "": 1.0}[found[2]]


@dataclass
class Use:
    """What an exporter uses at a time."""

    cpu_s: float
    resident_bytes: int
    threads: int
    files: int


@dataclass
class Exporting:
    """An exporter of jobs that run one program, and what it said."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def use(self) -> Use:
        """Return what it uses now."""
        own = Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":", 1) for line in (own / "status").read_text().splitlines())
        ticks = (own / "stat").read_text().rpartition(")")[2].split()[11:13]
        files = sum(1 for _ in (own / "fd").iterdir())
        return Use(sum(map(int, ticks)) / TICKS, int(status["VmRSS"].split()[0]) << 10, int(status["Threads"]), files)

    def get(self, path: str) -> str:
        """Return what it answers."""
        url = next(line for line in self.lines if line.startswith("metrics at ")).split()[2]
        with urllib.request.urlopen(url.replace("/metrics", path), timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def has_said(self, text: str, within_s: float = 0.0) -> bool:
        """Tell whether it says something in time."""
        until_s = time.monotonic() + within_s
        while not any(text in line for line in self.lines):
            if time.monotonic() >= until_s:
                return False
            time.sleep(0.05)
        return True


def program(folder: Path) -> Path:
    """Compile a program that looks as if it used NCCL."""
    folder.chmod(0o755)
    library, out = folder / "libnccl.so.2", folder / "false-job"
    for words, source in (
        (["-shared", "-fPIC", "-o", str(library)], LIBRARY),
        (["-o", str(out), "-x", "none", str(library), f"-Wl,-rpath,{folder}"], PROGRAM),
    ):
        order = ["gcc", *words[:2], "-x", "c", "-", *words[2:]]
        subprocess.run(order, input=source, text=True, check=True)
    return out


@contextmanager
def exporting(which: Path) -> Iterator[Exporting]:
    """Run an exporter that records jobs of one program."""
    words = [sys.executable, "-m", "netprof", "exporter", "--metrics", "127.0.0.1:0", "--name", str(which)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        found = Exporting(process)
        assert process.stderr is not None
        stderr = process.stderr
        threading.Thread(target=lambda: found.lines.extend(stderr), daemon=True).start()
        try:
            yield found
        finally:
            process.terminate()
            process.wait(60)


def started(which: Path, port: int, user: int) -> subprocess.Popen[bytes]:
    """Start a job of one rank."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    return subprocess.Popen([str(which)], env=place, user=user, group=user)


def main() -> None:
    """Print what happens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=60)
    asked = parser.parse_args()
    with ExitStack() as stack:
        which = program(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        exporter = stack.enter_context(exporting(which))
        exporter.has_said("metrics at", 30)
        jobs = [started(which, port, NOBODY) for port in range(asked.jobs)]
        for job in jobs:
            stack.callback(job.kill)
        began_s, last, real = time.monotonic(), exporter.use(), None
        cpus, at_s = list[float](), began_s
        largest = Use(0.0, 0, 0, 0)
        while (passed_s := time.monotonic() - began_s) < asked.seconds:
            time.sleep(5)
            now = exporter.use()
            cpu = (now.cpu_s - last.cpu_s) / (time.monotonic() - at_s)
            at_s = time.monotonic()
            if passed_s >= _HIGH_FROM_S:
                cpus.append(cpu)
            last = now
            names = ("resident_bytes", "threads", "files")
            largest = Use(0.0, *(max(getattr(largest, name), getattr(now, name)) for name in names))
            print(f"{passed_s + 5:4.0f} s: {cpu:.0%} of a core, {now.resident_bytes >> 20} MiB, {now.threads} threads, "
                  f"{now.files} files", flush=True)  # fmt: skip
            if real is None and passed_s > asked.seconds / 2:
                real = started(which, 40_000, 0)
                stack.callback(real.kill)
                real_s = time.monotonic()
                taken = exporter.has_said(f"recording false-job: rank 0 (pid {real.pid})", 30)
                print(f"root's job is recorded: {taken}, after {time.monotonic() - real_s:.1f} s")
        print("\n".join(line for line in exporter.get("/metrics").splitlines() if line.startswith("netprof_jobs")))
        print(exporter.get("/healthz"))
        print(f"CPU: {sum(cpus) / len(cpus):.0%} of a core; the unit allows {unit('CPUQuota'):.0%}")
        print(f"memory: {largest.resident_bytes >> 20} MiB; the unit allows {int(unit('MemoryMax')) >> 20} MiB")
        print(f"threads: {largest.threads}; the unit allows {unit('TasksMax'):.0f}")
        print(f"files: {largest.files}; the unit allows {unit('LimitNOFILE'):.0f}")


if __name__ == "__main__":
    main()
