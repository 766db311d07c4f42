"""A tunnel in user space, as some VPNs have it: tun0 here and there, and UDP between.

    python examples/lab_tunnel.py LOCAL_ADDRESS REMOTE_ADDRESS

Run it in a network namespace at each end; `up` on stdout says that tun0 is there. examples/lab_paths.py uses it.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import sys

_TUNSETIFF, _TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
_PORT = 51820
_AT_ONCE = 64


def main() -> None:
    """Copy packets both ways until killed."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", b"tun0", _TUN_WITHOUT_HEADER))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outside:
        outside.bind((sys.argv[1], _PORT))
        outside.connect((sys.argv[2], _PORT))
        outside.setblocking(False)
        outside.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
        print("up", flush=True)
        while True:
            for ready in select.select([device, outside.fileno()], [], [])[0]:
                copy(device, outside, inwards=ready != device)


def copy(device: int, outside: socket.socket, *, inwards: bool) -> None:
    """Copy some packets one way; what cannot be copied now is lost."""
    for _ in range(_AT_ONCE):
        try:
            if inwards:
                os.write(device, outside.recv(2000))
            else:
                outside.send(os.read(device, 2000))
        except BlockingIOError:
            return
        except OSError:
            continue


if __name__ == "__main__":
    main()
