"""The fuzzer as a program: many cases, one after the other, and what was wrong with which."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import fuzz
from fuzz.cases import peak_bytes, run_case

_SAY_EVERY = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=fuzz.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, default=None, metavar="NUMBER")
    parser.add_argument("--keep", type=Path, default=None, metavar="FOLDER", help="where to put inputs that fail")
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.cases) if options.only is None else [options.only]
    failures = 0
    for done, number in enumerate(numbers, 1):
        failure = run_case(number, options.keep)
        if failure:
            failures += 1
            print(f"case {number}: {failure}", flush=True)
        if done % _SAY_EVERY == 0:
            print(f"{done} cases, {failures} failures, {peak_bytes() >> 20} MiB", file=sys.stderr, flush=True)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "80")
    main()
