"""The demo: what `make demo` promises, and that nothing stays when it is interrupted."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from demo import DemoError, check
from lab import NETNS_DIR
from program import NETPROF

pytestmark = pytest.mark.timing

needs_demo = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the demo needs root"),
    pytest.mark.skipif(not Path(NETPROF).exists(), reason=f"{NETPROF} is not installed (make install)"),
]


class Demo:
    """A running demo, and the namespaces it made."""

    def __init__(self, checkout: Path, out: Path, duration: str) -> None:
        self.out = out
        command = [sys.executable, str(checkout / "examples" / "demo.py"), "--duration", duration, "--out", str(out)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def wait_until_recording(self) -> None:
        """Wait until netprof has written the first part of its trace."""
        deadline = time.monotonic() + 120
        while not (self.out / "demo.netprof" / "meta.json").exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def kill(self) -> None:
        """End what a failed test left of the demo and its job."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def left_behind(self) -> list[str]:
        """Name the namespaces and processes of this demo that are still there."""
        namespaces = [path.name for path in NETNS_DIR.glob(f"*.{self.process.pid}.*")]
        return namespaces + [str(pid) for pid in psutil.pids() if _session(pid) == self.process.pid]


def _session(pid: int) -> int:
    """Return the session of a process; 0 when it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


@pytest.fixture(scope="module")
def finished(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Demo, str, str]:
    demo = Demo(checkout, tmp_path_factory.mktemp("demo") / "out", "5s")
    return (demo, *demo.process.communicate(timeout=240))


@pytest.fixture(scope="module")
def summary(finished: tuple[Demo, str, str]) -> dict[str, Any]:
    demo, _, talk = finished
    assert demo.process.returncode == 0, talk
    document: dict[str, Any] = json.loads((demo.out / "demo.json").read_text())
    return document


@pytest.mark.usefixtures("summary")
class TestFinished:
    pytestmark = needs_demo

    def test_it_prints_the_report_and_leaves_the_trace(
        self, finished: tuple[Demo, str, str], summary: dict[str, Any]
    ) -> None:
        demo, printed, talk = finished
        assert summary["verdict"].split(":")[0] in printed
        assert "wrote" in talk.splitlines()[-1]
        assert (demo.out / "demo.netprof" / "meta.json").exists()
        assert (demo.out / "demo.html").read_text().startswith("<!doctype html>")
        assert "TRACE" not in printed  # commands can be pasted
        assert not demo.left_behind()

    def test_the_report_is_about_this_job(self, summary: dict[str, Any]) -> None:
        check(summary, hosts=2)
        phases = summary["iterations"]["phases_s"]
        assert max(phases, key=phases.get) == "exposed_communication"  # 25 MB at 1 Gbit/s are 200 ms

    @pytest.mark.parametrize(
        ("words", "damage"),
        [
            ("iterations were found", lambda report: report["iterations"].update(count=2)),
            ("line rate", lambda report: report["links"][0].update(line_rate_bps=1e10)),
            ("links instead of 2", lambda report: report["links"].pop()),
            ("utilization_tx", lambda report: report["links"][1].update(utilization_tx=1.5)),
            ("negative idle", lambda report: report["links"][0]["idle_s"].update(no_gradient=-1e-3)),
            ("of line rate", lambda report: report["collectives"].update(line_rate_share=1.3)),
            ("algorithm's bytes", lambda report: report["collectives"].update(wire_to_algorithm_ratio=2.0)),
            ("scaling factor", lambda report: report.update(scaling_factor=1.2)),
            ("no verdict", lambda report: report.update(verdict="")),
            ("no cost", lambda report: report.update(cost={})),
            ("lacks something", lambda report: report.pop("losses")),
            ("lacks something", lambda report: report["collectives"].update(line_rate_share=None)),
        ],
    )
    def test_a_wrong_report_fails_the_demo(
        self, summary: dict[str, Any], words: str, damage: Callable[[dict[str, Any]], object]
    ) -> None:
        damaged = copy.deepcopy(summary)
        damage(damaged)
        with pytest.raises(DemoError, match=words):
            check(damaged, hosts=2)


class TestInterrupted:
    pytestmark = needs_demo

    @pytest.mark.parametrize(
        ("number", "whole_group", "code"), [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)]
    )
    def test_nothing_stays(
        self, checkout: Path, tmp_path: Path, number: signal.Signals, whole_group: bool, code: int
    ) -> None:
        demo = Demo(checkout, tmp_path / "out", "60s")
        try:
            demo.wait_until_recording()
            assert demo.left_behind()
            os.killpg(demo.process.pid, number) if whole_group else demo.process.send_signal(number)
            demo.process.communicate(timeout=60)
            assert demo.process.returncode == code
            assert not demo.left_behind()
            assert not (tmp_path / "out" / "demo.json").exists()
        finally:
            demo.kill()
