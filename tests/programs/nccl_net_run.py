"""A process that posts to the network of a stub of NCCL, as each line of its input says.

    nccl_net_run.py LIBRARY PORT

`send CONNECTION MESSAGES BYTES REFUSALS RATE`, `share CONNECTION OPERATIONS BYTES REFUSALS`,
`receive CONNECTION MESSAGES BYTES REFUSALS [TOGETHER]` and `busy CONNECTION MESSAGES BYTES SPIN_NS` answer with the
nanoseconds that it took. Connections have any name; one that begins with `dry` moves no bytes.
"""

from __future__ import annotations

import ctypes
import sys

U64 = ctypes.c_uint64


def main() -> None:
    path, port = sys.argv[1], int(sys.argv[2])
    library = ctypes.CDLL(path)
    library.stub_connect.restype = ctypes.c_void_p
    library.stub_run.restype = library.stub_busy.restype = U64
    library.stub_run.argtypes = [ctypes.c_void_p, U64, U64, ctypes.c_int, ctypes.c_double]
    library.stub_receive.argtypes = [ctypes.c_void_p, U64, ctypes.c_int64, ctypes.c_int, ctypes.c_int]
    library.stub_share.argtypes = [ctypes.c_void_p, U64, U64, ctypes.c_int]
    library.stub_busy.argtypes = [ctypes.c_void_p, U64, U64, U64]
    connections: dict[str, int] = {}
    print("ready", flush=True)
    for line in sys.stdin:
        command, name, *rest = line.split()
        if name not in connections:
            connections[name] = library.stub_connect(b"127.0.0.1", 0 if name.startswith("dry") else port)
            assert connections[name], "nobody listens"
        took_ns = 0
        if command == "send":
            took_ns = library.stub_run(connections[name], *map(int, rest[:3]), float(rest[3]))
        elif command == "share":
            library.stub_share(connections[name], *map(int, rest))
        elif command == "receive":
            messages, size, refusals, together = map(int, [*rest, 1][:4])
            library.stub_receive(connections[name], messages, size, refusals, together)
        elif command == "busy":
            took_ns = library.stub_busy(connections[name], *map(int, rest))
        print(took_ns, flush=True)


if __name__ == "__main__":
    main()
