"""One of two processes that do not train: what no_iterations_score.py records."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

import torch
import torch.distributed as dist

RANK, PORT = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
_SERVED = PORT + 10_000


def startup(draw: random.Random) -> None:
    """Try to reach a store at an address where nobody listens, again and again."""
    pause = draw.uniform(0.02, 0.3)
    print("ready", flush=True)
    while True:
        with socket.socket() as tried:
            tried.settimeout(0.2)
            tried.connect_ex((f"127.0.0.{draw.randint(2, 9)}", _SERVED))
        time.sleep(pause)


def idle(draw: random.Random) -> None:
    """Be in a process group, and do nothing."""
    dist.init_process_group("gloo")
    print("ready", flush=True)
    time.sleep(600)


def heartbeats(draw: random.Random) -> None:
    """Write to the store and read from it, in some rhythm."""
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    pause, size = draw.uniform(0.005, 0.4), draw.randint(1, 400)
    print("ready", flush=True)
    while True:
        store.set(f"alive{RANK}", "x" * size)
        store.get(f"alive{RANK}")
        time.sleep(pause)


def evaluation(draw: random.Random) -> None:
    """Run forward passes, and all-reduce a metric after each few."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    model, batch = torch.nn.Linear(512, 512), torch.randn(draw.randint(8, 256), 512)
    pause, every = draw.uniform(0.0, 0.05), draw.randint(1, 20)
    print("ready", flush=True)
    while True:
        with torch.no_grad():
            for _ in range(every):
                model(batch)
                time.sleep(pause)
        dist.all_reduce(torch.ones(draw.randint(1, 4)))


def download(draw: random.Random) -> None:
    """Fetch chunks of some size from a server of one's own, in some rhythm."""
    chunk, pause = draw.randint(20_000, 2_000_000), draw.uniform(0.0, 0.2)
    client = _connected(lambda peer: _serve(peer, chunk))
    print("ready", flush=True)
    while True:
        client.sendall(b"GET")
        _read(client, chunk)
        time.sleep(pause)


def upload(draw: random.Random) -> None:
    """Send parts of a checkpoint, each of which is acknowledged, in some rhythm."""
    part, pause = bytes(draw.randint(50_000, 4_000_000)), draw.uniform(0.05, 0.5)
    client = _connected(lambda peer: _take(peer, len(part)))
    print("ready", flush=True)
    while True:
        client.sendall(part)
        _read(client, 3)
        time.sleep(pause)


def _connected(serve: Callable[[socket.socket], None]) -> socket.socket:
    """Return a connection to a server in a process that is none of the job's."""
    server = socket.create_server(("127.0.0.1", _SERVED + RANK))
    if os.fork() == 0:
        os.setsid()
        threading.Timer(120, os._exit, [0]).start()
        serve(server.accept()[0])
        os._exit(0)
    server.close()
    return socket.create_connection(("127.0.0.1", _SERVED + RANK))


def _serve(peer: socket.socket, size: int) -> None:
    while peer.recv(3):
        peer.sendall(bytes(size))


def _take(peer: socket.socket, size: int) -> None:
    while True:
        _read(peer, size)
        peer.sendall(b"ack")


def _read(connection: socket.socket, size: int) -> None:
    while size > 0:
        got = len(connection.recv(min(size, 1 << 20)))
        if not got:
            os._exit(0)
        size -= got


KINDS: Mapping[str, Callable[[random.Random], None]] = {
    "startup": startup,
    "idle": idle,
    "heartbeats": heartbeats,
    "evaluation": evaluation,
    "download": download,
    "upload": upload,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    threading.Timer(120, os._exit, [0]).start()
    KINDS[sys.argv[1]](random.Random(int(sys.argv[2])))
