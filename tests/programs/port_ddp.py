"""A real DDP job whose gradients pass no socket: ranks average them in a file that all map, and beside it each rank's
RDMA port, a scripted one, counts as if they had gone over it: as long as that takes, and no faster than it is.

    port_ddp.py --log FILE --root SYSFS --gbit 2 --megabytes 24 [--congested] [--no-port]

`SYSFS` is made by rdma_tree.py, with the ports mlx5_0 and so on, one a rank.
"""

import argparse
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CHUNK, WIDTH = 1 << 16, 1024
MOST_BUCKETS = 64


class ScriptedPort:
    """Counters of a port of sysfs, and the time that bytes take on it."""

    def __init__(self, folder: Path, bps: float, congested: bool) -> None:
        self.bps, self.congested = bps, congested
        self.lock = threading.Lock()
        names = ("counters/port_xmit_data", "counters/port_rcv_data", "hw_counters/rp_cnp_handled")
        self.files = {name: os.open(folder / name, os.O_WRONLY) for name in names}
        self.values = dict.fromkeys(self.files, 0)

    def move(self, size: int) -> None:
        """Send and receive so many bytes."""
        with self.lock:
            begin, done = time.monotonic(), 0
            while done < size:
                part = min(CHUNK, size - done)
                done += part
                time.sleep(max(0.0, begin + done * 8 / self.bps - time.monotonic()))
                self.count("counters/port_xmit_data", part // 4)
                self.count("counters/port_rcv_data", part // 4)
                if self.congested:
                    self.count("hw_counters/rp_cnp_handled", 3)

    def count(self, name: str, amount: int) -> None:
        self.values[name] += amount
        os.pwrite(self.files[name], b"%020d\n" % self.values[name], 0)


class Nowhere:
    """A way that nothing watches, as long as the port's."""

    def __init__(self, bps: float) -> None:
        self.bps, self.lock = bps, threading.Lock()

    def move(self, size: int) -> None:
        with self.lock:
            time.sleep(size * 8 / self.bps)


class Exchange:
    """Averages buckets. Who writes a bucket of step k + 2 has seen every rank write it in step k + 1."""

    def __init__(self, path: Path, size: int, way: Any) -> None:
        self.rank, self.ranks, self.way = dist.get_rank(), dist.get_world_size(), way
        if self.rank == 0:
            with path.open("wb") as file:
                file.truncate(self.ranks * (size * 8 + MOST_BUCKETS * 8))
        dist.barrier()
        self.steps = np.memmap(path, np.int64, "r+", 0, (self.ranks, MOST_BUCKETS))
        self.values = np.memmap(path, np.float32, "r+", self.steps.nbytes, (self.ranks, 2, size))
        self.step, self.offset = 0, 0

    def hook(self, state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            self.step, self.offset = self.step + 1, 0
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        where = slice(self.offset, self.offset + bucket.buffer().numel())
        self.offset = where.stop
        work = (bucket.buffer(), self.step, bucket.index(), where, future)
        threading.Thread(target=self.exchange, args=work, daemon=True).start()
        return future

    def exchange(self, buffer: Any, step: int, index: int, where: slice, future: Any) -> None:
        place = self.values[:, step % 2, where]
        place[self.rank] = buffer.numpy()
        self.way.move(buffer.nbytes * 2 * (self.ranks - 1) // self.ranks)
        self.steps[self.rank, index] = step
        while (self.steps[:, index] < step).any():
            time.sleep(0.0005)
        buffer.copy_(torch.from_numpy(place.mean(0)))
        future.set_result(buffer)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--gbit", type=float)
    parser.add_argument("--megabytes", type=int)
    parser.add_argument("--congested", action="store_true")
    parser.add_argument("--no-port", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if args.no_port:
        way: Any = Nowhere(args.gbit * 1e9)
    else:
        opened = os.open(args.root / "dev" / "infiniband" / f"uverbs{rank}", os.O_RDONLY)
        assert opened >= 0  # and stays open as long as the job runs
        folder = args.root / "class" / "infiniband" / f"mlx5_{rank}" / "ports" / "1"
        way = ScriptedPort(folder, args.gbit * 1e9, args.congested)
    layers = max(1, round(args.megabytes * 1e6 / 4 / WIDTH**2))
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    wrapped = DistributedDataParallel(model, bucket_cap_mb=8)
    exchange = Exchange(args.log.parent / "shared", layers * WIDTH**2, way)
    wrapped.register_comm_hook(None, exchange.hook)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=1e-4)
    print(f"training {layers * WIDTH**2 * 4} bytes of gradients", flush=True)
    while True:
        optimizer.zero_grad()
        wrapped(torch.randn(8, WIDTH)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
