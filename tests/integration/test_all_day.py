"""Metrics, rings and rules on real jobs: what Prometheus reads, what is kept, and what is told when a rank is late."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.all_day import netprof, plain, until
from support.training import TrainingJob, free_port, training

from netprof.trace.ring import RingReader, reader_of

pytest.importorskip("torch", reason="the jobs are PyTorch ones")
pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root"),
]

LATE_MS = 60


def late(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([*command, "--data-ms", str(LATE_MS)], **options)


@contextmanager
def job(tmp_path: Path, ranks: Sequence[Callable[..., Any]] = (plain, late)) -> Iterator[TrainingJob]:
    """Two ranks, of which the second is late to every step."""
    with training(ranks, tmp_path, "--gradient-mb", "1") as found:
        yield found


def scraped(port: int) -> dict[tuple[str, str, str], float]:
    """What is served: by name, rank and cause (or what else there is)."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(s.name, s.labels.get("rank", ""), s.labels.get("cause", "")): s.value for s in samples}


@pytest.mark.core
def test_the_exporter_finds_a_job_and_says_who_is_late(tmp_path: Path) -> None:
    port = free_port()
    words = ("exporter", "--metrics", f"127.0.0.1:{port}", "--name", str(tmp_path))
    with netprof(*words, folder=tmp_path):
        with job(tmp_path):

            def late_s() -> Any:
                found = scraped(port)
                return found if found.get(("netprof_waiting_seconds_total", "0", "late_rank"), 0) > 1 else None

            first = until(late_s, 60, tmp_path / "said")
            second = until(lambda: (now := scraped(port)) != first and now, 60)
        falling = [key for key, value in first.items() if key[0].endswith("_total") and second.get(key, 0) < value]
        assert not falling, "totals only grow"
        waited = second["netprof_waiting_seconds_total", "0", "late_rank"]
        assert waited > 0.5 * LATE_MS / 1e3 * second["netprof_steps_total", "0", ""]
        assert waited > 10 * second["netprof_waiting_seconds_total", "1", "late_rank"]
        assert second["netprof_blamed_seconds_total", "1", "late_rank"] == pytest.approx(waited)
        until(lambda: scraped(port)["netprof_jobs", "", ""] == 0, 30)
        assert urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).read() == b"ok\n"
    assert "recording" in (tmp_path / "said").read_text()


@pytest.mark.core
def test_a_rule_saves_the_ring_and_tells(tmp_path: Path) -> None:
    ring, told = tmp_path / "ring.netprof", tmp_path / "told"
    rule = "late_rank > 20 % for 6s"
    with job(tmp_path) as ranks:
        words = ("attach", *map(str, ranks.pids), "--no-live", "-o", str(ring), "--keep", "10s")
        with netprof(*words, "--save-when", rule, "--on-event", f"tee {told}", folder=tmp_path) as recorder:
            event = until(lambda: told.exists() and told.read_text() and json.loads(told.read_text()), 90)
            recorder.send_signal(signal.SIGUSR1)
            until(lambda: len(list(tmp_path.glob("ring-*.md"))) >= 2, 60, tmp_path / "said")
            recorder.kill()
    assert event["event"] == rule
    assert event["value"] > 0.2
    assert reader_of(Path(event["trace"])).meta.stopped_ns is not None
    assert "rank 1" in Path(event["report"]).read_text()
    reader = RingReader(ring)
    assert reader.truncated, "it was killed"
    said = subprocess.run([sys.executable, "-m", "netprof", "report", str(ring)], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert "rank 1" in said.stdout


def test_jobs_that_come_and_go_leave_nothing(tmp_path: Path) -> None:
    port = free_port()
    words = ("exporter", "--metrics", f"127.0.0.1:{port}", "--name", str(tmp_path))
    with netprof(*words, folder=tmp_path) as exporter:
        for number in range(2):
            (tmp_path / str(number)).mkdir()
            with training((plain, plain), tmp_path / str(number), "--gradient-mb", "1", "--seconds", "3") as ranks:
                assert ranks.wait() == [0, 0], "the job is unharmed"
        until(lambda: scraped(port)["netprof_jobs", "", ""] == 0, 30)
        assert exporter.poll() is None
        assert len(list(Path(f"/proc/{exporter.pid}/fd").iterdir())) < 60
    said = (tmp_path / "said").read_text()
    assert "Traceback" not in said
