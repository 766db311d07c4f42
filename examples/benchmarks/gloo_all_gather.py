"""How long an all-gather of gloo takes against its bytes' own time on the wire. Needs root. Prints a table.

Among two ranks it takes half as long again: `netprof whatif` counts with that where it predicts all-gathers (top-k
gradients) for a job in which none was recorded (`analysis/whatif/transports.py`). Small ones take less here: the token
bucket that stands for a link lets the first 16 kB pass at once. Ranks sleep 20 ms between.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

import _places  # noqa: F401
from lab import Lab

CASES = (
    *((2, "1gbit", 5.0), (3, "1gbit", 5.0), (2, "100mbit", 2.0), (3, "100mbit", 2.0), (4, "100mbit", 2.0)),
    *((2, "100mbit", 0.42), (2, "100mbit", 0.05)),
)
"""Ranks, rate, and MB that each gives."""
ROUNDS, WARM_UP = 32, 8
HEADERS = 1514 / 1448
BITS = {"1gbit": 1e9, "100mbit": 1e8}


def gather(size_bytes: int) -> float:
    """Return the median seconds of some all-gathers; runs in each rank."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    own = torch.randn(size_bytes // 4)
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    found = []
    for _ in range(ROUNDS):
        time.sleep(0.02)
        begin = time.perf_counter()
        dist.all_gather(every, own)
        found.append(time.perf_counter() - begin)
    dist.barrier()
    dist.destroy_process_group()
    return statistics.median(found[WARM_UP:])


def measured_s(ranks: int, rate: str, size_bytes: int) -> float:
    """Return what the slowest of so many ranks takes, a host each."""
    with Lab(ranks, rate=rate) as lab:
        place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": lab[0].ipv4, "MASTER_PORT": "29500"}
        processes = [
            host.popen(
                [sys.executable, __file__, str(size_bytes)],
                env={**os.environ, **place, "RANK": str(rank), "GLOO_SOCKET_IFNAME": host.device},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank, host in enumerate(lab)
        ]
        return max(float(json.loads(process.communicate(timeout=120)[0])) for process in processes)


def main() -> None:
    """Print one line a case."""
    print(f"{'ranks':>5}{'rate':>9}{'each gives':>12}{'its bytes alone':>17}{'measured':>11}{'ratio':>7}")
    for ranks, rate, size_mb in CASES:
        own_s = (ranks - 1) * size_mb * 1e6 * HEADERS * 8 / BITS[rate]
        found_s = measured_s(ranks, rate, int(size_mb * 1e6))
        print(
            f"{ranks:>5}{rate:>9}{size_mb:>9.2f} MB{own_s * 1e3:>14.1f} ms{found_s * 1e3:>8.1f} ms"
            f"{found_s / own_s:>7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(gather(int(sys.argv[1])))
    else:
        main()
