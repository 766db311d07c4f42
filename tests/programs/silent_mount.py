"""A job on a FUSE mount that stops answering: its libraries, its /tmp, even the pages of its environment.

silent_mount.py LIBRARY [tmp] [environment]: serves a copy of LIBRARY as libtorch_cpu.so, maps it, says `ready PID`, and
from then on the mount answers nothing. With `tmp` it lies on /tmp, too; with `environment` the pages that the kernel
reads the environment from are mapped from it (which it refuses to: CVE-2018-1120).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
import time
from pathlib import Path

_INIT, _LOOKUP, _GETATTR, _OPEN, _READ, _FORGET, _RELEASE, _FLUSH = 26, 1, 3, 14, 15, 2, 18, 25
_IN, _OUT = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
_ROOT, _FILE = 1, 2
_HOUR = 3600
_MAP_FIXED = 0x10
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def attributes(node: int, size: int) -> bytes:
    mode = 0o40755 if node == _ROOT else 0o100755
    return struct.pack("<6Q10I", node, size, size // 512 + 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def reply(opcode: int, node: int, body: bytes, content: bytes) -> bytes | int:
    """Return what is answered, or the number of an error."""
    if opcode == _INIT:
        return struct.pack("<4I2H2I2HI7I", 7, 31, 1 << 17, 0, 12, 9, 1 << 17, 1, 32, 0, 0, *[0] * 7)
    if opcode == _LOOKUP:
        return struct.pack("<4Q2I", _FILE, 0, _HOUR, _HOUR, 0, 0) + attributes(_FILE, len(content))
    if opcode == _GETATTR:
        return struct.pack("<QII", _HOUR, 0, 0) + attributes(node, len(content) if node == _FILE else 0)
    if opcode == _OPEN:
        return struct.pack("<QII", 1, 0, 0)
    if opcode == _READ:
        _, offset, size = struct.unpack_from("<QQI", body)
        return content[offset : offset + size]
    return b"" if opcode in (_FLUSH, _RELEASE) else 38


def serve(device: int, content: bytes, until: int) -> None:
    """Answer until a pipe says that no more is answered; what was taken by then stays unanswered."""
    os.set_blocking(until, False)
    while True:
        data = os.read(device, 1 << 20)
        try:
            silent = os.read(until, 1) != b""
        except BlockingIOError:
            silent = False
        if silent:
            break
        _, opcode, unique, node, *_ = _IN.unpack_from(data)
        if opcode == _FORGET:
            continue
        answer = reply(opcode, node, data[_IN.size :], content)
        error, answer = (-answer, b"") if isinstance(answer, int) else (0, answer)
        os.write(device, _OUT.pack(_OUT.size + len(answer), error, unique) + answer)
    while True:
        os.read(device, 1 << 20)  # a request that was taken cannot even be killed


def mount(place: str, content: bytes) -> int:
    """Mount a file system on a folder; returns the pipe by which it falls silent."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"silent", place.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), place)
    until, fall_silent = os.pipe()
    if os.fork() == 0:
        libc.prctl(1, 9)  # ends with the job
        serve(device, content, until)
    os.close(device)
    return fall_silent


def main() -> None:
    content = Path(sys.argv[1]).read_bytes()
    wanted = sys.argv[2:]
    if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, (1 << 14) | (1 << 18), None):
        raise OSError(ctypes.get_errno(), "unshare")
    place = "/mnt"
    silent = [mount(place, content)]
    file = os.open(f"{place}/libtorch_cpu.so", os.O_RDONLY)
    mapped = libc.mmap(None, len(content), mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file, 0)
    ctypes.string_at(mapped, 1)
    if "tmp" in wanted:
        silent.append(mount("/tmp", b""))
    for each in silent:
        os.write(each, b"!")
    os.write(1, f"ready {os.getpid()}\n".encode())
    time.sleep(0.2)
    if "environment" in wanted:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        begin, end = (int(fields[47]) + 4095) & ~4095, int(fields[48]) & ~4095  # whole pages from env_start to env_end
        far = len(content) // 2 & ~4095  # not in the page cache yet
        libc.mmap(begin, end - begin, mmap.PROT_READ, mmap.MAP_PRIVATE | _MAP_FIXED, file, far)
        os.write(1, b"mapped\n")
    while True:
        libc.usleep(100000)


if __name__ == "__main__":
    main()
