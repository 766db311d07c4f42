"""What a device's driver says of itself: its name and its link speed."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

from netprof.probes.kernel.rtnetlink import device_name

_SIOCETHTOOL = 0x8946
_GET_DRIVER_INFO, _GET_STRINGS, _GET_STATISTICS, _GET_SET_INFO, _GET_LINK_SETTINGS = 0x03, 0x1B, 0x1D, 0x37, 0x4C
_OFFLOADS = {"tso": 0x1E, "gso": 0x23, "gro": 0x2B, "rx-checksum": 0x14, "sg": 0x18}  # ETHTOOL_GTSO and so on
_STATISTICS_SET = 1  # ETH_SS_STATS
_STRING_BYTES = 32  # ETH_GSTRING_LEN
_MOST_STATISTICS = 1 << 16
_DRIVER_INFO_BYTES = 196  # sizeof(struct ethtool_drvinfo)
_LINK_SETTINGS_BYTES = 48  # sizeof(struct ethtool_link_settings), without its masks
_MASK_WORDS_OFFSET = 15
_SPEED_UNKNOWN = (0, 0xFFFFFFFF)


def driver(device: bytes) -> str:
    """Return the name of the driver of `device` in the calling thread's namespace, "" where it gives none."""
    answer = _ask(device, struct.pack("=I", _GET_DRIVER_INFO).ljust(_DRIVER_INFO_BYTES, b"\0"))
    return device_name(answer[4:36].split(b"\0")[0])


def speed_bps(device: bytes) -> float | None:
    """Return the link speed in bits per second that the driver reports, None where it reports none."""
    request = struct.pack("=I", _GET_LINK_SETTINGS).ljust(_LINK_SETTINGS_BYTES, b"\0")
    handshake = _ask(device, request)  # the kernel answers the first call with minus the length of its bit masks
    if not handshake:
        return None
    words = -struct.unpack_from("=b", handshake, _MASK_WORDS_OFFSET)[0]
    if words <= 0:
        return None
    sized = bytearray(request + bytes(3 * 4 * words))
    sized[_MASK_WORDS_OFFSET] = words
    answer = _ask(device, bytes(sized))
    if not answer:
        return None
    megabits = struct.unpack_from("=I", answer, 4)[0]
    return None if megabits in _SPEED_UNKNOWN else megabits * 1e6


def offloads_off(device: bytes) -> list[str]:
    """Return which of the offloads that save much CPU are off; one that the device does not know is not among them."""
    answers = {name: _ask(device, struct.pack("=II", command, 0)) for name, command in _OFFLOADS.items()}
    return [name for name, answer in answers.items() if len(answer) >= 8 and not struct.unpack_from("=I", answer, 4)[0]]


def statistics(device: bytes) -> dict[str, int]:
    """Return the driver's own counters of a device, by name; none where it has none. Costs milliseconds on some."""
    count = _count(device)
    heads = struct.pack("=III", _GET_STRINGS, _STATISTICS_SET, count), struct.pack("=II", _GET_STATISTICS, count)
    names = _ask(device, heads[0] + bytes(_STRING_BYTES * count)) if count else b""
    values = _ask(device, heads[1] + bytes(8 * count)) if names else b""
    if not values:
        return {}
    texts = (text.split(b"\0")[0] for (text,) in struct.iter_unpack(f"{_STRING_BYTES}s", names[12:]))
    return dict(zip(map(device_name, texts), struct.unpack_from(f"={count}Q", values, 8), strict=True))


def _count(device: bytes) -> int:
    answer = _ask(device, struct.pack("=IIQI", _GET_SET_INFO, 0, 1 << _STATISTICS_SET, 0))
    has_any = len(answer) >= 20 and struct.unpack_from("=Q", answer, 8)[0]
    return min(int(struct.unpack_from("=I", answer, 16)[0]), _MOST_STATISTICS) if has_any else 0


def _ask(device: bytes, request: bytes) -> bytes:
    """Send one ethtool command and return the kernel's answer, b"" where the driver does not know the command."""
    buffer = ctypes.create_string_buffer(request, len(request))
    interface_request = struct.pack("16sP16x", device, ctypes.addressof(buffer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SIOCETHTOOL, interface_request)
        except OSError:
            return b""
    return buffer.raw
