"""A real DDP job in miniature: runs as many iterations as each line of its standard input says, and logs each.

    tiny_ddp.py RANK WORLD_SIZE STORE_FILE

Prints one JSON line at the start (parameters, bytes of gradients) and one for each input line: the (begin, end) of
every iteration on CLOCK_MONOTONIC, in nanoseconds.
"""

import json
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS = 128, 6


def main() -> None:
    rank, world_size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.15)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    parameters = list(wrapped.parameters())
    gradient_bytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    print(json.dumps({"parameters": len(parameters), "gradient_bytes": gradient_bytes}), flush=True)
    for line in sys.stdin:
        log = []
        for _ in range(int(line)):
            begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            optimizer.zero_grad()
            wrapped(torch.randn(4, WIDTH)).sum().backward()
            optimizer.step()
            log.append((begin, time.clock_gettime_ns(time.CLOCK_MONOTONIC)))
        print(json.dumps(log), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
