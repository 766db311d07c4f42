"""Canaries in the command lines of a job and of netprof itself: no file and no output of a recording holds one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from netprof.trace import TraceReader

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")
NETPROF = [sys.executable, "-m", "netprof"]
SECRETS = [
    *("--api-key=canary-1", "--token", "canary-2", "WANDB_API_KEY=canary-3", "https://u:canary-4@host/"),
    *("--config={'password': 'canary-5'}", "-H", "Authorization: Bearer canary-6"),
]
SLEEPS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep({})"]


def netprof(*words: str | Path) -> bytes:
    done = subprocess.run([*NETPROF, *map(str, words)], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def every_output(trace: Path, folder: Path) -> list[bytes]:
    """Return what all reports, views and files say of a trace."""
    files = [folder / name for name in ("r.html", "r.md", "r.json", "r.pftrace")]
    said = [netprof("report", trace, *(word for file in files for word in ("--out", file)))]
    said.append(netprof("report", trace, "--csv", folder / "csv", "--parquet", folder / "parquet"))
    said += [netprof("report", trace), netprof("report", trace, "--json"), netprof("live", trace)]
    written = [each for place in (trace, folder) for each in place.rglob("*") if each.is_file()]
    assert len(written) > 10
    return said + [each.read_bytes() for each in written]


@pytest.mark.parametrize("options", [[], ["--no-command-line"]], ids=["redacted", "dropped"])
def test_no_output_holds_a_secret_of_the_job(options: list[str], tmp_path: Path) -> None:
    command = [*SLEEPS[:2], SLEEPS[2].format(60), *SECRETS]
    trace, folder = tmp_path / "t.netprof", tmp_path / "out"
    folder.mkdir()
    environment = {**os.environ, "SECRET_TOKEN": "canary-7"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"up\n"
        said = netprof("attach", str(job.pid), "--duration", "1s", "--out", trace, *options)
        said += netprof("doctor", str(job.pid))
        job.kill()
    for each in [said, *every_output(trace, folder)]:
        assert b"canary" not in each
    (target,) = TraceReader(trace).meta.targets
    assert target.command.count("***") == (0 if options else 6)
    assert bool(TraceReader(trace).meta.command) == (not options)


def test_no_output_holds_a_secret_of_what_is_run(tmp_path: Path) -> None:
    trace, folder = tmp_path / "t.netprof", tmp_path / "out"
    folder.mkdir()
    said = netprof("run", "--out", trace, "--", *SLEEPS[:2], SLEEPS[2].format(1), *SECRETS)
    for each in [said, *every_output(trace, folder)]:
        assert b"canary" not in each
    assert sum(word.count("***") for word in TraceReader(trace).meta.command) == 6
