"""A folder that looks like /proc, for what cannot be started in a test: Slurm jobs, containers, many jobs at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FIRST_PID = 4_100_000
"""Below what the kernel numbers processes at most, and above what it is likely to have reached."""


class ProcTree:
    """Processes as files; `procfs` looks at them once `PROC` of it is `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._next = FIRST_PID
        (root / "self" / "task" / str(os.getpid())).mkdir(parents=True)
        (root / "self" / "task" / str(os.getpid()) / "children").touch()
        (root / "netns").touch()

    def process(
        self,
        command: str = "python train.py",
        parent: int = 1,
        *,
        torch: bool = False,
        connected: bool = False,
        environment: Mapping[str, str] | None = None,
        cgroup: str = "0::/user.slice/session-1.scope",
        name: str = "python",
        pid: int | None = None,
    ) -> int:
        """Add a process and return its pid; it began when the ones before had, unless it is given a `pid`."""
        if pid is None:
            pid, self._next = self._next, self._next + 1
        own = self.root / str(pid)
        (own / "task" / str(pid)).mkdir(parents=True)
        (own / "ns").mkdir()
        os.link(self.root / "netns", own / "ns" / "net")
        (own / "stat").write_text(f"{pid} ({name}) S {parent} 0 0 0 -1 0 {'0 ' * 12}{pid} 0\n")
        (own / "status").write_text(f"Name:\t{name}\nTgid:\t{pid}\n")
        (own / "environ").write_text("".join(f"{key}={value}\0" for key, value in (environment or {}).items()))
        (own / "cmdline").write_text("\0".join(command.split()) + "\0")
        (own / "maps").write_text("7f00-7f01 r-xp 0 08:01 1   /usr/lib/libtorch_cpu.so\n" if torch else "")
        (own / "cgroup").write_text(cgroup + "\n")
        (own / "task" / str(pid) / "children").touch()
        if parent >= FIRST_PID:
            with (self.root / str(parent) / "task" / str(parent) / "children").open("a") as children:
                children.write(f"{pid} ")
        self._connect(own, pid if connected else 0)
        return pid

    def _connect(self, own: Path, inode: int) -> None:
        (own / "fd").mkdir()
        (own / "net").mkdir()
        line = f" 0: 0100007F:0016 0100007F:0017 01 0 0 0 0 0 {inode} 1\n"
        (own / "net" / "tcp").write_text("header\n" + (line if inode else ""))
        if inode:
            (own / "fd" / "3").symlink_to(f"socket:[{inode}]")

    def torchrun(self, script: str, port: int, ranks: int = 2, run: str = "none", **options: object) -> list[int]:
        """Add a launcher, its ranks with a data loader each; return the pids of the ranks."""
        cgroup = str(options.get("cgroup", "0::/user.slice/session-1.scope"))
        more = dict(options.get("environment", {}))  # type: ignore[call-overload]
        agent = self.process(f"torchrun {script}", torch=True, connected=True, environment=more, cgroup=cgroup)
        found = []
        for rank in range(ranks):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "node0", "MASTER_PORT": port}
            own = more | {key: str(value) for key, value in place.items()} | {"TORCHELASTIC_RUN_ID": run}
            how: Any = {"torch": True, "environment": own, "cgroup": cgroup}
            found.append(self.process(f"python {script}", agent, connected=True, **how))
            self.process(f"python {script}", found[-1], name="pt_data_worker", **how)
        return found
