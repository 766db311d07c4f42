"""How well the clocks of two guests are found, beside what the host that runs both knows of them. See `clocks`."""

from __future__ import annotations

import argparse
import io
import mmap
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from kernels.check_clocks import AREA_BYTES, FAST_PPM, GUEST_CLOCK, HOST_CLOCK
from kernels.guest import AMD64, Guest
from kernels.matrix import Judged, find, judge
from rich.console import Console

from netprof.analysis.hosts.open_job import open_job
from netprof.model import HostClock

GUESTS = 2
LIBRARIES = ("typer", "rich", "nvidia-ml-py", "ijson")
"""What recording imports that the system of a guest does not have."""
MODULES = (  # in this order
    *("virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("failover", "net_failover", "virtio_net"),
)
_WINDOW_NS = 100_000_000
_LOOKED_EVERY_S = 50e-6
_WAIT_S = 60

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ahead:
    """How far a guest's clock is ahead of the host's at most or at least, at times of the host's, ns."""

    host_ns: Int64
    ahead_ns: Int64

    def best(self, sign: int) -> Ahead:
        """Return the lowest (1) or highest (-1) of each window, which tell the most."""
        order = np.lexsort((sign * self.ahead_ns, self.host_ns // _WINDOW_NS))
        window = self.host_ns[order] // _WINDOW_NS
        first = order[np.append(True, window[1:] != window[:-1])]
        return Ahead(self.host_ns[first], self.ahead_ns[first])


@dataclass(frozen=True)
class Truth:
    """A guest's clock beside the host's: a line between two bounds, and how far those are from it at most."""

    at_ns: int
    ahead_ns: float
    drift: float
    within_ns: float

    def of(self, host_ns: Int64) -> npt.NDArray[np.float64]:
        """Return how far the guest's clock is ahead."""
        return np.asarray(self.ahead_ns + self.drift * (host_ns - self.at_ns), np.float64)


class Shared:
    """The memory that guests and host share: the host's clock and the guests', and what the guests hand over."""

    def __init__(self, folder: Path) -> None:
        self.path, self.size = folder / "shared", (1 + GUESTS) * AREA_BYTES
        self.size = 1 << (self.size - 1).bit_length()
        with open(self.path, "w+b") as file:
            file.truncate(self.size)
            self._memory = mmap.mmap(file.fileno(), 0)
        self._words = memoryview(self._memory).cast("Q")
        self._read: list[list[tuple[int, int]]] = [[] for _ in range(GUESTS)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_time)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def at_least(self, guest: int) -> Ahead:
        """Return how far a guest's clock is ahead at least: what it wrote was true before it was read."""
        host_ns, clock_ns = np.array(self._read[guest], np.int64).T
        return Ahead(host_ns, clock_ns - host_ns).best(-1)

    def take(self, guest: int, folder: Path) -> tuple[Path, Ahead]:
        """Unpack a guest's recording; returns it, and how far its clock is ahead at most."""
        begin = (1 + guest) * AREA_BYTES
        size = self._words[begin // 8]
        with tarfile.open(fileobj=io.BytesIO(self._memory[begin + 8 : begin + 8 + size])) as tar:
            tar.extractall(folder)  # our own
        host_ns, clock_ns = np.loadtxt(folder / "times", np.int64).T
        return folder / f"guest{guest}.netprof", Ahead(host_ns, clock_ns - host_ns).best(1)

    def _keep_time(self) -> None:
        while not self._over.is_set():
            self._words[HOST_CLOCK] = time.monotonic_ns()
            for guest, read in enumerate(self._read):
                clock_ns = self._words[GUEST_CLOCK + guest]
                if clock_ns:
                    read.append((time.monotonic_ns(), clock_ns))
            time.sleep(_LOOKED_EVERY_S)


def truth(least: Ahead, most: Ahead) -> Truth:
    """Return the line in the middle between the bounds of a clock, by the windows in which they are closest."""
    windows, rows, others = np.intersect1d(least.host_ns // _WINDOW_NS, most.host_ns // _WINDOW_NS, return_indices=True)
    low, high = least.ahead_ns[rows], most.ahead_ns[others]
    half_ns, at_ns = (high - low) / 2, least.host_ns[rows]
    closest = np.argsort(half_ns)[: max(3, len(windows) // 4)]
    origin_ns = int(at_ns[0])
    drift, ahead_ns = np.polyfit(at_ns[closest] - origin_ns, low[closest] + half_ns[closest], 1)
    return Truth(origin_ns, float(ahead_ns), float(drift), float(half_ns[closest].max()))


def compare(traces: list[Path], real: list[Truth], console: Console) -> bool:
    """Say what is found of the second guest's clock, and what is true; returns whether that is within the bound."""
    reader = open_job(traces)
    clock = reader.hosts[1].clock
    begin_ns, end_ns = reader.meta.started_ns, reader.meta.stopped_ns or reader.meta.started_ns
    reference_ns = np.linspace(begin_ns, end_ns, 11).astype(np.int64)
    host_ns = (reference_ns - real[0].of(reference_ns - round(real[0].ahead_ns))).astype(np.int64)
    ahead_ns = real[1].of(host_ns) - real[0].of(host_ns)
    error_ns = float(np.abs(found_ahead(clock, reference_ns) - ahead_ns).max())
    drift = (1 + real[1].drift) / (1 + real[0].drift) - 1
    within_ns = real[0].within_ns + real[1].within_ns
    bound_ns = clock.bound_ns if clock.bound_ns is not None else np.inf
    for name, value in {
        "by": f"{clock.source}, {clock.pairs} pairs, {(end_ns - begin_ns) / 1e9:.1f} s",
        "offset": f"{clock.offset_ns / 1e6:.4f} ms, within {bound_ns / 1e3:.1f} µs",
        "truth": f"{error_ns / 1e3:.1f} µs from it at most; known within {within_ns / 1e3:.1f} µs",
        "drift": f"{clock.drift * 1e6:.3f} ppm, within {(clock.drift_bound or 0) * 1e6:.3f}; truth {drift * 1e6:.3f}",
        "clocks": ", ".join(f"{each.drift * 1e6:+.3f} ppm" for each in real) + f" beside the host's, {FAST_PPM} asked",
    }.items():
        console.print(f"  {name}: {value}", markup=False)
    return error_ns <= bound_ns + within_ns


def found_ahead(clock: HostClock, reference_ns: Int64) -> npt.NDArray[np.float64]:
    """Return how far a clock is ahead of the reference's, as netprof says."""
    return np.asarray(clock.offset_ns + clock.drift * (reference_ns - (clock.at_ns - clock.offset_ns)))


def boot_all(kernel: str, shared: Shared, progress: Console) -> list[Judged]:
    """Run the guests side by side, with a wire between them."""
    guest = Guest(AMD64)
    try:
        package = find(guest, kernel)
        progress.print(f"two machines with {package}")
        files = guest.prepare(
            guest.debian.vmlinuz(package), guest.libraries(*LIBRARIES), guest.modules(package, *MODULES)
        )
        found: dict[int, Judged] = {}

        def run(role: int) -> None:
            words = qemu(role, guest.folder / "wire", shared)
            lines = guest.boot(files, *words, check="check_clocks.py", words=f"role={role}")
            found[role] = judge(f"guest {role}", lines, progress)

        threads = [threading.Thread(target=run, args=(role,)) for role in range(GUESTS)]
        for thread in threads:
            thread.start()
            wait_for(guest.folder / "wire")
        for thread in threads:
            thread.join()
        return [found[role] for role in range(GUESTS)]
    finally:
        guest.close()


def qemu(role: int, wire: Path, shared: Shared) -> Iterator[str]:
    """Return QEMU's arguments for a guest's card, which is at one end of the wire, and for the shared memory."""
    server = "on" if role == 0 else "off"
    yield from ("-netdev", f"stream,id=wire,server={server},addr.type=unix,addr.path={wire}")
    yield from ("-device", f"virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0{1 + role}")
    backend = f"memory-backend-file,id=shared,share=on,mem-path={shared.path},size={shared.size}"
    yield from ("-object", backend, "-device", "ivshmem-plain,memdev=shared")


def wait_for(path: Path) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    while not path.exists():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"error: {path} does not come to be")
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/kernels/clocks", description="Finds the clocks of two guests.")
    parser.add_argument("kernel", nargs="?", default="6.12", help="a series of Debian's kernels")
    progress, console = Console(stderr=True, highlight=False), Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="netprof-clocks-", dir="/dev/shm") as folder:
        shared = Shared(Path(folder))
        try:
            judged = boot_all(parser.parse_args().kernel, shared, progress)
        finally:
            shared.stop()
        if not all(each.works for each in judged):
            return 1
        traces, real = [], []
        for guest in range(GUESTS):
            place = Path(folder) / str(guest)
            place.mkdir()
            trace, most = shared.take(guest, place)
            traces.append(trace)
            real.append(truth(shared.at_least(guest), most))
        console.print(f"two guests with {judged[0].said['kernel']}")
        holds = compare(traces, real, console)
        console.print(f"  the truth is {'within' if holds else 'OUTSIDE'} the bound", markup=False)
        return not holds


if __name__ == "__main__":
    sys.exit(main())
