"""What it costs to follow a job of many hosts live, and how soon a rank is named that comes to be late.

    python examples/benchmarks/live_hosts.py [--hosts 8] [--ranks 64] [--seconds 20] [--onset 7.0 7.3 ...]

Recorders' traces are written as they would be, half a second at a time; after each the view looks and draws. What is
read again would show as bytes read that grow with the recording. How often the view concludes depends on what that
costs: its clock is the job's here, so that half a second has passed for it, however long writing took. Of the first
onset a line is printed for every second.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from unittest import mock

import _places  # noqa: F401 - finds what follows
from _speed import say_speed
from support.growing_hosts import GrowingHosts
from support.synthetic import ITERATION_NS, MS, START_NS, Job, with_late_rank

from netprof.analysis.live import budget
from netprof.session.live_job import JobSource
from netprof.views.live.draw import draw
from netprof.views.live.view_state import ViewState

_LOOKS = 2
_EVERY_S = 0.5
_ONSETS = (7.0, 7.3, 7.6, 7.9, 8.2)
_S = 10**9


class JobTime:
    """The clock that the view's budgets ask: `now_s` of the job, and the CPU time of this thread."""

    now_s = 0.0
    thread_time = staticmethod(time.thread_time)

    def monotonic(self) -> float:
        return self.now_s


def bytes_read() -> int:
    """Return what this process has read from files so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def main() -> None:
    """Print how soon a rank is named, for each onset."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--late", type=int, default=50, help="the rank that comes to be late")
    parser.add_argument("--onset", type=float, nargs="+", default=_ONSETS, help="from when on, in seconds")
    args = parser.parse_args()
    say_speed()
    iterations = args.seconds * _S // ITERATION_NS
    for number, onset_s in enumerate(args.onset):
        job = Job(ranks=args.ranks, world_size=args.ranks, iterations=iterations).fill()
        with tempfile.TemporaryDirectory() as folder:
            since = round(onset_s * _S / ITERATION_NS)
            made = GrowingHosts(Path(folder), with_late_rank(job, args.late, 45 * MS, since=since), args.hosts)
            with mock.patch.object(budget, "time", JobTime()) as clock:
                began_s = time.process_time()
                named_s = follow(made, args.seconds, clock, shows=number == 0)
        cpu = f"{(time.process_time() - began_s) / args.seconds:.2f} s of CPU time a second, writing included"
        said = "never named" if named_s is None else f"named {named_s - onset_s:.1f} s after it came to be late"
        print(f"onset {onset_s} s: {said}; {cpu}", flush=True)


def follow(made: GrowingHosts, seconds: int, clock: JobTime, *, shows: bool) -> float | None:
    """Let the traces grow, and look; returns when a rank was named, in seconds."""
    made.start()
    source, named_s = JobSource(lambda: made.paths), None
    if shows:
        print("second  new rows     read   CPU of a look and a drawing   memory  named")
    rows = len(made.job.wire) + len(made.job.marks)
    for second in range(1, seconds + 1):
        read, costs = bytes_read(), []
        for part in range(_LOOKS):
            clock.now_s = second - 1 + (part + 1) * _EVERY_S
            made.grow(START_NS + round(clock.now_s * _S))
            before = time.process_time()
            recent = source.look()
            draw(recent, ViewState("following a job"), 80, 24)
            costs.append(time.process_time() - before)
            if recent.stragglers and named_s is None:
                named_s = clock.now_s
        named = ", ".join(each.who.label for each in recent.stragglers)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        shown = " ".join(f"{cost * 1e3:5.0f}" for cost in costs)
        read_mb = (bytes_read() - read) / 1e6
        if shows:
            print(f"{second:6} {rows // seconds:9} {read_mb:5.1f} MB   {shown} ms   {memory:5} MiB  {named}")
    return named_s


if __name__ == "__main__":
    main()
