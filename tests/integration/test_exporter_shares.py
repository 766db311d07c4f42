"""Real processes of one user that only look like jobs: another user's job is recorded, and the rest is told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="attaches to other users' processes")]

FALSE = 12


def test_false_jobs_of_one_user_leave_room_for_anothers(
    tmp_path_factory: pytest.TempPathFactory, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(checkout / "examples" / "benchmarks"))
    import exporter_budget as bench

    folder = tmp_path_factory.mktemp("false")
    for above in (folder, *folder.parents):
        above.chmod(above.stat().st_mode | 0o111)
    which = bench.program(folder)
    jobs: list[subprocess.Popen[bytes]] = []
    with bench.exporting(which) as exporter:
        try:
            assert exporter.has_said("room for", 60)
            jobs += (bench.started(which, port, bench.NOBODY) for port in range(FALSE))
            assert exporter.has_said("recording false-job", 60)
            jobs.append(bench.started(which, 40_000, 0))
            assert exporter.has_said(f"recording false-job: rank 0 (pid {jobs[-1].pid})", 60)
            left_out = [line for line in exporter.get("/metrics").splitlines() if 'user="nobody"' in line]
            assert sum(float(line.split()[-1]) for line in left_out) > 0
            assert "jobs left out" in exporter.get("/healthz")
            use = exporter.use()
            assert use.files < bench.unit("LimitNOFILE")
            assert use.threads < bench.unit("TasksMax")
            assert use.resident_bytes < bench.unit("MemoryMax")
        finally:
            for job in jobs:
                job.kill()
                job.wait()
