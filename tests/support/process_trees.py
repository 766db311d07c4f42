"""Trees of real processes that look like those of a job, and what they are started with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[1] / "programs" / "process_tree.py"


HOST = f"node0-{os.getpid()}"  # so that other runs of these tests are other jobs


Tree = dict[str, Any]


Pids = dict[str, int]


Start = Callable[..., Pids]


def node(label: str, *children: Tree, **options: Any) -> Tree:
    return {"label": label, "children": children, **options}


def rank(number: int, port: int, *children: Tree, address: str = HOST, **more: str) -> Tree:
    environment = {
        "RANK": str(number),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(number),
        **rendezvous(port, address),
        **more,
    }
    return node(f"rank{number}", *children, torch=True, environment=environment)


def rendezvous(port: int, address: str = HOST) -> dict[str, str]:
    return {"MASTER_ADDR": address, "MASTER_PORT": str(port)}


def count(tree: Tree) -> int:
    return 1 + sum(count(child) for child in tree["children"])


def torchrun(port: int) -> Tree:
    loader = node("loader", fork=True)
    return node(
        "torchrun", rank(0, port, loader, TORCHELASTIC_RUN_ID="7"), rank(1, port, TORCHELASTIC_RUN_ID="7"), torch=True
    )


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for a condition that is on its way."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)
