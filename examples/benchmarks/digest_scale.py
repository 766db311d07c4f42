"""How `netprof report` of digests grows with the hosts: size, time, CPU time, and memory.

The digest is that of a recorded host, or of one that is made up; each of the hosts has the same rows, and ranks of its
own (`many_digests.py`).

    python examples/benchmarks/digest_scale.py [--trace TRACE] [--hosts 10,30,100] [--bin 10ms]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from _places import NETPROF
from _speed import say_speed
from many_digests import multiply
from support.synthetic import MS, Job, with_late_rank

COMMAND = [NETPROF]

_HEADINGS = f"{'hosts':>6} {'MB':>6} {'seconds':>8} {'CPU s':>7} {'CPU ms/host':>12} {'driver MB':>10} {'all MB':>7}"


@dataclass
class Cost:
    """What a command took: seconds, and the most bytes of its own and of all its processes."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    driver_bytes: int = 0
    all_bytes: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=None, help="a recorded host of several ranks")
    parser.add_argument("--hosts", default="10,30,100", help="comma-separated")
    parser.add_argument("--bin", default=None, help="bins of the digests")
    parser.add_argument("--directory", type=Path, default=None, help="where to make the digests")
    options = parser.parse_args()
    say_speed()
    place = Path(tempfile.mkdtemp(prefix="netprof-digests-", dir=options.directory))
    try:
        host = digest_of(options.trace or made_trace(place), place, options.bin)
        print(_HEADINGS)
        for hosts in (int(text) for text in options.hosts.split(",")):
            measure(host, place / str(hosts), hosts)
    finally:
        shutil.rmtree(place)


def made_trace(place: Path) -> Path:
    """Write a trace of two ranks, of which one is late now and then."""
    return with_late_rank(Job(iterations=400).fill(), 1, 40 * MS, since=50).write(place / "made.netprof")


def digest_of(trace: Path, place: Path, wider: str | None) -> Path:
    words = ["digest", str(trace), "-o", str(place / "one"), *(["--bin", wider] if wider else [])]
    subprocess.run([*COMMAND, *words], check=True, stderr=subprocess.DEVNULL)
    (meta,) = (place / "one").glob("*/*/meta.json")
    return meta.parent


def measure(source: Path, place: Path, hosts: int) -> None:
    """Make the digests, report them in a process of its own, print one line of the table."""
    multiply(source, place, hosts)
    size_bytes = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    cost = run([*COMMAND, "report", str(place), "--json"])
    shutil.rmtree(place)
    each_ms = cost.cpu_s * 1e3 / hosts
    print(
        f"{hosts:6d} {size_bytes / 1e6:6.0f} {cost.seconds:8.1f} {cost.cpu_s:7.1f} {each_ms:12.1f}"
        f" {cost.driver_bytes / 1e6:10.0f} {cost.all_bytes / 1e6:7.0f}",
        flush=True,
    )


def run(command: list[str]) -> Cost:
    """Run a command, and return what it and its processes took."""
    cost, begin = Cost(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    threading.Thread(target=_watch, args=(process.pid, cost), daemon=True).start()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command[:4])} failed with status {status}")
    cost.seconds, cost.cpu_s = time.perf_counter() - begin, usage.ru_utime + usage.ru_stime
    cost.driver_bytes = max(cost.driver_bytes, usage.ru_maxrss * 1024 if cost.driver_bytes == 0 else 0)
    return cost


def _watch(pid: int, cost: Cost) -> None:
    with suppress(psutil.Error):
        driver = psutil.Process(pid)
        while True:
            own, others = driver.memory_info().rss, 0
            for child in driver.children(recursive=True):
                with suppress(psutil.Error):
                    others += child.memory_info().rss
            cost.driver_bytes, cost.all_bytes = max(cost.driver_bytes, own), max(cost.all_bytes, own + others)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
