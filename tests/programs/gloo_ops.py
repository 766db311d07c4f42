"""One rank of two that calls every collective of gloo once, after a line on its input, and prints the calls as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

COUNT = 1000


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    print("training", flush=True)
    sys.stdin.readline()
    part, whole = torch.ones(COUNT), torch.ones(COUNT * size)
    parts = [torch.ones(COUNT) for _ in range(size)]
    one, all_of_it = 4 * COUNT, 4 * COUNT * size
    calls: list[tuple[Callable[[], object], str, int]] = [
        (lambda: dist.all_reduce(part), "ALL_REDUCE", one),
        (lambda: dist.all_reduce(torch.ones(COUNT, dtype=torch.bfloat16)), "ALL_REDUCE", 2 * COUNT),
        (lambda: dist.all_gather_into_tensor(whole, part), "ALL_GATHER", all_of_it),
        (lambda: dist.all_gather(parts, part), "ALL_GATHER", all_of_it),
        (lambda: dist.reduce_scatter_tensor(part, whole), "ALL_REDUCE", all_of_it),
        (lambda: dist.broadcast(part, 0), "BROADCAST", one),
        (lambda: dist.reduce(part, 0), "REDUCE", one),
        (lambda: dist.all_to_all_single(torch.empty(COUNT * size), whole), "ALL_TO_ALL", all_of_it),
        (lambda: dist.gather(part, parts if rank == 0 else None, 0), "GATHER", one),
        (lambda: dist.scatter(part, parts if rank == 0 else None, 0), "SCATTER", one),
    ]
    # Groups as gloo sees them: ranks, this one's number, and which context it is. The new ones are all ranks once more,
    # and each rank alone.
    again, alone = dist.new_group([0, 1]), [dist.new_group([each]) for each in range(size)][rank]
    groups = [(size, rank, 0)] * 2 * len(calls)
    for call, _, _ in calls:
        call()
        dist.barrier()
    calls += [(lambda: dist.all_reduce(part, group=again), "ALL_REDUCE", one)]
    calls += [(lambda: dist.all_reduce(part, group=alone), "ALL_REDUCE", one)]
    for call, _, _ in calls[-2:]:
        call()
    groups += [(size, rank, 1), (1, 0, 2), (size, rank, 0)]
    (dist.send(part, 1) if rank == 0 else dist.recv(part, 0))
    dist.barrier()
    posted = {"sent": [one], "received": []} if rank == 0 else {"sent": [], "received": [one]}
    said = {"collectives": [[kind, amount] for _, kind, amount in calls], "groups": groups}
    print(json.dumps(said | posted), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
