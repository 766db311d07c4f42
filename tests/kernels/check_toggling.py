"""Runs inside a guest: tracefs alone switches tracepoints on and off under load, and netprof is not there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

EVENTS = Path("/sys/kernel/tracing/events")
TRACEPOINTS = (
    *("net/net_dev_start_xmit", "net/net_dev_xmit", "net/net_dev_queue", "net/netif_receive_skb", "tcp/tcp_probe"),
    *("sched/sched_switch", "sched/sched_waking"),
)


def say(text: str) -> None:
    print(f"check: {text}", flush=True)


def send_for_ever() -> None:
    """Send datagrams over loopback and take them."""
    taker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taker.bind(("127.0.0.1", 0))
    taker.setblocking(False)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(taker.getsockname())
    while True:
        for _ in range(50):
            sender.send(bytes(100))
        with suppress(BlockingIOError):
            while True:
                taker.recv(200)


def switch(on: bool) -> None:
    for tracepoint in TRACEPOINTS:
        with suppress(FileNotFoundError):
            (EVENTS / tracepoint / "enable").write_text(str(int(on)))


def main() -> None:
    if sys.argv[1:]:
        send_for_ever()
    words = Path("/proc/cmdline").read_text().split()
    until_s = time.monotonic() + next(float(word[8:]) for word in words if word.startswith("seconds="))
    say(f"begins on {os.uname().release}")
    for _ in range(2):
        subprocess.Popen([sys.executable, "-S", __file__, "send"])
    times = 0
    while time.monotonic() < until_s:
        switch(True)
        (EVENTS.parent / "trace").write_text("")
        switch(False)
        times += 1
    say(f"bore it {times} times")


if __name__ == "__main__":
    main()
