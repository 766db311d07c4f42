"""The fuzzer as a program: many cases, one after the other, and what was wrong with which."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import fuzz
from fuzz.cases import LEAST_ANSWERED, TALLY, keep_input, peak_bytes, run_case

_SAY_EVERY = 1000
_MANY = 100
_FORKED = multiprocessing.get_context("fork")


def main() -> None:
    parser = argparse.ArgumentParser(description=fuzz.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, default=None, metavar="NUMBER")
    parser.add_argument("--keep", type=Path, default=None, metavar="FOLDER", help="where to put inputs that fail")
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.cases) if options.only is None else [options.only]
    failures = answered = 0
    for done, (number, failure, peak, was_answered) in enumerate(results(numbers, options.keep), 1):
        answered += was_answered
        if failure:
            failures += 1
            print(f"case {number}: {failure}", flush=True)
        if done % _SAY_EVERY == 0 or done == len(numbers):
            print(
                f"{done} cases, {answered} answered, {failures} failures, {peak >> 20} MiB", file=sys.stderr, flush=True
            )
    if len(numbers) >= _MANY and answered < LEAST_ANSWERED * len(numbers):
        print(f"only {answered} of {len(numbers)} cases were answered: something refuses too much", flush=True)
        failures += 1
    raise SystemExit(1 if failures else 0)


def results(numbers: Sequence[int], keep: Path | None) -> Iterator[tuple[int, str, int, bool]]:
    """Yield each case's number, what was wrong, the memory that it took at most, and whether it was answered.

    Cases run in a process of their own: one that kills it is a failure as any other, and the rest goes on in a new one.
    """
    left = deque(numbers)
    while left:
        receiving, sending = _FORKED.Pipe(duplex=False)
        process = _FORKED.Process(target=_run, args=(tuple(left), keep, sending))
        process.start()
        sending.close()
        with suppress(EOFError):
            while left:
                yield left.popleft(), *receiving.recv()
        process.join()
        if left:
            if keep is not None:
                keep_input(left[0], keep)
            yield left.popleft(), f"the process ends with {process.exitcode}", 0, False


def _run(numbers: Sequence[int], keep: Path | None, sending: Connection) -> None:
    for number in numbers:
        before = TALLY["answered"]
        sending.send((run_case(number, keep), peak_bytes(), TALLY["answered"] > before))


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "80")
    main()
