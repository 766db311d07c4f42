"""Mutation testing as a program: which small changes of the code no unit test notices.

PYTHONPATH=tests python tests/mutation [--part PACKAGE] [--sample N] [--total N] [--jobs 2] [--seed 1] [--again LOG]

Every mutant is shown to the tests that run its function, the quickest first; then, if it survived, to the other tests
of their files; to 40 seconds of them at most. It is killed when one of them fails, and fails again by itself, or when
they take several times as long as without it. Mutants run on copies of the tree, shut off from all else (sandbox.py).
Survivors that are known are in survivors.txt, with the reason.
"""

from __future__ import annotations

import argparse
import pickle
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path

from mutation.mutants import Mutant, mutants
from mutation.runner import collect, end, ended, import_all, run_tests, start, wait
from mutation.sandbox import copy_of, shut_in
from mutation.targets import CHECKOUT, PARTS, known_survivors, modules, tests
from mutation.watched import Test, note_calls, restore, watch

GOAL = 0.9
KILLED, TOO_LONG, SURVIVED, UNSEEN = "killed", "took too long", "survived", "run by no test"
_SURVIVOR = re.compile(rf" (?:{SURVIVED}|{UNSEEN}): (.*) # ")
_BASE_S, _TIMES = 15.0, 4.0
_WATCH_S = 400.0
_MOST_S = 40.0
_USABLE = 0.8
"""Share of the files of tests that have to run something of the product: else all mutants would survive."""


@dataclass
class Running:
    """A mutant in a copy: the process, when it has to be over, and the tests that come after it."""

    mutant: Mutant
    pid: int
    until_s: float
    later: list[str]


def main() -> None:
    options = _options()
    folder = shut_in(CHECKOUT)
    import_all()
    parts = options.part or PARTS
    copies = [copy_of(CHECKOUT, folder / "copy-0")]
    known = list(_watched(parts, copies[0], folder))
    copies += [copy_of(copies[0], folder / f"copy-{number}") for number in range(1, options.jobs)]
    every = {part: _mutants(part, options) for part in parts}
    if options.total is not None:
        chosen = set(_drawn([each for part in every.values() for each in part], options.total, options.seed))
        every = {part: [each for each in of_part if each in chosen] for part, of_part in every.items()}
    enough = [_report(part, _try_all(of_part, known, copies)) for part, of_part in every.items() if of_part]
    raise SystemExit(0 if all(enough) else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=list(PARTS), help="default: all")
    parser.add_argument("--sample", type=int, metavar="N", help="so many mutants of each part, drawn; default: all")
    parser.add_argument("--total", type=int, metavar="N", help="so many mutants of all parts together, drawn")
    parser.add_argument("--only", metavar="TEXT", help="only mutants whose name has this in it")
    parser.add_argument("--again", metavar="LOG", type=Path, help="only those that survived by this output")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def _watched(parts: Sequence[str], copy: Path, folder: Path) -> Iterator[Test]:
    """Run the tests without mutants, and yield those that pass and run something of the parts, or are about them."""
    begin_s, every = time.monotonic(), [module for part in parts for module in modules(part)]
    usable = 0
    note_calls(CHECKOUT, copy, every)
    for number, file in enumerate(tests()):
        is_about = any(_is_about(file, module) for module in every)  # what it runs may be programs of its own
        found = _watched_file(file, copy, folder / f"tests-{number}", all_of_it=is_about)
        usable += any(each.functions for each in found)
        yield from found
    if usable < (_USABLE * len(tests()) if len(parts) == len(PARTS) else 1):
        raise SystemExit(f"only {usable} of {len(tests())} files of tests run anything here: no mutant is run")
    for module in every:
        restore(CHECKOUT, copy, module)
    print(f"all tests watched in {time.monotonic() - begin_s:.0f} s", flush=True)


def _watched_file(file: str, copy: Path, out: Path, *, all_of_it: bool) -> list[Test]:
    code = wait(start(copy, partial(watch, file, out), compiles=True), _WATCH_S)
    if not out.exists():
        print(f"{file} is left out: it ended with {code}", file=sys.stderr, flush=True)
        return []
    found: list[Test] = [each for each in pickle.loads(out.read_bytes()) if each.functions or all_of_it]
    names = [each.name for each in found]
    if names and wait(start(copy, partial(collect, names)), _WATCH_S) != 0:
        # else each mutant would seem to be killed
        print(f"{file} is left out: its tests cannot be run by their names", file=sys.stderr, flush=True)
        return []
    return found


def _mutants(part: str, options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants of a part that are asked for."""
    every = [each for file in modules(part) for each in mutants(file, (CHECKOUT / file).read_text())]
    every = [each for each in every if options.only is None or options.only in each.name]
    if options.again is not None:
        survived = set(_SURVIVOR.findall(options.again.read_text()))
        every = [each for each in every if each.name in survived]
    drawn = _drawn(every, options.sample, options.seed)
    print(f"{part}: {len(every)} mutants, {len(drawn)} of them drawn", flush=True)
    return sorted(drawn, key=lambda each: each.name)


def _drawn(every: list[Mutant], count: int | None, seed: int) -> list[Mutant]:
    return every if count is None else random.Random(seed).sample(every, min(count, len(every)))


def _try_all(drawn: Sequence[Mutant], known: Sequence[Test], copies: list[Path]) -> dict[Mutant, str]:
    """Try mutants, in each copy one at a time."""
    found: dict[Mutant, str] = {}
    waiting, running = list(reversed(drawn)), dict[Path, Running]()
    while waiting or running:
        for copy in copies:
            if copy not in running and waiting:
                mutant = waiting.pop()
                names = _names(mutant, known)
                if names:
                    running[copy] = _begin(mutant, names, copy, known)
                else:
                    found[mutant] = UNSEEN
        for copy, each in list(running.items()):
            outcome = _outcome(each)
            if outcome == SURVIVED and each.later:
                running[copy] = _begin(each.mutant, [each.later], copy, known)
            elif outcome is not None:
                restore(CHECKOUT, copy, each.mutant.file)
                del running[copy]
                found[each.mutant] = outcome
                if outcome == SURVIVED:
                    print(f"  {each.mutant.file}:{each.mutant.line} {each.mutant.name}", flush=True)
        time.sleep(0.01)
    return found


def _names(mutant: Mutant, known: Sequence[Test]) -> list[list[str]]:
    """Return the tests that run a mutant's function, the quickest first, and after them the rest of their files.

    No more than take `_MOST_S` seconds: of what nearly every test runs, not every test is asked. Those that are about
    it are, before others: their names have the module's, or its package's. What is outside of functions (a limit, an
    enumeration) may be used by tests that run no function of its module, too.
    """
    own = [each for each in known if (mutant.file, mutant.function) in each.functions]
    own = own or [each for each in known if _runs(each, mutant.file) or _is_about(each.file, mutant.file)]
    files = {each.file for each in own}
    rest = [each for each in known if each.file in files and each not in own]
    about = [each for each in own if _is_about(each.file, mutant.file)]
    chosen = _in_time(about, _MOST_S)
    others = [each for each in own if each not in about]
    chosen += _in_time(others, _MOST_S - sum(each.seconds for each in chosen)) if others else []
    left_s = _MOST_S - sum(each.seconds for each in chosen)
    more = _in_time(rest, left_s) if len(chosen) == len(own) else []
    return [[each.name for each in part] for part in (chosen, more)] if own else []


def _runs(test: Test, module: str) -> bool:
    return any(file == module for file, _ in test.functions)


def _is_about(test: str, module: str) -> bool:
    """Tell whether a file of tests is called after a module or its package: by its own name and its folder's."""
    package, name = Path(module).parts[-2], Path(module).stem
    words = {Path(test).parent.name, *Path(test).stem.split("_")}
    return package in words or words.issuperset(name.split("_"))


def _in_time(every: Sequence[Test], most_s: float) -> list[Test]:
    """Return the quickest tests, as many as fit into a time; one at least."""
    found = sorted(every, key=lambda each: each.seconds)
    ends = accumulate(each.seconds for each in found)
    return [each for place, (each, end_s) in enumerate(zip(found, ends, strict=True)) if end_s <= most_s or place == 0]


def _begin(mutant: Mutant, names: list[list[str]], copy: Path, known: Sequence[Test]) -> Running:
    (copy / mutant.file).write_text(mutant.source)
    seconds = {each.name: each.seconds for each in known}
    limit_s = _BASE_S + _TIMES * sum(seconds[name] for name in names[0])
    pid = start(copy, partial(run_tests, names[0]))
    return Running(mutant, pid, time.monotonic() + limit_s, names[1] if len(names) > 1 else [])


def _outcome(each: Running) -> str | None:
    """Return what became of a mutant; None while its tests run."""
    code = ended(each.pid)
    if code is None and time.monotonic() < each.until_s:
        return None
    end(each.pid)
    return TOO_LONG if code is None else SURVIVED if code == 0 else KILLED


def _report(part: str, found: dict[Mutant, str]) -> bool:
    """Print what became of the mutants of a part; tell whether enough were killed."""
    known = known_survivors()
    by_file: dict[str, Counter[str]] = {}
    for mutant, outcome in found.items():
        by_file.setdefault(mutant.file, Counter())[outcome] += 1
    for file, counts in sorted(by_file.items()):
        print(f"{file:42} {_words(counts)}")
    for mutant, outcome in found.items():
        if outcome in (SURVIVED, UNSEEN):
            print(f"{mutant.file}:{mutant.line} {outcome}: {mutant.name} # {known.get(mutant.name, '?')}")
    total = sum(by_file.values(), Counter[str]())
    print(f"{part}: {_words(total)}", flush=True)
    return _share(total) >= GOAL


def _share(counts: Counter[str]) -> float:
    return (counts[KILLED] + counts[TOO_LONG]) / max(1, counts.total())


def _words(counts: Counter[str]) -> str:
    parts = ", ".join(f"{number} {outcome}" for outcome, number in counts.most_common())
    return f"{100 * _share(counts):5.1f} % of {counts.total():4} killed ({parts})"


if __name__ == "__main__":
    main()
