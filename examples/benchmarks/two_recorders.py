"""Whether two recorders of one process count the same, with more packets than the hooks are shown. Needs root.

    python examples/benchmarks/two_recorders.py [--runs 3] [--connections 4] [--seconds 12] [--rate 5gbit]

A process sends and receives on some connections at once, as fast as its link allows, on CPUs too slow for that:
on some virtual machines hooks are not called then for milliseconds, and packets overtake each other. Each stream's
payload, bytes sent again, packets and bytes on the wire have to be the same for both, and payload what TCP says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _places import NETPROF
from _speed import say_speed
from lab import Lab

PEER = """
import socket, sys, threading, time
address, count, until = sys.argv[1], int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
def send(connection):
    while time.monotonic() < until:
        connection.sendall(bytes(1 << 20))
    connection.shutdown(socket.SHUT_WR)
def receive(connection):
    while connection.recv(1 << 20):
        pass
if address:
    held = [socket.create_connection((address, 7000)) for _ in range(count)]
else:
    listener = socket.create_server(("", 7000))
    print("listens", flush=True)
    held = [listener.accept()[0] for _ in range(count)]
threads = [threading.Thread(target=work, args=(each,)) for each in held for work in (send, receive)]
[each.start() for each in threads]
[each.join() for each in threads]
"""
BEFORE_S, AFTER_S = 3, 3
AMOUNTS = ["payload_bytes", "retransmitted_bytes", "packets", "wire_bytes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--rate", default="5gbit")
    options = parser.parse_args()
    say_speed()
    alike = streams = 0
    for number in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            first, second = record(Path(folder), options)
            for stream in sorted({*first, *second}):
                same = first.get(stream) == second.get(stream)
                alike, streams = alike + same, streams + 1
                if not same:
                    print(f"run {number}, {stream}: {first.get(stream)}, {second.get(stream)}")
    print(f"{alike} of {streams} streams are the same for both: {', '.join(AMOUNTS)}")


def record(folder: Path, options: argparse.Namespace) -> list[dict[tuple[int, int], list[int]]]:
    """Return what each recorder counted of each stream: by the far port and the direction."""
    count, seconds = str(options.connections), str(options.seconds)
    with Lab(2, rate=options.rate) as lab:
        mine = lab[0].popen([sys.executable, "-c", PEER, "", count, seconds], stdout=subprocess.PIPE, text=True)
        assert mine.stdout is not None
        mine.stdout.readline()
        length = f"{options.seconds + BEFORE_S + AFTER_S}s"
        command = [NETPROF, "attach", str(mine.pid), "--no-live", "--json", "--duration", length, "--out"]
        recorders = [
            subprocess.Popen([*command, str(folder / name)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for name in ("a", "b")
        ]
        time.sleep(BEFORE_S)
        far = lab[1].popen([sys.executable, "-c", PEER, lab[0].ipv4, count, seconds])
        for process in (far, mine, *recorders):
            if process.wait(options.seconds + 60):
                raise SystemExit(f"a process ended with {process.returncode}")
    return [counted(folder / name) for name in ("a", "b")]


def counted(trace: Path) -> dict[tuple[int, int], list[int]]:
    """Return what a recorder counted, which TCP's own totals have to agree with."""
    from netprof.trace import TraceReader

    said = subprocess.run([NETPROF, "report", str(trace), "--json"], capture_output=True, check=True, text=True).stdout
    report = json.loads(said)
    flows, reader = report["reconciliation"]["flows"], TraceReader(trace)
    print(f"  {report['losses']['healed_bytes'] / 1e6:.0f} MB that no hook saw; TCP's totals hold:", end=" ")
    print(all(each["tcp"]["received_bytes"] == each["counted"]["received_bytes"] for each in flows))
    ports = reader.table("flows").to_pandas().set_index("flow_id").remote_port
    sums = reader.table("wire").to_pandas().groupby(["flow_id", "direction"])[AMOUNTS].sum()
    return {
        (int(ports[flow]), int(direction)): [int(value) for value in row]
        for (flow, direction), row in zip(sums.index, sums.to_numpy().tolist(), strict=True)
    }


if __name__ == "__main__":
    main()
