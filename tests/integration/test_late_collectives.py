"""A job of torch's collectives with a late rank: the report names it, whoever is done before others begin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the job to profile is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")]

PROGRAM = Path(__file__).parents[2] / "examples" / "late_collectives.py"


@pytest.mark.parametrize(
    ("call", "ranks", "late"),
    [
        pytest.param("ddp batch_norm", 3, 2, marks=pytest.mark.core),
        ("gather+broadcast", 4, 2),
    ],
)
def test_the_late_rank_is_named_and_nobody_is_missing(call: str, ranks: int, late: int) -> None:
    command = [sys.executable, str(PROGRAM), "--calls", call, "--ranks", str(ranks), "--late", str(late)]
    played = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert played.returncode == 0, played.stdout + played.stderr
