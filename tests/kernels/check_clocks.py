"""Runs on one of two guests: half of a job that talks to the other half, a recorder of it, and what the time really is.

`role=N` on the kernel's command line says which guest it is. Memory that the guests and their host share holds the
host's clock and the guests' (`clocks.py` reads them, and says how), and takes the recording. See `clocks`.
"""

from __future__ import annotations

import io
import mmap
import os
import platform
import re
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

MODULES = Path("/modules")
PORT, WAIT_S = 29500, 120
BLOCK_BYTES, PAUSE_S = 256 << 10, 0.05
RECORDED_S = 25
LOOKED_NS, RESTED_S = 20_000_000, 0.08
HOST_CLOCK, GUEST_CLOCK, AREA_BYTES = 0, 1, 16 << 20
"""Words of the shared memory that hold the clocks, the guests' one after the other; and each guest's area behind."""
FAST_PPM = 40
"""How much faster the second guest's clock is made to run, by the kernel itself."""


def say(name: str, result: str) -> None:
    print(f"check: {name}: {result}", flush=True)


def busybox(*words: str) -> None:
    subprocess.run(["/bin/busybox", *words], check=True, stdout=subprocess.DEVNULL)


def make_network(role: int) -> None:
    """Load what drives the card, and give it an address."""
    for name in (MODULES / "order").read_text().split():
        busybox("insmod", str(MODULES / f"{name}.ko"))
    (device,) = (each.name for each in Path("/sys/class/net").iterdir() if each.name != "lo")
    busybox("ip", "address", "add", f"10.8.0.{1 + role}/24", "dev", device)
    busybox("ip", "link", "set", device, "up")


def share_memory() -> mmap.mmap:
    """Map the memory that QEMU shows as a card (ivshmem)."""
    for card in Path("/sys/bus/pci/devices").iterdir():
        if (card / "device").read_text().strip() == "0x1110":
            (card / "enable").write_text("1")
            with open(card / "resource2", "r+b", buffering=0) as memory:
                return mmap.mmap(memory.fileno(), 0)
    raise RuntimeError("there is no shared memory")


def keep_time(shared: mmap.mmap, role: int) -> None:
    """Write this guest's clock as often as can be, and note what the host's was at the latest then: both are bounds."""
    words = memoryview(shared).cast("Q")
    while True:
        begun_ns, best = time.monotonic_ns(), None
        while (now_ns := time.monotonic_ns()) < begun_ns + LOOKED_NS:
            words[GUEST_CLOCK + role] = now_ns
            host_ns, after_ns = words[HOST_CLOCK], time.monotonic_ns()
            if host_ns and (best is None or after_ns - host_ns < best[1] - best[0]):
                best = host_ns, after_ns
        if best is not None:
            print(*best, flush=True)
        time.sleep(RESTED_S)


def talk(role: int) -> None:
    """Send the other half as much as it sends, again and again, as ranks do that reduce gradients."""
    if role == 0:
        with socket.create_server(("10.8.0.1", PORT)) as listener:
            connection, _ = listener.accept()
    else:
        connection = connect()
    print("talking", flush=True)
    while True:
        sender = threading.Thread(target=connection.sendall, args=(bytes(BLOCK_BYTES),))
        sender.start()
        left = BLOCK_BYTES
        while left:
            left -= len(connection.recv(left)) or sys.exit(0)
        sender.join()
        time.sleep(PAUSE_S)


def connect() -> socket.socket:
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            return socket.create_connection(("10.8.0.1", PORT), timeout=WAIT_S)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.2)


def own(part: str, role: int) -> subprocess.Popen[str]:
    """Start a part of this program as a process of its own."""
    return subprocess.Popen([sys.executable, "-S", __file__, part, str(role)], stdout=subprocess.PIPE, text=True)


def record(job: subprocess.Popen[str], role: int) -> Path:
    trace = Path(f"/tmp/guest{role}.netprof")
    command = [sys.executable, "-S", "-m", "netprof", "attach", str(job.pid), "--rank", f"{job.pid}={role}"]
    command += ["--world-size", "2", "--duration", f"{RECORDED_S}s", "--no-live", "--json", "--out", str(trace)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if not (trace / "meta.json").exists():
        raise RuntimeError(f"exit {done.returncode}: {done.stderr[-800:]}")
    return trace


def hand_over(shared: mmap.mmap, role: int, trace: Path, times: str) -> int:
    """Put the recording, and what the host's clock was when, into this guest's area."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(trace, trace.name)
        entry = tarfile.TarInfo("times")
        entry.size = len(times.encode())
        tar.addfile(entry, io.BytesIO(times.encode()))
    data = packed.getvalue()
    begin = (1 + role) * AREA_BYTES
    shared[begin + 8 : begin + 8 + len(data)] = data
    memoryview(shared).cast("Q")[begin // 8] = len(data)
    return len(data)


def run(role: int) -> None:
    say("kernel", f"{platform.release()} {platform.machine()}")
    make_network(role)
    busybox("hostname", f"guest{role}")
    if role == 1:
        busybox("adjtimex", "-f", str(FAST_PPM << 16))
    clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    say("clock", clock)
    job, keeper = own("talk", role), own("keep", role)
    assert job.stdout is not None
    job.stdout.readline()
    say("job", "talks")
    trace = record(job, role)
    say("recorded", f"{RECORDED_S} s")
    keeper.terminate()
    job.kill()
    times, _ = keeper.communicate()
    say("handed over", f"{hand_over(share_memory(), role, trace, times)} bytes")


def main() -> None:
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    if len(sys.argv) == 3:
        part, role = sys.argv[1], int(sys.argv[2])
        talk(role) if part == "talk" else keep_time(share_memory(), role)
        return
    found = re.search(r"role=(\d)", Path("/proc/cmdline").read_text())
    try:
        run(int(found[1]) if found else 0)
        say("done", "yes")
    except Exception as error:
        say("clocks", f"WRONG: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
