"""Runs netprof without permission for the system call bpf(), as a container's filter has it."""

import ctypes
import platform
import runpy
import struct

BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
LOAD_NUMBER, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, NOT_PERMITTED = 0x7FFF0000, 0x00050000 | 1


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def main() -> None:
    lines = [(LOAD_NUMBER, 0, 0, 0), (IF_EQUAL, 0, 1, BPF), (RETURN, 0, 0, NOT_PERMITTED), (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = Program(len(lines), ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0) == 0
    runpy.run_module("netprof", run_name="__main__")


main()
