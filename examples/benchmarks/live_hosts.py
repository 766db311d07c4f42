"""What it costs to follow a job of many hosts live: CPU time and bytes read a look, while the traces grow.

    python examples/benchmarks/live_hosts.py [--hosts 8] [--ranks 64] [--seconds 20]

Recorders' traces are written as they would be, a second at a time; after each second the view looks four times and
draws. What is read again would show as bytes read that grow with the recording.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import _places  # noqa: F401 - finds what follows
from _speed import say_speed
from growing_hosts import GrowingHosts
from synthetic import ITERATION_NS, MS, START_NS, Job, with_late_rank

from netprof.session.live_job import JobSource
from netprof.views.live.draw import draw
from netprof.views.live.state import ViewState

_LOOKS = 4
_S = 10**9


def bytes_read() -> int:
    """Return what this process has read from files so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def main() -> None:
    """Print a line for every second."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--late", type=int, default=50, help="the rank that is late in each step")
    args = parser.parse_args()
    say_speed()
    iterations = args.seconds * _S // ITERATION_NS
    job = Job(ranks=args.ranks, world_size=args.ranks, iterations=iterations).fill()
    with tempfile.TemporaryDirectory() as folder:
        made = GrowingHosts(Path(folder), with_late_rank(job, args.late, 45 * MS), args.hosts)
        follow(made, args.seconds)


def follow(made: GrowingHosts, seconds: int) -> None:
    """Let the traces grow, and look."""
    made.start()
    source = JobSource(lambda: made.paths)
    print("second  new rows     read   CPU of a look and a drawing   memory  named")
    rows = len(made.job.wire) + len(made.job.marks)
    for second in range(1, seconds + 1):
        made.grow(START_NS + second * _S)
        before, read, costs = time.process_time(), bytes_read(), []
        for _ in range(_LOOKS):
            before = time.process_time()
            recent = source.look()
            draw(recent, ViewState("following a job"), 80, 24)
            costs.append(time.process_time() - before)
        named = ", ".join(each.who.label for each in recent.stragglers)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        shown = " ".join(f"{cost * 1e3:5.0f}" for cost in costs)
        read_mb = (bytes_read() - read) / 1e6
        print(f"{second:6} {rows // seconds:9} {read_mb:5.1f} MB   {shown} ms   {memory:5} MiB  {named}")


if __name__ == "__main__":
    main()
