"""The processes of a pool do not outlive the one that they work for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from netprof.session.pool import pool

_WORKS = """
import os, time
from netprof.session.pool import pool
if __name__ == "__main__":
    with pool(2) as processes:
        print(*sorted({processes.submit(os.getpid).result() for _ in range(20)}), flush=True)
        processes.submit(time.sleep, 60).result()
"""


def test_they_end_when_it_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "works.py"
    script.write_text(_WORKS)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert pids
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        parent.kill()
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "a process of the pool is still there"
        time.sleep(0.02)


def test_each_does_something_first(tmp_path: Path) -> None:
    with pool(1, os.mkdir, tmp_path / "begun") as processes:
        assert processes.submit(os.getpid).result() != os.getpid()
    assert (tmp_path / "begun").is_dir()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_nothing_is_imported_from_the_current_folder(tmp_path: Path) -> None:
    """It may be another user's: multiprocessing starts Python with -c, which looks there first, for itself too."""
    script, elsewhere = tmp_path / "works.py", tmp_path / "elsewhere"
    script.write_text(_WORKS.replace("time.sleep, 60", "time.sleep, 0"))
    elsewhere.mkdir()
    for module in ("multiprocessing", "signal", "threading", "concurrent", "selectors"):
        (elsewhere / f"{module}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    done = subprocess.run([sys.executable, str(script)], cwd=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "imported").exists()
