"""Queue pairs from what the kernel says over rdma netlink, and the files of RDMA devices that processes have open."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from netprof.probes.kernel.netlink import attribute
from netprof.probes.rdma.port_finder import QueuePair, RdmaSocket, open_uverbs, queue_pairs

U32 = struct.Struct("=I")
DEV_INDEX, DEV_NAME, PORT, RES_QP, RES_QP_ENTRY, LQPN, RQPN, PID, KERN_NAME = 1, 2, 3, 19, 20, 21, 22, 28, 29


def number(kind: int, value: int) -> bytes:
    return attribute(kind, U32.pack(value))


class Told(RdmaSocket):
    """A socket with two devices, whose kernel answers what the test says."""

    def __init__(self, answers: dict[int, list[bytes]]) -> None:
        self._answers = answers

    def request(self, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        if kind == (5 << 10) + 1:
            yield number(DEV_INDEX, 0) + attribute(DEV_NAME, b"mlx5_0\0") + number(PORT, 1)
            yield number(DEV_INDEX, 3) + attribute(DEV_NAME, b"efa_0\0") + number(PORT, 1)
        elif kind == (5 << 10) + 10:
            yield from self._answers[U32.unpack(body[4:8])[0]]


def entry(*parts: bytes) -> bytes:
    return attribute(RES_QP_ENTRY, b"".join(parts))


def test_queue_pairs_of_processes_are_told() -> None:
    connected = entry(number(PORT, 1), number(LQPN, 0x112), number(RQPN, 0x99), number(PID, 4242))
    datagram = entry(number(LQPN, 7), number(PID, 4243))
    kernels = entry(number(LQPN, 1), attribute(KERN_NAME, b"ib_core\0"))
    answer = number(DEV_INDEX, 0) + attribute(DEV_NAME, b"mlx5_0\0") + attribute(RES_QP, connected + kernels)
    told = Told({0: [answer, answer[:20]], 3: [attribute(RES_QP, datagram)]})
    assert told.queue_pairs() == [QueuePair("mlx5_0", 1, 4242, 0x112, 0x99), QueuePair("efa_0", 0, 4243, 7, 0)]


def test_a_kernel_without_rdma_says_so() -> None:
    if Path("/sys/class/infiniband").exists():
        pytest.skip("this kernel has RDMA")
    with pytest.raises(OSError):  # noqa: PT011
        queue_pairs()


def test_open_files_of_rdma_devices_are_found(tmp_path: Path) -> None:
    file = tmp_path / "infiniband" / "uverbs3"
    file.parent.mkdir()
    file.touch()
    with file.open():
        assert open_uverbs([os.getpid(), 1 << 22]) == {os.getpid(): {"uverbs3"}}
    assert open_uverbs([os.getpid()]) == {}
