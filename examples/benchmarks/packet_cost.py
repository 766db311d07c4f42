"""What the flow probe costs a packet, and a link that is all packets. Needs root and clang.

    python examples/benchmarks/packet_cost.py [--pairs 60]

One TCP connection between two namespaces, offloads off, so that every packet is MTU-sized and passes the hooks by
itself: the worst case. First table: the kernel's own run time of each program (BPF statistics on), beside an empty
program on the same hook at the same time. Second: bytes per second with and without the probe, neighbouring windows in
ABBA order, with the A/A control beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import _places  # noqa: F401 - finds lab
from _pairs import ratio_of_pairs
from lab import Host, Lab

from netprof.probes.flow.probe import FlowProbe
from netprof.probes.kernel import loader

WINDOW_S = 0.5
EMPTY = r"""
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("tp_btf/net_dev_start_xmit") int empty_sent(void *context) { return 0; }
SEC("tp_btf/tcp_probe") int empty_received(void *context) { return 0; }
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"""
RECEIVER = """
import socket
listener = socket.create_server(("0.0.0.0", 5000))
print("listening", flush=True)
peer, _ = listener.accept()
buffer = bytearray(1 << 20)
while peer.recv_into(buffer):
    pass
"""
SENDER = """
import socket, sys
peer = socket.create_connection((sys.argv[1], 5000))
print("connected", flush=True)
data = bytes(1 << 20)
try:
    while True:
        peer.sendall(data)
except ConnectionError:  # the receiver was killed first: all is measured
    pass
"""


def empty_object(directory: Path) -> loader.BpfObject:
    """Compile and load the programs that do nothing."""
    source = directory / "empty.bpf.c"
    source.write_text(EMPTY)
    include = (
        f"-I/usr/include/{subprocess.run(['gcc', '-print-multiarch'], capture_output=True, text=True).stdout.strip()}"
    )
    output = str(directory / "empty.bpf.o")
    subprocess.run(["clang", "-O2", "-g", "-target", "bpf", include, "-c", str(source), "-o", output], check=True)
    ours, loader.object_path = loader.object_path, lambda name: directory / f"{name}.bpf.o"
    try:
        return loader.BpfObject("empty")
    finally:
        loader.object_path = ours


def start_traffic(lab: Lab) -> list[int]:
    """Send as fast as can be from host 0 to host 1; returns both pids."""
    receiver = lab[1].popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    receiver.stdout.readline()
    sender = lab[0].popen([sys.executable, "-c", SENDER, lab[1].ipv4], stdout=subprocess.PIPE, text=True)
    assert sender.stdout is not None
    sender.stdout.readline()
    return [sender.pid, receiver.pid]


def run_times(pids: list[int], seconds: float) -> dict[str, tuple[float, int]]:
    """Return (ns per run, runs) of the packet programs and of the empty ones, counted at the same time."""
    with ExitStack() as stack:
        empty = stack.enter_context(empty_object(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        probe = stack.enter_context(attached(pids))
        for program in empty.programs():
            empty.attach(program)
        with loader.run_time_statistics():
            time.sleep(seconds)
        programs = [(empty, name) for name in ("empty_sent", "empty_received")]
        programs += [(probe.objects[0], name) for name in ("packet_sent", "packet_received")]
        measured = {name: loader.program_statistics(owner.program_fd(name)) for owner, name in programs}
    return {name: (time_ns / max(runs, 1), runs) for name, (time_ns, runs) in measured.items()}


def attached(pids: list[int]) -> FlowProbe:
    """Attach the flow probe to both ends."""
    probe = FlowProbe(1_000_000)
    for pid in pids:
        probe.targets.add(pid)
    probe.follow(())
    return probe


def throughput(host: Host) -> float:
    """Return the bytes per second that leave a host in one window."""
    before, begin = host.counters()["tx_bytes"], time.monotonic()
    time.sleep(WINDOW_S)
    after, end = host.counters()["tx_bytes"], time.monotonic()
    return (after - before) / (end - begin)


def with_probe(host: Host, pids: list[int]) -> Callable[[bool], float]:
    def measure(present: bool) -> float:
        if not present:
            return throughput(host)
        with attached(pids) as probe:
            value = throughput(host)
            probe.drain()
        return value

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60)
    options = parser.parse_args()
    with Lab(offloads=False) as lab:
        pids = start_traffic(lab)
        times = run_times(pids, 5.0)
        print(f"{'hook':22} {'program':>9} {'empty':>9} {'over empty':>11} {'runs':>10}")
        for hook, ours, empty in (
            ("net_dev_start_xmit", "packet_sent", "empty_sent"),
            ("tcp_probe", "packet_received", "empty_received"),
        ):
            over_ns = times[ours][0] - times[empty][0]
            print(
                f"{hook:22} {times[ours][0]:6.0f} ns {times[empty][0]:6.0f} ns {over_ns:8.0f} ns {times[ours][1]:10d}"
            )
        print(f"\nbytes per second, with / without ({throughput(lab[0]) / 1e6:.0f} MB/s)")
        control = ratio_of_pairs(lambda _: throughput(lab[0]), options.pairs)
        print(f"A/A, nothing attached   {control}")
        print(f"flow probe on both ends {ratio_of_pairs(with_probe(lab[0], pids), options.pairs)}")


if __name__ == "__main__":
    main()
