"""netprof's command line, with all its marks or without those of ends: `_recorder.py all|no-ends ARGUMENTS`.

As a script it is what is installed, or what PYTHONPATH names.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import _places  # noqa: F401
from support.hidden_ends import ENDS

from netprof.probes import frameworks
from netprof.probes.frameworks.table import Framework


def main() -> None:
    """Run netprof, as if no function told that anything is done where that is asked for."""
    seen = sys.argv.pop(1)
    if seen == "no-ends":
        frameworks.FRAMEWORKS = tuple(_without_ends(each) for each in frameworks.FRAMEWORKS)
    from netprof.cli.main import main as netprof

    netprof()


def _without_ends(framework: Framework) -> Framework:
    return replace(framework, marks=tuple(mark for mark in framework.marks if mark.kind not in ENDS))


if __name__ == "__main__":
    main()
