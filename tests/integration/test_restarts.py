"""A job whose launcher starts its ranks again: the recording goes on, and ends when there is nothing to wait for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from support.training import TRAIN

from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job to record is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")]
PATIENCE_S, CONNECTS_S = 120.0, 20.0


class Restarting:
    """A torchrun that starts its two ranks again when one has failed."""

    def __init__(self, folder: Path) -> None:
        words = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "50"]
        words += [str(TRAIN), "--gradient-mb", "1", "--data-ms", "20"]
        self.said = folder / "launcher.stderr"
        with self.said.open("wb") as said:
            self.launcher = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", *words],
                cwd=folder,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=said,
            )
        assert self.launcher.stdout is not None
        os.set_blocking(self.launcher.stdout.fileno(), False)

    def ranks(self) -> list[int]:
        """Return the pids of the next two that say that they train.

        After a restart gloo often connects nobody, also where nobody records: they are started once more then.
        """
        assert self.launcher.stdout is not None
        said, begin_s, again_s = b"", time.monotonic(), time.monotonic() + CONNECTS_S
        while len(found := re.findall(rb"pid=(\d+) ", said)) < 2:
            assert self.launcher.poll() is None, f"torchrun has ended: {self.said.read_text(errors='replace')}"
            assert time.monotonic() < begin_s + PATIENCE_S, f"no two ranks train: {said!r}"
            said += self.launcher.stdout.read() or b""
            if time.monotonic() > again_s:
                said, again_s = b"", time.monotonic() + CONNECTS_S
                psutil.Process(self.launcher.pid).children()[0].kill()
            time.sleep(0.05)
        return [int(pid) for pid in found]

    def stop(self) -> None:
        if self.launcher.returncode is None:
            self.launcher.terminate()  # torchrun ends its ranks
            self.launcher.communicate()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Restarting]:
    with ExitStack() as stack:
        running = Restarting(tmp_path)
        stack.callback(running.stop)
        yield running


@pytest.mark.parametrize("given", ["the launcher", "a rank"])
def test_ranks_that_are_started_again_are_recorded_until_the_launcher_ends(
    job: Restarting, given: str, tmp_path: Path
) -> None:
    first, trace = job.ranks(), tmp_path / "t.netprof"
    pid = job.launcher.pid if given == "the launcher" else first[1]
    words = [sys.executable, "-m", "netprof", "attach", str(pid), "--no-live", "--json", "--out", str(trace)]
    recorder = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: (trace / "marks.arrows").exists())
        os.kill(first[0], signal.SIGKILL)
        again = job.ranks()
        until(lambda: set(again) <= {target.pid for target in TraceReader(trace).meta.targets if target.frameworks})
        assert recorder.poll() is None
        time.sleep(3)
        began_s = time.monotonic()
        job.stop()
        _, said = recorder.communicate(timeout=60)
        took_s = time.monotonic() - began_s
    finally:
        recorder.kill()
        recorder.communicate()
    assert recorder.returncode == 0, said
    waited = f"every rank has ended; waiting up to 60 s for process {job.launcher.pid} to start others"
    assert said.splitlines()[0] == waited
    found = TraceReader(trace)
    assert found.meta.stop_reason == "the job ended"
    training = {target.pid for target in found.meta.targets if target.frameworks}
    assert set(first + again) <= training, "and others, if it started them a second time"
    assert job.launcher.pid not in training
    pids = set(found.table("marks").column("pid").to_pylist())
    assert set(first + again) <= pids
    assert took_s < 30, "what started them is gone: nothing is waited for"


def until(holds: object) -> None:
    assert callable(holds)
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.2)
