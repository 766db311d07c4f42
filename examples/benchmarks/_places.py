"""Where the benchmarks find what they share with examples and tests, and the program that they run: import it first."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "examples"), str(ROOT / "tests")]

from program import NETPROF as NETPROF  # noqa: E402  it is found from here on
