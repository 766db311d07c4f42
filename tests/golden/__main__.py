"""Conclude from every golden recording again, and print what is not as expected: `make golden`.

make golden                     which keys changed, from what to what
make golden UPDATE=1            take what is concluded now for what is expected
make golden NAMES="loss mpi"    only some recordings
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from golden.conclusions import names
from golden.expected import differences, update

_MOST_LINES = 400


def main() -> int:
    """Compare, or update; return the exit code: 1 where something is not as expected."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--update", action="store_true", help="rewrite what is expected")
    args = parser.parse_args()
    begin_s, lines, keys = time.monotonic(), 0, Counter[str]()
    wanted = args.names or names()
    with ProcessPoolExecutor() as pool:
        for name, found in zip(wanted, pool.map(update if args.update else differences, wanted), strict=True):
            for each in found:
                keys[each.key] += 1
                lines += 1
                if lines <= _MOST_LINES:
                    print(f"{name}: {each}", flush=True)
    for key, count in keys.most_common(10) if len(keys) < lines else ():
        if count > 1:
            print(f"  {key} differs in {count} recordings")
    changed = "changed" if args.update else "not as expected"
    print(f"{len(wanted)} recordings, {lines} values {changed}, {time.monotonic() - begin_s:.0f} s")
    return 1 if lines and not args.update else 0


if __name__ == "__main__":
    sys.exit(main())
