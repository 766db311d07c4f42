"""Stubs of NCCL's network and of plugins, compiled, and processes that post to them."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "programs"
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the stub needs g++ to be compiled")


def compiled(library: Path, *options: str) -> Path:
    """Compile the stub as `library`; as in the real one its functions are not exported, but named in .symtab."""
    flags = ["-O0", "-shared", "-fPIC", "-fvisibility=hidden"]
    if platform.machine() == "x86_64":
        flags.append("-fcf-protection=none")
    library.parent.mkdir(parents=True, exist_ok=True)
    source = PROGRAMS / "nccl_net_stub.cc"
    subprocess.run(["g++", "-w", *flags, *options, str(source), "-o", str(library)], check=True)
    return library


def real_library() -> Path | None:
    """Return the file that NETPROF_NCCL names, or libnccl.so.2 of an installed wheel, or what examples/get_nccl got."""
    if named := os.environ.get("NETPROF_NCCL"):
        return Path(named)
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        spec = None
    installed = [Path(place) / "lib" for place in (spec.submodule_search_locations or [])] if spec else []
    places = [each / "libnccl.so.2" for each in (*installed, *sorted(_cache().glob("nccl-*")))]
    return next((place for place in places if place.exists()), None)


def _cache() -> Path:
    own = os.environ.get("NETPROF_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "netprof"


class Poster:
    """A process that posts to the network of a library, and the peer that takes its bytes."""

    def __init__(self, library: Path, environment: Mapping[str, str] | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        port = str(self._listener.getsockname()[1])
        command = [sys.executable, str(PROGRAMS / "nccl_net_run.py"), str(library), port]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        self.pid = self.process.pid
        assert self._answer() == "ready"

    def say(self, line: str) -> int:
        """Have it do something; returns how long that took, in ns."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return int(self._answer())

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(30)
        self._listener.close()
        return code

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=_take, args=(peer,), daemon=True).start()


def _take(peer: socket.socket) -> None:
    try:
        while peer.recv(1 << 20):
            pass
    except OSError:
        pass
