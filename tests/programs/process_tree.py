"""A tree of processes that looks like a training job to whoever reads /proc: `process_tree.py JSON FILE`.

A node is {"label", "torch", "fork", "environment", "comm", "threaded", "connect", "children"}. With `torch` it maps a
file named libtorch_cpu.so; with `connect` it holds a connection to that port of loopback; with `fork` it is forked from
its parent, else executed with `environment` on top of its parent's; with `threaded` a second thread starts its
children, and lives on. Every process writes `label pid` to FILE, a descriptor by number, once its children exist, and
sleeps until it is killed.
"""

import ctypes
import json
import mmap
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any


def main(node: dict[str, Any], ready_fd: int) -> None:
    held = become(node), connect(node)
    if node.get("threaded"):
        started = threading.Event()
        threading.Thread(target=start_all, args=(node, ready_fd, started), daemon=True).start()
        started.wait()
    else:
        start_all(node, ready_fd)
    os.write(ready_fd, f"{node['label']} {os.getpid()}\n".encode())
    time.sleep(300)
    del held


def start_all(node: dict[str, Any], ready_fd: int, started: threading.Event | None = None) -> None:
    for child in node.get("children", ()):
        start(child, ready_fd)
    if started:
        started.set()
        time.sleep(300)


def become(node: dict[str, Any]) -> mmap.mmap | None:
    if "comm" in node:
        ctypes.CDLL(None).prctl(15, node["comm"].encode(), 0, 0, 0)
    if not node.get("torch"):
        return None
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "libtorch_cpu.so"
        path.write_bytes(bytes(4096))
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)


def connect(node: dict[str, Any]) -> socket.socket | None:
    return socket.create_connection(("127.0.0.1", node["connect"])) if node.get("connect") else None


def start(child: dict[str, Any], ready_fd: int) -> None:
    if child.get("fork"):
        if os.fork() == 0:
            main(child, ready_fd)
            os._exit(0)
        return
    environment = {**os.environ, **child.get("environment", {})}
    command = [sys.executable, __file__, json.dumps(child), str(ready_fd)]
    subprocess.Popen(command, env=environment, pass_fds=[ready_fd])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
