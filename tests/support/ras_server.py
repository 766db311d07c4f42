"""NCCL's RAS as it answers over TCP: the protocol and texts of src/ras/client_support.cc, of made-up communicators."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

OPERATIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv")


@dataclass
class Rank:
    rank: int
    pid: int
    host: str = "127.0.0.1"
    collectives: int = 0
    missing: bool = False
    dead: bool = False
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    abort_flag: bool = False

    @property
    def document(self) -> dict[str, Any]:
        whose = {"rank": self.rank, "host": self.host, "pid": self.pid, "cuda_dev": 0, "nvml_dev": 0}
        if self.missing:
            return whose | {"status": {"unresponsive": True, "considered_dead": self.dead}}
        status = {"init_state": self.init_state, "async_error": self.async_error}
        status |= {"finalize_called": self.finalize_called, "destroy_flag": False, "abort_flag": self.abort_flag}
        counts = dict.fromkeys(OPERATIONS, 0) | {"AllReduce": self.collectives}
        return whose | {"status": status, "collective_counts": counts}


@dataclass
class Communicator:
    hash: int
    ranks: Sequence[Rank]
    size: int = 0

    @property
    def document(self) -> dict[str, Any]:
        here, gone = ([each for each in self.ranks if each.missing is missing] for missing in (False, True))
        return {
            "hash": f"{self.hash:#x}",
            "secondary_hash": "0xabc:0xdef",
            "size": self.size or len(self.ranks),
            "ranks_count": len(here),
            "missing_ranks_count": len(gone),
            "ranks": [each.document for each in here],
            "missing_ranks": [each.document for each in gone],
        }


@dataclass
class RasServer:
    """Listens on a port of its own until closed. `speaks_json` is NCCL 2.28.7 and later; `said` is what it was told."""

    communicators: list[Communicator]
    speaks_json: bool = True
    greeting: str = "SERVER PROTOCOL 2\n"
    answer: str | None = None
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"localhost:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # else the thread that accepts holds it open
        self._listener.close()

    def __enter__(self) -> RasServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with client, client.makefile("rw", newline="\n") as lines:
            as_json = False
            for line in lines:
                command = line.strip().lower()
                self.said.append(command)
                if command.startswith("client protocol "):
                    reply = self.greeting
                elif command == "set format json" and self.speaks_json:
                    as_json, reply = True, "OK\n"
                elif command in ("status", "verbose status"):
                    lines.write(self.answer if self.answer is not None else self._status(as_json))
                    lines.flush()
                    return  # as RAS does
                else:
                    reply = f"ERROR: Unknown command {line.strip()}\n"
                lines.write(reply)
                lines.flush()

    def _status(self, as_json: bool) -> str:
        if not as_json:
            return self._text()
        document = {
            "nccl_version": "2.28.9+cuda12.9",
            "cuda_runtime_version": 12090,
            "cuda_driver_version": 12080,
            "timestamp": "2026-01-01 12:00:00",
            "communicators_count": len(self.communicators),
            "communicators": [each.document for each in self.communicators],
            "ras": {"collection_time_sec": 0.001, "timeouts_count": 0},
        }
        return json.dumps(document, indent=2) + "\n"

    def _text(self) -> str:
        """What NCCL 2.24 to 2.28.3 says."""
        lines = ["NCCL version 2.27.3 compiled with CUDA 12.9", "CUDA runtime version 12090, driver version 12080", ""]
        lines += ["Job summary", "===========", "", "  Nodes  Processes         GPUs  Processes     GPUs"]
        lines += [
            "(total)   per node  per process    (total)  (total)",
            "      1          2            1          2        2",
            "",
        ]
        lines += ["Communicators... (0.00s)", "=============", ""]
        lines += ["Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors"]
        lines += ["    #  in group  per comm  per node  per comm  in group"]
        for number, each in enumerate(self.communicators):
            size = each.size or len(each.ranks)
            errors = "INCOMPLETE" if any(rank.missing for rank in each.ranks) else "OK"
            lines.append(f"{number:5}  {1:8}  {1:8}  {size!s:>8}  {size:8}  {size:8}  {'RUNNING':>8}  {errors:>6}")
        lines += ["", "Errors", "======", ""]
        for number, each in enumerate(self.communicators):
            gone = [rank for rank in each.ranks if rank.missing]
            if gone:
                lines.append(f"#{number}-0 ({each.hash:016x}) INCOMPLETE")
                lines.append(f"  Missing communicator data from {len(gone)} rank{'s' if len(gone) > 1 else ''}")
                lines += [f"  Rank {one.rank} -- GPU 0 managed by process {one.pid} on node {one.host}" for one in gone]
                lines.append("")
        return "\n".join([*lines, "Warnings", "========", "", ""])
