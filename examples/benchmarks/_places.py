"""Where the benchmarks find what they share with examples and tests, and the program that they run: import it first."""

import sys
from pathlib import Path

_TOP = Path(__file__).resolve().parents[2]
sys.path += [str(_TOP / "examples"), str(_TOP / "tests")]

NETPROF = str(Path(sys.executable).with_name("netprof"))
"""The installed program: `python -m netprof` in a checkout would be its sources, with nothing compiled."""
