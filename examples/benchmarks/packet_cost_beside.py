"""What the flow probe costs a packet, beside another checkout's: in turn, on the same connection. Needs root and clang.

    python examples/benchmarks/packet_cost_beside.py OTHER_CHECKOUT [--pairs 60]

Both checkouts have to be compiled (`make inplace`). One TCP connection between two namespaces, offloads off. A process
of each checkout attaches its probe for a window, and reads the kernel's own run time of its programs over that of a
program that does nothing; neighbouring windows in ABBA order. The last row is this checkout beside itself.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import _places  # noqa: F401 - finds lab
import numpy as np
from _pairs import abba, summarize
from lab import Lab
from packet_cost import NOTHING, attached, parts_object, start_traffic

from netprof.probes.kernel import loader

OWN = Path(__file__).resolve().parents[2]
WINDOW_S = 0.5
PROGRAMS = ("packet_sent", "packet_received")


def answer(pids: list[int]) -> None:
    """Measure once for each line of stdin: ns per packet sent, and per packet received."""
    with ExitStack() as stack:
        parts = stack.enter_context(parts_object(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        print(Path(loader.__file__).resolve(), flush=True)
        for _ in sys.stdin:
            links = [parts.attach(program) for program in NOTHING]
            with attached(pids) as probe:
                programs = [(probe.objects[0], name) for name in PROGRAMS] + [(parts, name) for name in NOTHING]
                before = [loader.program_statistics(owner.program_fd(name)) for owner, name in programs]
                with loader.run_time_statistics():
                    time.sleep(WINDOW_S)
                after = [loader.program_statistics(owner.program_fd(name)) for owner, name in programs]
            for link in links:
                link.close()
            sent, received, *nothing = [(b[0] - a[0]) / max(b[1] - a[1], 1) for a, b in zip(before, after, strict=True)]
            print(sent - nothing[0], received - nothing[1], flush=True)


class Measured:
    """A process of a checkout that measures when asked."""

    def __init__(self, checkout: Path, pids: list[int]) -> None:
        path = f"{checkout}:{OWN}/examples:{OWN}/examples/benchmarks"
        command = [sys.executable, __file__, "--of", ",".join(map(str, pids))]
        environment = {**os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert Path(self._line().strip()).is_relative_to(checkout)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line: str = self._process.stdout.readline()
        if not line:
            raise SystemExit("a checkout could not be measured (its own words are above)")
        return line

    def take(self) -> tuple[float, float]:
        """Return what a packet sent and a packet received cost in one window, ns."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        sent, received = map(float, self._line().split())
        return sent, received

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Print what each costs, and the difference of neighbours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", nargs="?", type=Path)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.of:
        answer([int(pid) for pid in options.of.split(",")])
        return
    if options.other is None:
        parser.error("beside which checkout?")
    with Lab(offloads=False) as lab:
        pids = start_traffic(lab)
        for name, other in (("beside", options.other.resolve()), ("control", OWN)):
            one, two = Measured(OWN, pids), Measured(other, pids)
            taken = []
            for order in abba(options.pairs):
                values = {is_own: (one if is_own else two).take() for is_own in order}
                taken.append((values[True], values[False]))
            one.close()
            two.close()
            for place, way in enumerate(("sent", "received")):
                own, others = (np.array([pair[side][place] for pair in taken]) for side in (0, 1))
                medians = f"{np.median(own):.0f} ns, other {np.median(others):.0f} ns"
                print(f"{name:8} {way:9} {medians}; difference {summarize(own - others)} ns", flush=True)


if __name__ == "__main__":
    main()
