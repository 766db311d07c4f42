"""Sends a megabyte to itself over loopback ten times a second, until it is killed; prints its pid first."""

import os
import socket
import threading
import time

MEGABYTE = 1 << 20


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        threading.Thread(target=read, args=(far,), daemon=True).start()
        print(os.getpid(), flush=True)
        while True:
            near.sendall(bytes(MEGABYTE))
            time.sleep(0.1)


def read(far: socket.socket) -> None:
    while far.recv(MEGABYTE):
        pass


if __name__ == "__main__":
    main()
