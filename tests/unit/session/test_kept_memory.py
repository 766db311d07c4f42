"""What the recorder frees and wants again costs no page faults, until it ends."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from netprof.session.priority import kept_memory

ROUNDS = """
import resource
import numpy as np
from netprof.session.priority import kept_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        arrays = [np.full(1 << 20, 1.0) for _ in range(5)]  # 40 MB, as a second's rows of many flows
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident_mb():
    return int(open("/proc/self/status").read().split("RssAnon:")[1].split()[0]) / 1e3

without = faults()
with kept_memory():
    faults()
    kept, held_mb = faults(), resident_mb()
faults()
print(without, kept, held_mb, resident_mb())
"""


@pytest.mark.slow
def test_what_is_wanted_again_is_kept_and_then_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", ROUNDS], capture_output=True, text=True, check=True)
    without, kept, held_mb, after_mb = map(float, done.stdout.split())
    assert without > 1000
    assert kept < without / 20
    assert after_mb < held_mb - 20


def test_the_c_library_is_told_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda option, value: told.append((option, value)))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    trim, mmap = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    with kept_memory():
        assert told == [(trim, 64 << 20), (mmap, 32 << 20)]
        told.clear()
    assert told == [(trim, 128 << 10), (mmap, 128 << 10)]


def test_without_glibc_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    with kept_memory():
        pass
