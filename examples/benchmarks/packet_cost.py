"""What the flow probe costs a packet, and a link that is all packets. Needs root and clang.

    python examples/benchmarks/packet_cost.py [--pairs 60]

One TCP connection between two namespaces, offloads off, so that every packet is MTU-sized and passes the hooks by
itself: the worst case. First table: the kernel's own run time of each program (BPF statistics on) over that of a
program that does nothing, at the same hook and time: of ours on packets of the job and of strangers, and of programs
that do one of its parts, reading the clock and finding the socket's owner. Second: bytes per second with and without
the probe, neighbouring windows in ABBA order, beside the A/A control and programs that do nothing at the same hooks.
Last: a packet that the kernel drops, the same way, where it leaves (a packet of the job) and where it enters (no
packet has an owner there yet).
"""

from __future__ import annotations

import argparse
import os
import platform
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
from lab_links import lose

from netprof.probes.flow.probe import FlowProbe
from netprof.probes.kernel import loader

KERNEL_TYPES = Path(__file__).resolve().parents[2] / "probes" / "kernel"
WINDOW_S = 0.5
PARTS = r"""
#include "kernel_types.h"
#include <bpf/bpf_tracing.h>
char LICENSE[] SEC("license") = "Dual BSD/GPL";
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} storage SEC(".maps");
u64 clock_ns;

static __always_inline int look_up(struct sock *sk)
{
	u64 *value = sk ? bpf_sk_storage_get(&storage, sk, 0, BPF_SK_STORAGE_GET_F_CREATE) : NULL;
	if (value)
		*value += 1;
	return 0;
}

SEC("tp_btf/net_dev_start_xmit") int BPF_PROG(sent_nothing, struct sk_buff *skb) { return 0; }
SEC("tp_btf/tcp_probe") int BPF_PROG(received_nothing, struct sock *sk) { return 0; }
SEC("tp_btf/kfree_skb") int BPF_PROG(dropped_nothing, struct sk_buff *skb) { return 0; }
SEC("tp_btf/net_dev_start_xmit") int BPF_PROG(sent_clock, struct sk_buff *skb)
{ clock_ns = bpf_ktime_get_ns(); return 0; }
SEC("tp_btf/tcp_probe") int BPF_PROG(received_clock, struct sock *sk) { clock_ns = bpf_ktime_get_ns(); return 0; }
SEC("tp_btf/net_dev_start_xmit") int BPF_PROG(sent_owner, struct sk_buff *skb) { return look_up(skb->sk); }
SEC("tp_btf/tcp_probe") int BPF_PROG(received_owner, struct sock *sk) { return look_up(sk); }
"""
NOTHING = ("sent_nothing", "received_nothing")
LOSS_PERCENT = 1.0
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


def parts_object(directory: Path) -> loader.BpfObject:
    """Compile and load programs that do nothing, and one of the things that ours does, on the same hooks."""
    source, output = directory / "parts.bpf.c", directory / "parts.bpf.o"
    source.write_text(PARTS)
    multiarch = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True, check=True).stdout.strip()
    target = {"x86_64": "x86", "aarch64": "arm64"}[platform.machine()]
    flags = [f"-I{KERNEL_TYPES}", f"-I/usr/include/{multiarch}", f"-D__TARGET_ARCH_{target}"]
    subprocess.run(["clang", "-O2", "-g", "-target", "bpf", *flags, "-c", str(source), "-o", str(output)], check=True)
    ours, loader.object_path = loader.object_path, lambda name: directory / f"{name}.bpf.o"
    try:
        return loader.BpfObject("parts")
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


def run_times(pids: list[int], seconds: float) -> dict[str, float]:
    """Return the mean ns per run of the packet programs and of those that do a part, counted at the same time."""
    with ExitStack() as stack:
        parts = stack.enter_context(parts_object(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        probe = stack.enter_context(attached(pids))
        for program in parts.programs():
            parts.attach(program)
        with loader.run_time_statistics():
            time.sleep(seconds)
        programs = [(parts, name) for name in parts.programs()]
        programs += [(probe.objects[0], name) for name in ("packet_sent", "packet_received")]
        measured = {name: loader.program_statistics(owner.program_fd(name)) for owner, name in programs}
    return {name: time_ns / max(runs, 1) for name, (time_ns, runs) in measured.items()}


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
    """Return what measures with the flow probe on these processes, or without it."""

    def measure(present: bool) -> float:
        if not present:
            return throughput(host)
        with attached(pids) as probe:
            value = throughput(host)
            probe.drain()
        return value

    return measure


def with_nothing(host: Host, parts: loader.BpfObject) -> Callable[[bool], float]:
    """Return what measures with the programs that do nothing, or without them."""

    def measure(present: bool) -> float:
        links = [parts.attach(program) for program in NOTHING] if present else []
        try:
            return throughput(host)
        finally:
            for link in links:
                link.close()

    return measure


def print_run_times(ours: dict[str, float], strangers: dict[str, float]) -> None:
    """Print what the programs take beyond those that do nothing, and what that is made of."""
    print(f"{'hook':20} {'nothing':>9} {'clock':>8} {'owner':>8} {'all of it':>10} {'strangers':>10}  over nothing")
    for hook, way in (("net_dev_start_xmit", "sent"), ("tcp_probe", "received")):
        nothing, beside = ours[f"{way}_nothing"], strangers[f"{way}_nothing"]
        over = [ours[f"{way}_{part}"] - nothing for part in ("clock", "owner")] + [ours[f"packet_{way}"] - nothing]
        columns = "".join(f" {value:{width}.0f} ns" for value, width in zip(over, (5, 5, 7), strict=True))
        print(f"{hook:20} {nothing:6.0f} ns{columns} {strangers[f'packet_{way}'] - beside:7.0f} ns")


def drop_times(lab: Lab, pids: list[int]) -> None:
    """Print what a dropped packet costs over a program that does nothing, and of how many that is the mean."""
    for way, host in (("egress", lab[0]), ("ingress", lab[1])):
        lose(host.netns, host.device, LOSS_PERCENT, way)
        with ExitStack() as stack:
            parts = stack.enter_context(parts_object(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
            probe = stack.enter_context(attached(pids))
            parts.attach("dropped_nothing")
            with loader.run_time_statistics():
                time.sleep(5.0)
            programs = ((parts, "dropped_nothing"), (probe.objects[0], "packet_dropped"))
            nothing, ours = (loader.program_statistics(owner.program_fd(name)) for owner, name in programs)
        host.tc("filter", "del", "dev", host.device, way)
        least, mean = (time_ns / max(runs, 1) for time_ns, runs in (nothing, ours))
        print(f"kfree_skb, {way:8} {least:6.0f} ns {mean - least:25.0f} ns over nothing, {ours[1]} packets")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60)
    options = parser.parse_args()
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(offloads=False))
        pids = start_traffic(lab)
        print_run_times(run_times(pids, 5.0), run_times([os.getpid()], 5.0))
        parts = stack.enter_context(parts_object(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        print(f"\nbytes per second, with / without ({throughput(lab[0]) / 1e6:.0f} MB/s)")
        for name, measure in (
            ("A/A, nothing attached", lambda _: throughput(lab[0])),
            ("programs that do nothing", with_nothing(lab[0], parts)),
            ("flow probe on others", with_probe(lab[0], [os.getpid()])),
            ("flow probe on both ends", with_probe(lab[0], pids)),
        ):
            print(f"{name:25} {ratio_of_pairs(measure, options.pairs)}", flush=True)
        print()
        drop_times(lab, pids)


if __name__ == "__main__":
    main()
