"""Whether a machine under QEMU bears tracepoints that are switched on and off under load. See `toggling`."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from kernels.guest import AMD64, Guest
from kernels.matrix import find

WAYS = {"a thread each": "tcg,thread=multi", "one thread": "tcg,thread=single"}
"""How the CPUs of a machine take turns."""
FAULTS = ("Oops: ", "Kernel panic", "RIP: 0010:")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", nargs="?", default="6.12", help="a series of Debian's kernels")
    parser.add_argument("--machines", type=int, default=3, help="of each kind")
    parser.add_argument("--seconds", type=float, default=60, help="that each is tried for")
    options = parser.parse_args()
    place = AMD64.qemu.index("-accel") + 1
    for way, accelerator in WAYS.items():
        qemu = (*AMD64.qemu[:place], accelerator, *AMD64.qemu[place + 1 :])
        guest = Guest(replace(AMD64, qemu=qemu))
        try:
            files = guest.prepare(guest.debian.vmlinuz(find(guest, options.kernel)))
            for number in range(options.machines):
                tell(guest, files, f"CPUs on {way}, machine {number + 1}", options.seconds)
        finally:
            guest.close()


def tell(guest: Guest, files: tuple[Path, Path], about: str, seconds: float) -> None:
    """Run one machine, and say how it ended."""
    begin_s, said, fault = time.monotonic(), [], ""
    for line in guest.boot(files, check="check_toggling.py", words=f"seconds={seconds:g} ignore_loglevel"):
        if "check: " in line:
            said.append(line.partition("check: ")[2])
        elif not fault and any(word in line for word in FAULTS):
            fault = line.strip()
    bore = said[-1] if said and said[-1].startswith("bore") else f"did not bear it: {fault or 'no word of why'}"
    print(f"{about}: {said[0] if said else 'did not begin'}, {bore} ({time.monotonic() - begin_s:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
