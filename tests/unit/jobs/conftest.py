"""Trees of processes that are started, and ended afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.process_trees import PROGRAM, Pids, Start, Tree, count

from netprof.probes.job import procfs

_ports = iter(range(40_000, 50_000))


@pytest.fixture
def port() -> int:
    return next(_ports)


@pytest.fixture
def start() -> Iterator[Start]:
    """Start trees of processes, return {label: pid} once all of them are ready; kill everything afterwards."""
    pids: list[int] = []
    roots: list[subprocess.Popen[bytes]] = []

    def start_tree(tree: Tree, prefix: tuple[str, ...] = ()) -> Pids:
        reader, writer = os.pipe()
        clean = {name: value for name, value in os.environ.items() if "RANK" not in name and "SLURM" not in name}
        environment = {**clean, **tree.get("environment", {})}
        command = [*prefix, sys.executable, str(PROGRAM), json.dumps(tree), str(writer)]
        roots.append(subprocess.Popen(command, env=environment, pass_fds=[writer]))
        os.close(writer)
        with open(reader) as lines:
            words = [lines.readline().split() for _ in range(count(tree))]
        found = {label: int(pid) for label, pid in words}
        pids.extend(found.values())
        return found

    yield start_tree
    for pid in pids:
        if procfs.command_line(pid).find(PROGRAM.name) >= 0:
            os.kill(pid, signal.SIGKILL)
    for root in roots:
        root.kill()
        root.wait()
