"""examples/train.py under torch.profiler, which writes what it saw of a rank beside its log: LOG.json."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import train


def main() -> None:
    args = train.parse_args()
    torch.set_num_threads(args.threads)
    train.connect(args)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        train.train(args, None)
    profile.export_chrome_trace(f"{args.log}.json")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
