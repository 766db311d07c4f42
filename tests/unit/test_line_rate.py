"""What queueing disciplines limit, as the kernel describes them; real devices are in integration/test_line_rate.py."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

from netprof.probes.kernel.netlink import attributes
from netprof.probes.kernel.rtnetlink import IFF_LOWER_UP, IFF_UP, Link, TrafficControl
from netprof.probes.nic.line_rate import _rate, rate_text
from netprof.probes.nic.shaping import flow_rate_bps, shaping

ROOT = 0xFFFFFFFF
INGRESS = 0xFFFFFFF1
GBIT = 1_000_000_000
GBIT_BYTES = GBIT // 8


def handle(major: int, minor: int = 0) -> int:
    return major << 16 | minor


def attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", len(payload) + 4, kind) + payload + bytes(-len(payload) % 4)


def ratespec(bytes_per_s: int) -> bytes:
    return struct.pack("=BBHhHI", 0, 1, 0, -1, 0, min(bytes_per_s, 0xFFFFFFFF))


def entry(kind: str, own: int, parent: int, options: bytes = b"", **counters: int) -> TrafficControl:
    return TrafficControl(kind, own, parent, options, counters.get("sent", 0), counters.get("packets", 0))


def tbf(own: int, parent: int, bytes_per_s: int, **counters: int) -> TrafficControl:
    options = attribute(1, ratespec(bytes_per_s) + ratespec(0) + struct.pack("=III", 3000, 1000, 0))
    if bytes_per_s > 0xFFFFFFFF:
        options += attribute(4, struct.pack("=Q", bytes_per_s))
    return entry("tbf", own, parent, options, **counters)


def netem(own: int, parent: int, bytes_per_s: int = 0) -> TrafficControl:
    options = struct.pack("=IIIIII", 1000, 1000, 0, 0, 0, 0) + attribute(6, struct.pack("=IiIi", bytes_per_s, 0, 0, 0))
    return entry("netem", own, parent, options)


def htb(own: int, direct_packets: int = 0, **counters: int) -> TrafficControl:
    return entry("htb", own, ROOT, attribute(2, struct.pack("=IIIII", 3, 10, 0x10, 0, direct_packets)), **counters)


def htb_class(own: int, parent: int, rate: int, ceil: int, **counters: int) -> TrafficControl:
    options = attribute(1, ratespec(rate) + ratespec(ceil) + bytes(20))
    return entry("htb", own, parent, options, **counters)


def test_no_shaping() -> None:
    found = shaping([entry("fq_codel", 0, ROOT), entry("clsact", handle(0xFFFF), INGRESS)], [])
    assert (found.bps, found.remark) == (None, "")


@pytest.mark.parametrize("bytes_per_s", [GBIT_BYTES // 10, GBIT_BYTES, 100 * GBIT_BYTES])
def test_a_token_bucket_below_and_above_32_bits(bytes_per_s: int) -> None:
    found = shaping([tbf(handle(1), ROOT, bytes_per_s)], [])
    assert (found.bps, found.source) == (bytes_per_s * 8, "tbf")


def test_a_token_bucket_under_netem() -> None:
    found = shaping([netem(handle(1), ROOT), tbf(handle(2), handle(1, 1), GBIT_BYTES)], [])
    assert (found.bps, found.source) == (GBIT, "tbf")


def test_the_lower_of_netems_rate_and_a_token_bucket() -> None:
    found = shaping([netem(handle(1), ROOT, GBIT_BYTES // 4), tbf(handle(2), handle(1, 1), GBIT_BYTES)], [])
    assert (found.bps, found.source) == (GBIT / 4, "netem")


def test_cake() -> None:
    found = shaping([entry("cake", handle(1), ROOT, attribute(2, struct.pack("=Q", GBIT_BYTES)))], [])
    assert (found.bps, found.source) == (GBIT, "cake")


def test_a_token_bucket_on_a_band_that_carries_everything() -> None:
    qdiscs = [entry("prio", handle(1), ROOT, sent=10**9), tbf(handle(2), handle(1, 2), GBIT_BYTES, sent=10**9 - 1000)]
    found = shaping(qdiscs, [])
    assert (found.bps, found.source) == (GBIT, "tbf in prio class 1:2, 100.0 % of the bytes sent so far")


@pytest.mark.parametrize(("whole", "part"), [(10**9, 9 * 10**8), (10_000, 10_000), (0, 0)])
def test_a_token_bucket_on_one_band_is_not_the_devices_limit(whole: int, part: int) -> None:
    qdiscs = [entry("prio", handle(1), ROOT, sent=whole), tbf(handle(2), handle(1, 2), GBIT_BYTES, sent=part)]
    found = shaping(qdiscs, [])
    assert (found.bps, found.remark) == (None, "tbf limits only prio class 1:2")


def test_a_multiqueue_root_without_a_handle() -> None:
    queues = [entry("fq_codel", 0, handle(0, number)) for number in (1, 2, 3)]
    assert shaping([entry("mq", 0, ROOT), *queues], []).bps is None


def test_an_htb_root_class_gets_its_rate_and_a_leaf_its_ceil() -> None:
    top = htb_class(handle(1, 0x10), ROOT, GBIT_BYTES, 4 * GBIT_BYTES)
    assert shaping([htb(handle(1))], [top]).bps == GBIT
    top = htb_class(handle(1, 1), ROOT, GBIT_BYTES, 4 * GBIT_BYTES)
    leaf = htb_class(handle(1, 0x10), handle(1, 1), GBIT_BYTES // 10, GBIT_BYTES // 2)
    assert shaping([htb(handle(1))], [top, leaf]).bps == GBIT / 2


def test_htb_classes_together_are_held_to_the_class_above_them() -> None:
    top = htb_class(handle(1, 1), ROOT, GBIT_BYTES, GBIT_BYTES)
    leaves = [htb_class(handle(1, minor), handle(1, 1), GBIT_BYTES // 10, GBIT_BYTES) for minor in (0x10, 0x20)]
    found = shaping([htb(handle(1))], [top, *leaves])
    assert (found.bps, found.source) == (GBIT, "htb, its 2 leaf classes together")


def test_the_htb_class_that_carries_everything_counts() -> None:
    top = htb_class(handle(1, 1), ROOT, GBIT_BYTES, GBIT_BYTES, sent=10**9)
    busy = htb_class(handle(1, 0x10), handle(1, 1), 1000, GBIT_BYTES // 4, sent=10**9)
    calm = htb_class(handle(1, 0x20), handle(1, 1), 1000, GBIT_BYTES, sent=0)
    found = shaping([htb(handle(1), sent=10**9)], [top, busy, calm])
    assert (found.bps, found.source) == (GBIT / 4, "htb class 1:10, 100.0 % of the bytes sent so far")


def test_an_htb_that_lets_traffic_bypass_its_classes_limits_nothing() -> None:
    leaf = htb_class(handle(1, 0x10), ROOT, GBIT_BYTES, GBIT_BYTES)
    found = shaping([htb(handle(1), direct_packets=500, packets=1000, sent=10**7)], [leaf])
    assert found.bps is None
    assert "bypasses" in found.remark
    assert shaping([htb(handle(1), direct_packets=5, packets=1000, sent=10**7)], [leaf]).bps == GBIT


def test_an_htb_that_sent_little_is_judged_by_its_default_class() -> None:
    default = htb_class(handle(1, 0x10), ROOT, GBIT_BYTES, GBIT_BYTES)
    other = htb_class(handle(1, 0x11), ROOT, GBIT_BYTES, GBIT_BYTES)
    few = htb(handle(1), direct_packets=3, packets=4, sent=300)  # of before there were classes
    assert shaping([few], [default]).bps == GBIT
    assert "bypasses" in shaping([few], [other]).remark


def test_a_discipline_that_netprof_cannot_read_is_named() -> None:
    assert "hfsc" in shaping([entry("hfsc", handle(1), ROOT)], []).remark


def test_a_malformed_run_of_attributes_is_cut_short() -> None:
    whole = attribute(1, b"abcd")
    assert attributes(whole + struct.pack("=HH", 400, 2) + b"x") == {1: b"abcd"}
    assert attributes(whole + struct.pack("=HH", 0, 2)) == {1: b"abcd"}
    assert attributes(b"\x01") == {}


@pytest.mark.parametrize(
    ("bps", "text"),
    [(25e9, "25 Gbit/s"), (2.5e9, "2.5 Gbit/s"), (1e8, "100 Mbit/s"), (9600.0, "9.6 kbit/s"), (8.0, "8 bit/s")],
)
def test_rates_as_people_write_them(bps: float, text: str) -> None:
    assert rate_text(bps) == text


def test_the_rate_that_fq_holds_each_flow_to() -> None:
    unlimited = entry("fq", handle(2), ROOT, attribute(7, struct.pack("=I", 0xFFFFFFFF)))
    held = entry("fq", handle(1), ROOT, attribute(7, struct.pack("=I", GBIT_BYTES // 5)))
    assert flow_rate_bps([unlimited, held]) == GBIT / 5
    assert flow_rate_bps([unlimited, tbf(handle(1), ROOT, 1)]) is None
    assert shaping([held], []).bps is None  # of a flow, not of the device


def test_a_bond_is_as_fast_as_its_members_that_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver adds those up; the speed of one that is down is not known, and does not matter."""
    speeds = {b"bond0": 25.0 * GBIT, b"eth0": 25.0 * GBIT, b"eth1": None}
    monkeypatch.setattr("netprof.probes.nic.line_rate.ethtool.speed_bps", speeds.__getitem__)
    monkeypatch.setattr("netprof.probes.nic.line_rate.ethtool.driver", lambda name: "mlx5_core")
    route = SimpleNamespace(qdiscs=lambda index: [], classes=lambda index: [])
    up = IFF_UP | IFF_LOWER_UP
    links = {
        1: Link(1, "bond0", b"bond0", up, 1500, "bond", 0, None, 0),
        2: Link(2, "eth0", b"eth0", up, 1500, "", 0, None, 1),
        3: Link(3, "eth1", b"eth1", IFF_UP, 1500, "", 0, None, 1),
    }
    found = _rate(links[1], links, route)  # type: ignore[arg-type]
    assert found.bps == 25.0 * GBIT
    assert found.source == "ethtool: 25 Gbit/s (bond of 1; one flow gets at most 25 Gbit/s)"
    unknown = _rate(links[1], {1: links[1], 3: links[3]}, route)  # type: ignore[arg-type]
    assert unknown.source == "unknown: bond bond0: it has no member whose link is up"
