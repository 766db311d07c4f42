"""What the recorder frees and wants again costs no page faults, until it ends."""

from __future__ import annotations

import subprocess
import sys

ROUNDS = """
import resource
import numpy as np
from netprof.session.kept_memory import kept_memory

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


def test_what_is_wanted_again_is_kept_and_then_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", ROUNDS], capture_output=True, text=True, check=True)
    without, kept, held_mb, after_mb = map(float, done.stdout.split())
    assert without > 1000
    assert kept < without / 20
    assert after_mb < held_mb - 20
