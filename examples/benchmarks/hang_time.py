"""How long `netprof attach PID...` takes to report a job that already hangs. Needs root and torch.

    python examples/benchmarks/hang_time.py [--times 3]

A DDP job of two ranks trains, then its last rank sleeps before a forward pass; five seconds later netprof is attached,
and the live view's state is looked at every 50 ms until it tells of the hang. Printed are the seconds from the start of
the command, the sentence, since when nothing moved beside the job's own log of that, and each rank's line.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _places import NETPROF

from netprof.analysis.findings.stalls.hang import Hang
from netprof.errors import NetprofError
from netprof.session.live_follow import FollowedTraceSource

_HANGS_S, _STEPS, _PORT = 5.0, 20, 29671


def train(log: Path) -> None:
    """Be one rank."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024))
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(32, 1024)
    for step in range(_STEPS + 1):
        if step == _STEPS and dist.get_rank() == dist.get_world_size() - 1:
            (log / "hangs").write_text(str(time.monotonic_ns()))
            time.sleep(300)
        model(x).sum().backward()
        optimizer.step()


def measure(folder: Path, options: list[str]) -> tuple[float, Hang | None, float]:
    """Return after how long a hang was told, which, and how long before its end the job fell silent by its log, s."""
    place = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_PORT)}
    command = [sys.executable, __file__, "--train", str(folder)]
    ranks = [subprocess.Popen(command, env=place | {"RANK": str(rank)}) for rank in range(2)]
    recorder: subprocess.Popen[bytes] | None = None
    try:
        while not (folder / "hangs").exists():
            time.sleep(0.05)
        time.sleep(_HANGS_S)
        trace = folder / "t.netprof"
        attach = [NETPROF, "attach", *(str(rank.pid) for rank in ranks), "--no-live"]
        begin_s = time.monotonic()
        quiet = subprocess.DEVNULL
        recorder = subprocess.Popen([*attach, "--out", str(trace), *options], stdout=quiet, stderr=quiet)
        source: FollowedTraceSource | None = None
        while time.monotonic() - begin_s < 20:
            time.sleep(0.05)
            try:
                source = source or FollowedTraceSource(trace)
                found = source.look().hang
            except NetprofError:
                continue
            if found is not None:
                silent_ns = found.since_ns + found.for_ns - int((folder / "hangs").read_text())
                return time.monotonic() - begin_s, found, silent_ns / 1e9
        return time.monotonic() - begin_s, None, 0.0
    finally:
        if recorder is not None:
            recorder.send_signal(signal.SIGINT)
            recorder.wait(30)
        for rank in ranks:
            rank.kill()
            rank.wait()


def main() -> int:
    """Measure, and print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--stacks", action="store_true", help="with --stacks")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train is not None:
        train(args.train)
        return 0
    for _ in range(args.times):
        with tempfile.TemporaryDirectory() as folder:
            seconds, found, silent_s = measure(Path(folder), ["--stacks"] if args.stacks else [])
        if found is None:
            print(f"not told within {seconds:.1f} s")
            continue
        print(f"told after {seconds:.2f} s: {found.sentence} (by the job's log for {silent_s:.2f} s)")
        for each in found.ranks:
            print(f"  {each.name}: {each.does}; {each.outstanding or 'nothing outstanding'}")
        print(f"  {found.advice}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
