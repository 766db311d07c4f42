"""The base transport header of InfiniBand, which RoCEv2 carries over UDP (IBTA specification, volume 1, chapter 9)."""

from __future__ import annotations

import numpy as np

from netprof.probes.capture.packets import Bool, Int64

PORT = 4791
HEADER_BYTES, CHECK_BYTES = 12, 4  # the header, and the invariant CRC at the end
CNP = 0x81

_RC, _UC, _RD, _UD, _XRC = 0x00, 0x20, 0x40, 0x60, 0xA0
_OPERATION, _TRANSPORT = 0x1F, 0xE0
_READ_REQUEST, _ACKNOWLEDGE = 0x0C, 0x11
_RESPONSES = (0x0D, 0x0E, 0x0F, 0x10, 0x12)  # of reads and atomics: numbered as the requests of the other side
_LAST = (0x02, 0x03, 0x04, 0x05, 0x08, 0x09, 0x0A, 0x0B, 0x0F, 0x10, 0x16, 0x17)  # of a message: LAST and ONLY

_IMMEDIATE, _RETH, _AETH, _DETH, _RDETH, _XRCETH = 4, 16, 4, 8, 4, 4
_EXTENDED = {
    **dict.fromkeys((0x03, 0x05, 0x09), _IMMEDIATE),
    **dict.fromkeys((0x06, 0x0A, 0x0C), _RETH),
    0x0B: _RETH + _IMMEDIATE,
    **dict.fromkeys((0x0D, 0x0F, 0x10, 0x11), _AETH),
    0x12: _AETH + 8,
    **dict.fromkeys((0x13, 0x14), 28),  # AtomicETH
    **dict.fromkeys((0x16, 0x17), 4),  # IETH: the key that is made invalid
}
_CARRIES = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 22, 23}


def _extended_bytes(opcode: int) -> int:
    transport, operation = opcode & _TRANSPORT, opcode & _OPERATION
    of_transport = {_RD: _RDETH, _UD: _DETH, _XRC: _XRCETH}.get(transport, 0)
    if transport == _RD and (operation < 0x0D or operation in (0x13, 0x14)):
        of_transport += _DETH
    if transport == _XRC and operation in (*_RESPONSES, _ACKNOWLEDGE):
        of_transport = 0
    return of_transport + _EXTENDED.get(operation, 0)


_TRANSPORTS = (_RC, _UC, _RD, _UD, _XRC)
_EXTENDED_BYTES = np.array([_extended_bytes(o) if o & _TRANSPORT in _TRANSPORTS else 0 for o in range(256)])
_HAS_PAYLOAD = np.array([o & _TRANSPORT in _TRANSPORTS and o & _OPERATION in _CARRIES for o in range(256)])


def payload_bytes(opcode: Int64, after_header: Int64, padding: Int64) -> Int64:
    """Return the application's bytes of packets that hold `after_header` bytes behind the base transport header."""
    left = after_header - _EXTENDED_BYTES[opcode] - padding - CHECK_BYTES
    return np.where(_HAS_PAYLOAD[opcode], np.maximum(left, 0), 0)


def has_syndrome(opcode: Int64) -> Bool:
    """Say whose extended header begins with an acknowledgement's (AETH), of connected transports without more."""
    operation, transport = opcode & _OPERATION, opcode & _TRANSPORT
    return np.asarray(np.isin(transport, (_RC, _XRC)) & np.isin(operation, (0x0D, 0x0F, 0x10, 0x11, 0x12)))


def is_response(opcode: Int64) -> Bool:
    """Say what answers a read or an atomic operation: it is numbered as the other side's requests are."""
    return np.asarray(np.isin(opcode & _OPERATION, _RESPONSES) & np.isin(opcode & _TRANSPORT, (_RC, _RD, _XRC)))


def is_next(former: Int64, opcode: Int64) -> Bool:
    """Say which packets have the number after the former one, if none passed in between.

    A request to read takes as many numbers as it has responses, and responses have those that requests leave to them:
    only within a message these follow one another.
    """
    inside = np.isin(former & _OPERATION, _RESPONSES[:2]) & np.isin(opcode & _OPERATION, _RESPONSES[1:3])
    return np.where(is_response(opcode), inside, former & _OPERATION != _READ_REQUEST)


def is_numbered(opcode: Int64) -> Bool:
    """Say whose sequence number, if seen before, means that it is sent again.

    Acknowledgements repeat numbers by design, and datagrams to one queue pair may come from several.
    """
    transport = opcode & _TRANSPORT
    return np.asarray(np.isin(transport, (_RC, _UC, _XRC)) & (opcode & _OPERATION != _ACKNOWLEDGE))


def ends_message(opcode: Int64) -> Bool:
    """Say which packets are the last ones (or the only ones) of a message that carries data."""
    return np.asarray(np.isin(opcode & _OPERATION, _LAST) & np.isin(opcode & _TRANSPORT, _TRANSPORTS))


def is_negative(syndrome: Int64) -> Bool:
    """Say which acknowledgements are negative: a packet is missing, a request cannot be done, or nobody is ready."""
    return np.asarray((syndrome >= 0) & np.isin(syndrome & 0x60, (0x20, 0x60)))
