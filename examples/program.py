"""The program that examples and benchmarks run: the installed one.

`python -m netprof` in a checkout would be its sources, in which nothing is compiled.
"""

from __future__ import annotations

import sys
from pathlib import Path

NETPROF = str(Path(sys.executable).with_name("netprof"))
