"""A process that calls libnccl in the rhythm of training, through ctypes, as each line of its input says.

    nccl_train.py LIBRARY[:PREFIX]... PORT

With a PREFIX in place of `nccl` in the functions' names, of libraries that have them under other ones.

`call` calls every function once, with arguments that follow from its number, and prints them as JSON. `train N` runs
N iterations of computing, then all-reduces in a group, then waiting for them; it prints the bytes that each moved.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any

P, SIZE, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
FLOAT32, BFLOAT16, SUM = 7, 9, 0
COLLECTIVES: dict[str, tuple[list[Any], str]] = {
    # name: what stands between the datatype and the communicator, and the mark
    "ncclAllReduce": ([INT], "NCCL_ALL_REDUCE"),
    "ncclAllGather": ([], "NCCL_ALL_GATHER"),
    "ncclReduceScatter": ([INT], "NCCL_REDUCE_SCATTER"),
    "ncclBroadcast": ([INT], "NCCL_BROADCAST"),
    "ncclReduce": ([INT, INT], "NCCL_REDUCE"),
    "ncclAlltoAll": ([], "NCCL_ALL_TO_ALL"),
    "ncclGather": ([INT], "NCCL_GATHER"),
    "ncclScatter": ([INT], "NCCL_SCATTER"),
}
BUCKETS = ((250_000, FLOAT32), (500_000, BFLOAT16))


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)

    @property
    def head(self) -> int:
        """The first 8 bytes, as a number."""
        return int.from_bytes(bytes(self)[:8], "little")


IDS = [UniqueId(bytes(range(first, first + 128))) for first in (1, 50, 128)]


class Renamed:
    """A library whose functions have `prefix` in place of `nccl` in their names."""

    def __init__(self, path: str, prefix: str) -> None:
        self._lib, self._prefix = ctypes.CDLL(path), prefix

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lib, name.replace("nccl", self._prefix))


class Nccl:
    """One loaded library."""

    def __init__(self, path: str) -> None:
        self.lib = Renamed(*path.split(":")) if ":" in path else ctypes.CDLL(path)
        for name, (between, _) in COLLECTIVES.items():
            getattr(self.lib, name).argtypes = [P, P, SIZE, INT, *between, P, P]
        self.lib.ncclAllReduceConfig.argtypes = [P, P, SIZE, INT, INT, P, P, P]
        self.lib.ncclBcast.argtypes = self.lib.ncclSend.argtypes = self.lib.ncclRecv.argtypes = [
            P,
            SIZE,
            INT,
            INT,
            P,
            P,
        ]
        self.lib.ncclCommInitRank.argtypes = [P, INT, UniqueId, INT]
        self.lib.ncclCommInitRankConfig.argtypes = [P, INT, UniqueId, INT, P]
        self.lib.ncclCommInitRankScalable.argtypes = [P, INT, INT, INT, P, P]
        self.lib.ncclCommInitAll.argtypes = [P, INT, P]
        self.lib.ncclCommSplit.argtypes = [P, INT, INT, P, P]
        self.lib.ncclCommShrink.argtypes = [P, P, INT, P, P, INT]
        self.lib.ncclCommDestroy.argtypes = self.lib.ncclCommAbort.argtypes = [P]

    def communicator(self, ranks: int) -> int:
        handle = P()
        self.lib.ncclCommInitRank(ctypes.byref(handle), ranks, UniqueId(), 0)
        return handle.value or 0


def call_each(nccl: Nccl) -> dict[str, Any]:
    """Call every function; returns the rows that a recording has to hold, by mark."""
    lib, rows, handle = nccl.lib, [], P()
    lib.ncclCommInitRank(ctypes.byref(handle), 8, IDS[0], 3)
    communicator = handle.value or 0
    rows.append(["NCCL_COMM_INIT", 8, ctypes.addressof(handle), 0])
    rows.append(["NCCL_COMM_RANK", 3, IDS[0].head, ctypes.addressof(handle)])
    lib.ncclGroupStart()
    for number, (name, (between, mark)) in enumerate(COLLECTIVES.items()):
        for datatype in range(12):
            count, stream = 1000 * number + datatype, 0x7FFF_0000_0000 + 16 * number
            getattr(lib, name)(None, None, count, datatype, *([1] * len(between)), communicator, stream)
            rows.append([mark, count, stream << 8 | datatype, communicator])
    lib.ncclBcast(None, 5, FLOAT32, 1, communicator, 1)
    lib.ncclAllReduceConfig(None, None, 6, FLOAT32, SUM, communicator, 2, None)
    lib.ncclSend(None, 7, BFLOAT16, 1, communicator, 0x10)
    lib.ncclRecv(None, 8, BFLOAT16, 1, communicator, 0x20)
    rows.append(["NCCL_BROADCAST", 5, 1 << 8 | FLOAT32, communicator])
    rows.append(["NCCL_ALL_REDUCE", 6, 2 << 8 | FLOAT32, communicator])
    rows.append(["NCCL_SEND", 7, 0x10 << 8 | BFLOAT16, communicator])
    rows.append(["NCCL_RECEIVE", 8, 0x20 << 8 | BFLOAT16, communicator])
    lib.ncclGroupEnd()
    part, rest, pair, other, large = P(), P(), (P * 2)(), P(), P()
    lib.ncclCommSplit(communicator, 0, 0, ctypes.byref(part), None)
    lib.ncclCommShrink(communicator, None, 3, ctypes.byref(rest), None, 0)
    lib.ncclCommInitAll(ctypes.addressof(pair), 2, None)
    lib.ncclCommInitRankConfig(ctypes.byref(other), 16, IDS[1], 15, None)
    lib.ncclCommInitRankScalable(ctypes.byref(large), 32, 31, 2, (UniqueId * 2)(IDS[2], IDS[0]), None)
    rows.append(["NCCL_COMM_SPLIT", communicator, ctypes.addressof(part), 0])
    rows.append(["NCCL_COMM_SHRINK", communicator, 3, ctypes.addressof(rest)])
    rows.append(["NCCL_COMM_INIT", 2, ctypes.addressof(pair), 0])
    rows.append(["NCCL_COMM_INIT", 16, ctypes.addressof(other), 0])
    rows.append(["NCCL_COMM_RANK", 15, IDS[1].head, ctypes.addressof(other)])
    rows.append(["NCCL_COMM_INIT", 32, ctypes.addressof(large), 0])
    rows.append(["NCCL_COMM_RANK", 31, IDS[2].head, ctypes.addressof(large)])
    lib.ncclCommDestroy(part)
    lib.ncclCommAbort(rest)
    rows.append(["NCCL_COMM_END", part.value, 0, 0])
    rows.append(["NCCL_COMM_END", rest.value, 0, 0])
    return {"rows": rows, "groups": 1}


def train(nccl: Nccl, communicator: int, iterations: int) -> dict[str, Any]:
    """Run iterations; returns when each began to enqueue, and the bytes that each enqueued."""
    enqueue_ns = []
    for _ in range(iterations):
        time.sleep(0.02)
        enqueue_ns.append(time.monotonic_ns())
        nccl.lib.ncclGroupStart()
        for count, datatype in BUCKETS:
            nccl.lib.ncclAllReduce(None, None, count, datatype, SUM, communicator, 0x1000)
        nccl.lib.ncclGroupEnd()
        nccl.lib.stub_synchronize()
    bytes_each = sum(count * {FLOAT32: 4, BFLOAT16: 2}[datatype] for count, datatype in BUCKETS)
    return {"enqueue_ns": enqueue_ns, "bytes": bytes_each}


def main() -> None:
    *paths, port = sys.argv[1:]
    libraries = [Nccl(path) for path in paths]
    communicators = [0] * len(libraries)
    if int(port):
        assert libraries[0].lib.stub_connect(b"127.0.0.1", int(port)) == 0
    print(json.dumps({"pid": "ready"}), flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        answer: dict[str, Any] = {}
        if command == "call":
            answer = {"libraries": [call_each(library) for library in libraries]}
        elif command == "init":
            communicators = [library.communicator(int(words[0])) for library in libraries]
        elif command == "train":
            answer = train(libraries[0], communicators[0], int(words[0]))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
