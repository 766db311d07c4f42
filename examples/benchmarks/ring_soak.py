"""A ring for long: memory and disk of a recorder that keeps one minute, once a minute.

    python examples/benchmarks/ring_soak.py [--minutes 60] [--keep 1m]

A real job trains on loopback; at the end the recorder is killed, and the ring must open. Needs root.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from _places import NETPROF
from all_day_cost import cpu_s, free_port, scrape, started, values

from netprof.analysis import analyze
from netprof.trace.ring import RingReader


def memory_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1e3


def disk_mb(folder: Path) -> float:
    """Return the size of all files; the recorder may remove some meanwhile."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(path) / name).stat().st_size
    return total / 1e6


def main() -> None:
    """Print a line a minute, and what became of the ring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--keep", default="1m")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        job, ring = started(2, folder), folder / "t.netprof"
        words = ["attach", str(job[0].pid), "--no-live", "-o", str(ring), "--keep", args.keep]
        recorder = subprocess.Popen([NETPROF, *words, "--metrics", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        began_s = time.monotonic()
        try:
            print("minute  memory MB  disk MB  CPU s  files  steps")
            while time.monotonic() - began_s < args.minutes * 60 and recorder.poll() is None:
                time.sleep(60)
                files = len(list(Path(f"/proc/{recorder.pid}/fd").iterdir()))
                steps = values(scrape(port)[1]).get("netprof_steps_total", 0)
                print(
                    f"{(time.monotonic() - began_s) / 60:6.1f}  {memory_mb(recorder.pid):9.1f}  {disk_mb(ring):7.2f}"
                    f"  {cpu_s(recorder.pid):5.1f}  {files:5}  {steps:.0f}",
                    flush=True,
                )
        finally:
            recorder.kill()
            recorder.wait()
            for each in job:
                each.kill()
        reader = RingReader(ring)
        rows = reader.table("wire")["bin_start_ns"].to_numpy()
        held_s = (int(rows.max()) - reader.meta.started_ns) / 1e9
        print(f"killed: the ring opens and holds {held_s:.0f} s, {len(analyze(reader).evidence.iterations)} steps")


if __name__ == "__main__":
    main()
