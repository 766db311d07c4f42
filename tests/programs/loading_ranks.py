"""A rank for torchrun to start: it joins the others over gloo, gets a batch from a data loader's process, and waits."""

import os
import time

import torch
import torch.distributed
from torch.utils.data import DataLoader


class Numbers:
    """Endless, and slow enough for its worker to stay."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.05)
        return torch.tensor(index)


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    batches = iter(DataLoader(Numbers(), num_workers=1))
    next(batches)
    os.write(1, f"ready {torch.distributed.get_rank()} {os.getpid()}\n".encode())  # whole: the other rank writes too
    time.sleep(120)
