"""Judges kernels, each under QEMU and this one as it is, and draws one table. See `run`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kernels.guest import AMD64, ARM64, Guest
from kernels.wheel import TOP
from rich.console import Console
from rich.table import Table

MACHINES = {"x86_64": AMD64, "aarch64": ARM64}
NEWEST, THIS = "newest", "this"
HIDDEN = "+headers"
"""Ends the name of a kernel whose type information is hidden, beside its headers."""
RDMA = "+rdma"
"""Ends the name of a kernel on which RDMA ports are judged, by soft-RoCE: one of a full image."""
RDMA_PACKAGES = ("perftest", "rdma-core", "ibverbs-providers", "iproute2")
RDMA_MODULES = (  # in this order; that crc32_generic is needed, no module says
    *("crc32_generic", "udp_tunnel", "ip6_udp_tunnel", "ib_core", "ib_uverbs", "rdma_rxe"),
    *("configfs", "ib_cm", "iw_cm", "rdma_cm", "rdma_ucm", "veth"),
)
PATHS = "+paths"
"""Ends the name of a kernel on which devices are judged that flows pass: bond, VLAN, fq, WireGuard; of a full image."""
PATHS_PACKAGES = ("iproute2", "wireguard-tools")
PATHS_MODULES = (  # those that a kernel lacks are built in; the guest finds the order
    *("veth", "tls", "bonding", "llc", "stp", "mrp", "garp", "8021q", "sch_fq", "sch_tbf", "udp_tunnel", "wireguard"),
    *("ip6_udp_tunnel", "libcurve25519", "libcurve25519-generic", "curve25519-x86_64", "libpoly1305", "libchacha"),
    *("poly1305-x86_64", "poly1305-x86_64-generic", "chacha-x86_64", "libchacha20poly1305", "libblake2s"),
)
USUAL = (
    *("5.10", "6.1", "6.12", "6.12-rt", "6.18", NEWEST, "6.1:aarch64", "6.12:aarch64", "newest:aarch64", THIS),
    "6.1" + HIDDEN,
    "6.12-full" + RDMA,
    "6.12-full" + PATHS,
)
TOO_OLD = ("5.10",)
SHOWN = {
    "flows": "flows",
    "adopted": "adopted",
    "slots": "slots",
    "starts": "starts",
    "marks": "marks",
    "ring": "held up",
    "posts": "posts to NCCL's network",
    "attached by": "marks attached by",
    "packets": "packets read by",
}
SHOWN_OF_RDMA = ("queue pairs", "packets", "capture", "period", "detach")
SHOWN_OF_PATHS = ("bond", "hash", "rate", "devices", "wireguard")


@dataclass
class Judged:
    """What check.py said on a kernel."""

    name: str
    said: dict[str, str] = field(default_factory=dict)
    console: list[str] = field(default_factory=list)
    seconds: float = 0

    @property
    def refused(self) -> str:
        return self.said.get("refused", "")

    @property
    def works(self) -> bool:
        return "done" in self.said and not any(result.startswith("WRONG") for result in self.said.values())


def judge(name: str, lines: Iterable[str], progress: Console) -> Judged:
    """Read what a kernel's console says, and tell of it as it comes."""
    judged, began_s = Judged(name), time.monotonic()
    for line in lines:
        judged.console.append(line)
        if found := re.search(r"check: ([a-z ]+): (.*)", line):
            judged.said[found[1]] = found[2]
            if found[1] != "done":
                progress.print(f"  {time.monotonic() - began_s:4.0f} s  {found[1]}: {found[2]}", markup=False)
    judged.seconds = time.monotonic() - began_s
    if not (judged.works or judged.refused):
        progress.print("\n".join(judged.console[-30:]), markup=False)
    return judged


def this_kernel() -> Iterator[str]:
    """Run check.py here."""
    command = [sys.executable, str(TOP / "tests" / "kernels" / "check.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(TOP)}) as process:
        assert process.stdout is not None
        yield from (line.rstrip() for line in process.stdout)


def judge_all(names: Iterable[str], progress: Console) -> Iterator[Judged]:
    """Judge each of the kernels that are named SERIES[-FLAVOUR][:MACHINE], IMAGE[:MACHINE], or `this`."""
    guests: dict[str, Guest] = {}
    try:
        for name in names:
            if name == THIS:
                progress.print(f"this kernel, {platform.release()}")
                yield judge(name, this_kernel(), progress)
                continue
            series, machine = name.removesuffix(HIDDEN).removesuffix(RDMA).removesuffix(PATHS).partition(":")[::2]
            machine = machine or "x86_64"
            if machine not in guests:
                progress.print(f"what boots on {machine} is put together")
                guests[machine] = Guest(MACHINES[machine])
            yield judge_on(name, guests[machine], series, progress)
    finally:
        for guest in guests.values():
            guest.close()


def judge_on(name: str, guest: Guest, series: str, progress: Console) -> Judged:
    """Judge a kernel under QEMU: an image, by its path, or Debian's newest of a series and flavour."""
    if "/" in series:
        return judge(name, guest.boot(guest.prepare(Path(series))), progress)
    package = find(guest, series)
    progress.print(package)
    if name.endswith(RDMA):
        return judge_rdma(name, guest, package, progress)
    if name.endswith(PATHS):
        more = guest.programs(*PATHS_PACKAGES), guest.modules(package, *PATHS_MODULES)
        files = guest.prepare(guest.debian.vmlinuz(package), *more)
        return judge(name, guest.boot(files, check="check_paths.py"), progress)
    return judge(name, console_of(guest, package, hide_types=name.endswith(HIDDEN)), progress)


def console_of(guest: Guest, package: str, *, hide_types: bool) -> Iterator[str]:
    """Boot a kernel; with `hide_types` its type information is not to be seen, but bcc and its headers are there."""
    if not hide_types:
        return guest.boot(guest.prepare(guest.debian.vmlinuz(package)))
    return guest.boot(guest.prepare(guest.debian.vmlinuz(package), guest.headers(package)), memory_mb=4000)


def judge_rdma(name: str, guest: Guest, package: str, progress: Console) -> Judged:
    """Judge a kernel with soft-RoCE, and read back what it captured and wrote to its second serial line."""
    more = guest.programs(*RDMA_PACKAGES), guest.modules(package, *RDMA_MODULES)
    files = guest.prepare(guest.debian.vmlinuz(package), *more)
    received = guest.folder / "received"
    lines = guest.boot(files, "-serial", "mon:stdio", "-serial", f"file:{received}", check="check_rdma.py")
    judged = judge(name, lines, progress)
    if judged.works:
        judged.said["capture"] = read_back(received, judged.said["capture"])
        progress.print(f"  read back: {judged.said['capture']}", markup=False)
    return judged


def read_back(capture: Path, wanted: str) -> str:
    """Let `netprof capture` read what a guest captured; `wanted` are a queue pair, and the bytes that it received."""
    end, size = wanted.split(", ")
    with tempfile.TemporaryDirectory(prefix="netprof-kernels-") as folder:
        command = [sys.executable, "-m", "netprof", "capture", str(capture), "--out", f"{folder}/t.netprof", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(TOP)})
    if done.returncode != 0:
        return f"WRONG: {done.stderr[-500:]}"
    flows = [flow for flow in json.loads(done.stdout)["flows"] if flow["local"] == end]
    found = sum(flow["rx"]["payload_bytes"] for flow in flows)
    return f"{found} bytes to {end}" if found == int(size) else f"WRONG: {found} bytes to {end}, not {size}"


def find(guest: Guest, series: str) -> str:
    """Return the package of a series and flavour: cloud where none is named, which is the smallest."""
    number, _, flavour = series.partition("-")
    number = guest.debian.newest_series() if number == NEWEST else number
    package = guest.debian.kernel(number, {"": "cloud", "full": ""}.get(flavour, flavour))
    if package is None:
        raise SystemExit(f"error: Debian has no kernel {series} for {guest.machine.name}")
    return package


def draw(judged: Iterable[Judged]) -> Table:
    """Return the table: a row for each kernel."""
    table = Table(box=None, pad_edge=False)
    for title in ("kernel", "", *SHOWN.values(), "took"):
        table.add_column(title, overflow="fold")
    for each in judged:
        verdict = "refused" if each.refused else "works" if each.works else "FAILS"
        if each.name.endswith((RDMA, PATHS)):
            continue
        hidden = ", no type information" if each.name.endswith(HIDDEN) else ""
        results = [each.said.get(name, "") for name in SHOWN]
        table.add_row(each.said.get("kernel", each.name) + hidden, verdict, *results, f"{each.seconds:.0f} s")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/kernels/run", description="Judges kernels: exact bytes, marks, ...")
    kinds = "SERIES[-FLAVOUR][:MACHINE][+headers|+rdma|+paths], the path of an image, or this"
    parser.add_argument("kernels", nargs="*", default=USUAL, help=kinds)
    progress = Console(stderr=True, highlight=False)
    judged = list(judge_all(parser.parse_args().kernels, progress))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    console.print(draw(judged))
    for each in judged:
        if each.refused:
            console.print(f"{each.said['kernel']} is refused: {each.refused}", markup=False)
        for ending, what, titles in ((RDMA, "RDMA ports", SHOWN_OF_RDMA), (PATHS, "paths", SHOWN_OF_PATHS)):
            if not each.name.endswith(ending):
                continue
            console.print(f"{what} on {each.said.get('kernel', each.name)}: {'works' if each.works else 'FAILS'}")
            for title in titles:
                console.print(f"  {title}: {each.said.get(title, '')}", markup=False)
    console.print("µs a hit of a mark at least, by the function's first instruction:")
    for each in judged:
        if "hit" in each.said:
            console.print(f"  {each.said['kernel']}: {each.said['hit']}", markup=False)
    wrong = [each.name for each in judged if not (each.refused if each.name in TOO_OLD else each.works)]
    if wrong:
        console.print(f"not as it should be: {', '.join(wrong)}")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
