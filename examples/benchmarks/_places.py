"""Where the benchmarks find what they share with examples and tests, and the program that they run: import it first."""

import sys
from pathlib import Path

_TOP = Path(__file__).resolve().parents[2]
sys.path += [str(_TOP / "examples"), str(_TOP / "tests")]

from program import NETPROF as NETPROF  # noqa: E402  it is found from here on
