"""Stacks of a rank that others wait for, of a real job: the line of Python, and the native function."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from support.training import netprof, training

from netprof.probes.stacks.probe import py_spy

pytest.importorskip("torch", reason="the job is a PyTorch one")
pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root"),
]
PROGRAM = Path(__file__).parents[1] / "programs" / "late_by_crc.py"


@pytest.mark.core
def test_the_line_and_the_function_that_others_wait_for(tmp_path: Path) -> None:
    with training([subprocess.Popen] * 2, tmp_path, "--gradient-mb", "1", "--data-ms", "1", program=PROGRAM) as job:
        command = ["attach", *map(str, job.pids), "--duration", "7s", "--stacks", "--json", "--no-live"]
        done = netprof(*command, "--out", str(tmp_path / "t.netprof"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    found = {each["native"]: each for each in report["stacks"]}
    assert {each["pid"] for each in found.values()} == {job.pids[1]}
    first = found[True]["lines"][0]
    assert "crc32" in first["line"]
    assert first["share"] > 0.5
    if py_spy():
        assert found[False]["lines"][0]["line"].startswith("checksums (late_by_crc.py:")
    (probe,) = [each for each in report["probes"]["started"] if each["name"] == "stacks"]
    assert f"process {job.pids[1]}" in probe["detail"]
