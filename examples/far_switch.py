"""A switch in user space that keeps every packet for a while, as a long way would: netem is not in every kernel.

    python examples/far_switch.py MILLISECONDS [--rate=100mbit] [--only=DEVICE] [--swap=N] DEVICE...

Run it in a network namespace that holds the devices (the other ends of the hosts' links); `forwarding` on stdout says
that it works. Packets are passed on as large as they come, so that some Gbit/s go through. With a rate each port sends
no faster, and what has to wait waits in a queue that no device shows. With `--only` the way is long for what comes from
that device, and short for all else. With `--swap` every Nth packet is overtaken by the next. examples/lab.py uses it.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping

_SOL_PACKET, _PACKET_IGNORE_OUTGOING, _PACKET_VNET_HDR = 263, 23, 15
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_VNET_HEADER_BYTES = 10  # in front of each packet: how it is to be segmented, and whether its checksum is missing
_BUFFER_BYTES = 32 << 20
_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_BROADCAST = 1  # the bit of an address's first byte


def port(device: str) -> socket.socket:
    """Return a socket that gets whatever arrives at a device, and sends from it."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
        opened.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    opened.bind((device, 3))  # ETH_P_ALL
    opened.setblocking(False)
    return opened


class Switch:
    """Passes packets on, each its port's delay after it came, to the port where its receiver was last heard of."""

    def __init__(self, delay_s: Mapping[socket.socket, float], bits_per_s: float = 0.0, swap_every: int = 0) -> None:
        self.ports, self.delay_s, self.bits_per_s, self.swap_every = list(delay_s), delay_s, bits_per_s, swap_every
        self.free_s: dict[socket.socket, float] = {}  # when a port has sent what it was given
        self.home: dict[bytes, socket.socket] = {}
        self.waiting: dict[socket.socket, deque[tuple[float, bytes]]] = {each: deque() for each in delay_s}  # by origin
        self.sending: dict[socket.socket, deque[tuple[float, bytes]]] = {}  # by port, when each is sent

    def run(self) -> None:
        """Pass packets on for ever."""
        while True:
            due = [each[0][0] for each in self.sending.values() if each]
            due += [each[0][0] for each in self.waiting.values() if each]
            timeout = max(0.0, min(due) - time.monotonic()) if due else None
            for came_to in select.select(self.ports, [], [], timeout)[0]:
                self.take(came_to)
            self.pass_on()

    def take(self, came_to: socket.socket) -> None:
        """Keep what has come to a port."""
        due, packets = time.monotonic() + self.delay_s[came_to], []
        for _ in range(64):  # the other ports, and what is due, have their turn as well
            try:
                packets.append(came_to.recv(1 << 17))
            except BlockingIOError:
                break
        for at in range(self.swap_every, len(packets), self.swap_every) if self.swap_every else ():
            packets[at - 1], packets[at] = packets[at], packets[at - 1]
        self.waiting[came_to].extend((due, packet) for packet in packets)

    def pass_on(self) -> None:
        """Send what is due."""
        now = time.monotonic()
        while come := [(each[0][0], port) for port, each in self.waiting.items() if each and each[0][0] <= now]:
            _, came_to = min(come, key=lambda each: each[0])
            due, packet = self.waiting[came_to].popleft()
            receiver, sender = (packet[_VNET_HEADER_BYTES + at :][:6] for at in (0, 6))
            self.home[sender] = came_to
            known = None if receiver[0] & _BROADCAST else self.home.get(receiver)
            if known and self.bits_per_s:
                begin = max(due, self.free_s.get(known, 0.0))
                self.free_s[known] = end = begin + len(packet) * 8 / self.bits_per_s
                self.sending.setdefault(known, deque()).append((end, packet))
                continue
            for target in [known] if known else self.ports:
                if target is not came_to:
                    send(target, packet)
        for target, packets in self.sending.items():
            while packets and packets[0][0] <= now:
                send(target, packets.popleft()[1])


def send(target: socket.socket, packet: bytes) -> None:
    """Send a packet; where there is no room it is lost, as in any switch."""
    try:
        target.send(packet)
    except OSError as error:
        print(f"lost {len(packet)} bytes: {error}", file=sys.stderr, flush=True)


def main() -> None:
    """Open the ports and pass packets on."""
    rates = [argument.removeprefix("--rate=") for argument in sys.argv[2:] if argument.startswith("--rate=")]
    only = [argument.removeprefix("--only=") for argument in sys.argv[2:] if argument.startswith("--only=")]
    swaps = [int(argument.removeprefix("--swap=")) for argument in sys.argv[2:] if argument.startswith("--swap=")]
    devices = [argument for argument in sys.argv[2:] if not argument.startswith("--")]
    bits_per_s = float(rates[0][:-4]) * _BITS[rates[0][-4:]] if rates else 0.0
    delay_s = float(sys.argv[1]) / 1e3
    delays_s = {port(each): delay_s if not only or each in only else 0.0 for each in devices}
    switch = Switch(delays_s, bits_per_s, *swaps)
    print("forwarding", flush=True)
    switch.run()


if __name__ == "__main__":
    main()
