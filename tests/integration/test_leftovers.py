"""What netprof leaves in a temporary folder when it is ended: nothing, by whatever signal but KILL."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.synthetic import Job

SIGNALS = ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "ALRM", "XCPU", "ABRT", "IO", "RTMIN"]


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes a connection, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept())
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def started(words: list[str], temporary: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "netprof", *words]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition: object, process: subprocess.Popen[str]) -> None:
    until_s = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until_s
        time.sleep(0.02)


@pytest.mark.core
@pytest.mark.parametrize("name", SIGNALS)
def test_copies_of_what_a_url_names_are_gone(name: str, silent: int, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    process = started(["report", f"http://127.0.0.1:{silent}/t.netprof"], tmp_path)
    wait_for(lambda: any(tmp_path.iterdir()), process)
    number = getattr(signal, f"SIG{name}")
    process.send_signal(number)
    process.send_signal(number)  # as timeout(1) does
    _, said = process.communicate(timeout=20)
    assert list(tmp_path.iterdir()) == []
    assert process.returncode == (130 if name == "INT" else -number)
    assert "Traceback" not in said


@pytest.mark.core
@pytest.mark.parametrize("name", ["TERM", "HUP", "USR1"])
def test_half_of_a_report_is_gone(name: str, tmp_path: Path) -> None:
    """It is ended while it writes one table after the other."""
    trace = Job().fill().write(tmp_path / "t.netprof")
    for folder in ("out", "temporary"):
        (tmp_path / folder).mkdir()
    process = started(["report", str(trace), "--csv", str(tmp_path / "out"), "-f"], tmp_path / "temporary")
    wait_for(lambda: any((tmp_path / "out").iterdir()), process)
    process.send_signal(getattr(signal, f"SIG{name}"))
    process.communicate(timeout=20)
    left = [each.name for each in (tmp_path / "out").iterdir() if each.name.startswith(".")]
    assert left == []
    assert list((tmp_path / "temporary").iterdir()) == []
