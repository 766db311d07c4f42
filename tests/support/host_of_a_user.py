"""A user of its own stands for a host: a netprof from whom other users' processes are hidden sees only what runs there.

So tests find the jobs that they start, and none of those that run beside them on the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_READ = "dac_read_search"  # Python and netprof may lie in a folder that only root may read
_RECORD = ("bpf", "perfmon", _READ)
_FIRST_UID = 61_000


class UserHost:
    """Starts programs as one user; what still runs is killed when the block ends. Needs root."""

    def __init__(self, number: int, folder: Path) -> None:
        self.uid = _FIRST_UID + 2 * (os.getpid() % 1000) + number
        self.folder = folder
        self._started: list[subprocess.Popen[Any]] = []
        folder.mkdir(exist_ok=True)
        os.chown(folder, self.uid, self.uid)

    def command(self, argv: Sequence[str], capabilities: Sequence[str] = (_READ,)) -> list[str]:
        """Return a command that runs as the user, and sees no process of another one."""
        chosen = "-all," + ",".join(f"+{name}" for name in capabilities)
        alone = ["unshare", "--mount", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh"]
        user = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        return [*alone, *user, f"--inh-caps={chosen}", f"--ambient-caps={chosen}", "--", *argv]

    def start(self, *argv: str, **environment: str) -> subprocess.Popen[str]:
        """Start a Python program that says when it is ready; its output is a pipe."""
        silent = {name: value for name, value in os.environ.items() if "RANK" not in name and "MASTER" not in name}
        process = subprocess.Popen(
            self.command([sys.executable, *argv]),
            env=silent | {"OMP_NUM_THREADS": "1", "HOME": str(self.folder)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self.folder,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def netprof(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run netprof as the user, with the rights to record."""
        command = self.command([sys.executable, "-m", "netprof", *words], _RECORD)
        environment = os.environ | {"HOME": str(self.folder)}
        return subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False
        )

    def stop(self) -> None:
        """Kill what still runs: of this user there is nothing else."""
        for process in self._started:
            process.kill()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _owner(entry) == self.uid:
                _kill(int(entry.name))
        for process in self._started:
            process.communicate()


@contextmanager
def user_host(folder: Path, number: int = 0) -> Iterator[UserHost]:
    """Give a host for the block."""
    host = UserHost(number, folder)
    try:
        yield host
    finally:
        host.stop()


def _owner(entry: Path) -> int:
    try:
        return entry.stat().st_uid
    except OSError:
        return -1


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return
