"""Hosts on one machine: network namespaces joined by a shaped link. Needs root, `ip` and `tc`.

    with Lab(rate="1gbit") as lab:
        server = lab[0].popen(["iperf3", "-s"])

Two hosts are joined by a veth pair; more of them, or `switch=True`, by a bridge in a namespace of its own. Leaving
the `with` kills what still runs inside and removes everything, also after ctrl-C and SIGTERM. What a `kill -9`
left behind is removed by the next lab on the machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_interface
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from lab_links import (
    CONGESTION_CONTROL,
    NETNS_DIR,
    LabError,
    add_namespace,
    add_veth,
    fit_packets,
    lose,
    mirror,
    offloads_off,
    run,
    shape,
)

__all__ = ["NETNS_DIR", "Host", "Lab", "LabError", "remove_leftovers", "run"]

_PREFIX = "nplab"
_AT_ONCE = {4: (), 6: ("nodad",)}  # by IP version, what an address needs to be used at once
_FAR_SWITCH = Path(__file__).parent / "far_switch.py"
_counter = iter(range(1_000_000))


@dataclass
class Host:
    """One network namespace with a single device towards the others."""

    netns: str
    device: str
    ipv4: str
    ipv6: str
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)

    @property
    def network(self) -> str:
        """The IPv4 network that all hosts are in."""
        return f"{self.ipv4.rpartition('.')[0]}.0/24"

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` as a command that runs inside this host (it keeps the pid: no process in between)."""
        return ["nsenter", f"--net={NETNS_DIR / self.netns}", "--", *argv]

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program inside this host; it is killed when the lab ends."""
        process = subprocess.Popen(self.command(argv), **options)
        self.processes.append(process)
        return process

    def run(self, *argv: str) -> str:
        """Run a command inside this host and return its stdout. Raises LabError."""
        return run(*self.command(argv))

    def ip(self, *argv: str) -> str:
        """Run `ip` on this host's namespace. Raises LabError."""
        return run("ip", "-netns", self.netns, *argv)

    def tc(self, *argv: str) -> str:
        """Run `tc` on this host's namespace. Raises LabError."""
        return run("tc", "-netns", self.netns, *argv)

    def shape(self, rate: str, latency: str = "50ms") -> None:
        """Let this host send at `rate` at most, by a token bucket on its device, from now on. Raises LabError."""
        fit_packets(self.netns, self.device, rate)
        shape(self.netns, self.device, rate, latency)

    def counters(self) -> dict[str, int]:
        """Return the interface's own counters: tx_bytes, rx_bytes, tx_packets, rx_packets, ..."""
        lines = self.run("cat", "/proc/net/dev").splitlines()
        numbers = next(line.split(":")[1].split() for line in lines if line.strip().startswith(self.device + ":"))
        names = {"rx_bytes": 0, "rx_packets": 1, "rx_errors": 2, "rx_drops": 3}
        names |= {"tx_bytes": 8, "tx_packets": 9, "tx_errors": 10, "tx_drops": 11}
        return {name: int(numbers[column]) for name, column in names.items()}


class Lab:
    """`hosts` hosts on one link, as a context manager.

    - `rate`, `latency`: the token bucket (tbf) on every host's device; no `rate`, no shaping.
    - `loss_percent`: random loss behind the sender's device, as in a real network: where packets enter the switch,
      or, on a plain pair, the other host. By a BPF filter, as netem is not in every kernel. Needs clang. With
      offloads on, a lost packet can be 64 KB.
    - `offloads=False`: segmentation and receive offloads off, so that packets are MTU-sized everywhere.
    - `delay_ms`: every packet takes so much longer, through a switch in user space (far_switch.py); with `delay_of`
      only what that host sends, and with `swap_every` every Nth packet is overtaken by the next.
    - `switch=True`: a bridge in a namespace of its own between the hosts (always so for more than two).
    - `bridged_host=True`: the bridge is inside host 0 and carries its address, as Docker and libvirt do it: every
      packet passes two devices of that host.
    """

    def __init__(
        self,
        hosts: int = 2,
        *,
        rate: str = "",
        latency: str = "50ms",
        loss_percent: float = 0.0,
        delay_ms: float = 0.0,
        delay_of: int | None = None,
        swap_every: int = 0,
        offloads: bool = True,
        switch: bool = False,
        bridged_host: bool = False,
    ) -> None:
        self.rate, self.latency = rate, latency
        self.loss_percent, self.delay_ms, self.delay_of = loss_percent, delay_ms, delay_of
        self.swap_every = swap_every
        self.offloads = offloads
        self.bridged_host = bridged_host
        self.switched = (switch or hosts > 2 or delay_ms > 0) and not bridged_host
        self.name = f"{_PREFIX}.{os.getpid()}.{_start_ticks(os.getpid())}.{next(_counter)}"
        self.switch_netns = f"{self.name}.switch"
        self.hosts = [self._host(index) for index in range(hosts)]
        self._old_handler: Any = None

    def _host(self, index: int) -> Host:
        bridge = self.bridged_host and index == 0
        return Host(f"{self.name}.{index}", "br0" if bridge else "eth0", f"10.77.0.{index + 1}", f"fd77::{index + 1}")

    def beside(self, index: int) -> Host:
        """Return where another program runs that shares a host's link: on that host."""
        return self.hosts[index]

    def __getitem__(self, index: int) -> Host:
        return self.hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts)

    def __enter__(self) -> Lab:
        remove_leftovers()
        if threading.current_thread() is threading.main_thread():
            self._old_handler = signal.signal(signal.SIGTERM, _exit_on_signal)
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def shape_towards(self, index: int, rate: str, latency: str = "50ms") -> None:
        """Let the switch send to a host at `rate` at most: nothing on that host tells. Raises LabError."""
        for host in self.hosts:
            fit_packets(host.netns, host.device, rate)
        shape(self.switch_netns, f"port{index}", rate, latency)

    def block(self, index: int, blocked: bool) -> None:
        """Let the switch drop whatever comes from or goes to a host, or no longer. Raises LabError."""
        state = "disabled" if blocked else "forwarding"
        run("bridge", "-netns", self.switch_netns, "link", "set", "dev", f"port{index}", "state", state)

    def set_port(self, index: int, *what: str) -> None:
        """Change the switch's port to a host, as `ip link set` does. Raises LabError."""
        run("ip", "-netns", self.switch_netns, "link", "set", "dev", f"port{index}", *what)

    def mirror(self, index: int) -> str:
        """Return a device of the switch on which a copy of all packets from and to a host comes in. Raises LabError."""
        ends = [f"mirror{index}", f"monitor{index}"]
        run("ip", "-netns", self.switch_netns, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for end in ends:
            run("ip", "-netns", self.switch_netns, "link", "set", end, "up")
        mirror(self.switch_netns, f"port{index}", ends[0])
        return ends[1]

    def close(self) -> None:
        """Kill what runs inside, and remove namespaces, devices and qdiscs."""
        for process in (process for host in self.hosts for process in host.processes):
            process.kill()
        for path in NETNS_DIR.glob(f"{self.name}.*"):
            _remove_namespace(path.name)
        for process in (process for host in self.hosts for process in host.processes):
            process.wait()
        if self._old_handler is not None:
            signal.signal(signal.SIGTERM, self._old_handler)
            self._old_handler = None

    def _build(self) -> None:
        for host in self.hosts:
            add_namespace(host.netns)
        if self.switched:
            add_namespace(self.switch_netns)
            self._join(self.switch_netns, self.hosts)
        elif self.bridged_host:
            self._join(self.hosts[0].netns, self.hosts[1:])
        else:
            first, second = self.hosts
            add_veth(first.netns, first.device, second.netns, second.device)
        for host in self.hosts:
            self._configure(host)

    def _join(self, netns: str, members: Sequence[Host]) -> None:
        if not self.delay_ms:
            run("ip", "-netns", netns, "link", "add", "br0", "type", "bridge")
            run("ip", "-netns", netns, "link", "set", "br0", "up")
        for index, host in enumerate(members):
            port = f"port{index}"
            add_veth(netns, port, host.netns, host.device)
            run("ip", "-netns", netns, "link", "set", port, "up", *([] if self.delay_ms else ["master", "br0"]))
            if not self.offloads:
                offloads_off(netns, port)
            if self.loss_percent:
                lose(netns, port, self.loss_percent)
        if self.delay_ms:
            self._start_far_switch(netns, [f"port{index}" for index in range(len(members))])

    def _start_far_switch(self, netns: str, ports: Sequence[str], rate: str = "") -> None:
        command = ["nsenter", f"--net={NETNS_DIR / netns}", "--", sys.executable, str(_FAR_SWITCH), str(self.delay_ms)]
        command += [f"--rate={rate}"] if rate else []
        command += [] if self.delay_of is None else [f"--only=port{self.delay_of}"]
        command += [f"--swap={self.swap_every}"] if self.swap_every else []
        switch = subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, text=True)
        self.hosts[0].processes.append(switch)
        if switch.stdout is None or not switch.stdout.readline():
            raise LabError("the switch that delays packets did not start (its own words are above)")

    def _configure(self, host: Host) -> None:
        if not self.offloads and host.device != "br0":
            offloads_off(host.netns, host.device)
        host.ip("link", "set", host.device, "up")
        for address in (ip_interface(f"{host.ipv4}/24"), ip_interface(f"{host.ipv6}/64")):
            host.ip("address", "add", str(address), "dev", host.device, "noprefixroute", *_AT_ONCE[address.version])
            route = ["route", "add", str(address.network), "dev", host.device]
            host.ip(f"-{address.version}", *route, "congctl", CONGESTION_CONTROL)
        if self.rate:
            host.shape(self.rate, self.latency)
        if self.loss_percent and not self.switched and not self.bridged_host:
            lose(host.netns, host.device, self.loss_percent)


def remove_leftovers() -> None:
    """Remove the namespaces of labs whose process is gone (killed before it could clean up)."""
    for path in NETNS_DIR.glob(f"{_PREFIX}.*"):
        pid, ticks = path.name.split(".")[1:3]
        if _start_ticks(int(pid)) != int(ticks):
            _remove_namespace(path.name)


def _start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot: with the pid, it is unique. 0: no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _remove_namespace(netns: str) -> None:
    for pid in subprocess.run(["ip", "netns", "pids", netns], capture_output=True, text=True).stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            continue
    # Deleting the name is not enough while a dying process still holds the namespace: its devices go first.
    for device in ("br0", "eth0", "e0", "e1", "e10", *(f"port{index}" for index in range(64))):
        done = subprocess.run(["ip", "-netns", netns, "link", "delete", device], capture_output=True)
        if done.returncode and device.startswith("port"):
            break
    subprocess.run(["ip", "netns", "delete", netns], capture_output=True)
