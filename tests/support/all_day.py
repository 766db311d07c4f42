"""Netprof as a person starts it beside a job, for the tests of what runs all day."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def plain(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(list(command), **options)


@contextmanager
def netprof(*words: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run netprof until the block ends; then SIGINT, and it must end by itself."""
    command = [sys.executable, "-m", "netprof", *words]
    with (folder / "said").open("w") as said:
        found = subprocess.Popen(command, stdout=said, stderr=said, text=True, cwd=folder)
        try:
            yield found
            if found.poll() is None:
                found.send_signal(signal.SIGINT)
            found.wait(60)
        finally:
            found.kill()
            found.wait()


def until(what: Callable[[], Any], seconds: float, said: Path | None = None) -> Any:
    """Wait for something to be true, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := what():
                return found
        except OSError:
            pass
        assert time.monotonic() < deadline, said.read_text() if said else "too late"
        time.sleep(0.2)
