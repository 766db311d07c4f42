"""What is counted of a capture's packets: by the rules of the kernel's program, whatever the blocks are."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib import roce
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import PcapNgWriter, wrpcap
from support.profiles import examples

from netprof.analysis import analyze
from netprof.errors import NetprofError, UsageError
from netprof.model import Meta
from netprof.probes.capture.capture import Capture
from netprof.probes.capture.connections import Streams
from netprof.probes.capture.file import CaptureFile
from netprof.probes.capture.flow_book import FlowBook, Hosts
from netprof.schema import RECEIVE, ROCE, TRANSMIT
from netprof.session.capture import CaptureOptions, import_capture, notes_of
from netprof.trace import TraceReader

MS = 1_000_000
BEGAN_S = 1_700_000_000
LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
A, B = "10.0.0.1", "10.0.0.2"
ISN = 2**32 - 5000  # so that numbers begin anew within every test
FARTHEST = 64 << 20
HEADERS = 54


def sent(offset: int, payload: int, flags: str = "A", isn: int = ISN) -> Packet:
    """A packet from A to B; `offset` is behind the SYN's number."""
    sequence = (isn + offset + (flags != "S")) % 2**32
    return LINK / IP(src=A, dst=B) / TCP(sport=1000, dport=80, seq=sequence, ack=1, flags=flags) / Raw(bytes(payload))


def answer(acknowledged: int) -> Packet:
    """What B says it has, from A's first byte on."""
    number = (ISN + 1 + acknowledged) % 2**32
    return LINK / IP(src=B, dst=A) / TCP(sport=80, dport=1000, seq=1, ack=number, flags="A")


def write(path: Path, packets: list[Packet], apart_ns: int = 100_000) -> Path:
    for number, each in enumerate(packets):
        each.time = BEGAN_S + number * apart_ns / 1e9
    wrpcap(str(path), packets)
    return path


def totals(path: Path, block_bytes: int = 1 << 20) -> dict[tuple[str, int], dict[str, int]]:
    """Return what was counted in all, by local address and direction."""
    found: dict[tuple[str, int], dict[str, int]] = {}
    address: dict[int, str] = {}
    with CaptureFile(path, block_bytes) as file:
        capture = Capture(file, FlowBook(Hosts().owner_of), MS, begin_ns=MS)
        for table, columns in capture.tables():
            if table == "flows":
                address |= dict(zip(columns["flow_id"], columns["local_addr"], strict=True))
            if table == "wire":
                names = ("payload_bytes", "retransmitted_bytes", "wire_bytes", "packets")
                for row in zip(
                    columns["flow_id"], columns["direction"], *(columns[name] for name in names), strict=True
                ):
                    sums = found.setdefault((address[int(row[0])], int(row[1])), dict.fromkeys(names, 0))
                    for name, value in zip(names, row[2:], strict=True):
                        sums[name] += int(value)
    return found


def as_the_kernel(segments: list[tuple[int, int]], receiving: bool) -> tuple[int, int]:
    """Return new and repeated payload, as flow_sequence.h counts what is sent, and what is received in order."""
    position = new = again = 0
    for offset, payload in segments:
        ahead, gap = offset + payload - position, offset - position
        if payload == 0:
            continue
        if ahead <= 0:
            again += payload
            continue
        if receiving:
            new += ahead
            again += payload - ahead if gap <= 0 else 0
        else:
            new += ahead if gap <= 0 else payload + gap
            again += payload - ahead if gap <= 0 else 0
        position = offset + payload
    return new, again


segments = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 3000)), min_size=1, max_size=40)


@pytest.mark.slow
@examples(60)
@given(segments, st.sampled_from([150, 4000, 1 << 20]))
def test_any_order_of_segments_counts_as_in_the_kernel(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, int]], block_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("order") / "a.pcap"
    write(path, [sent(0, 0, "S"), *(sent(*each) for each in made)])
    found = totals(path, block_bytes)
    for key, receiving in (((A, TRANSMIT), False), ((B, RECEIVE), True)):
        counted = found[key]["payload_bytes"], found[key]["retransmitted_bytes"]
        assert counted == as_the_kernel(made, receiving)
    sizes = sum(HEADERS + payload for _, payload in made) + HEADERS
    assert found[B, RECEIVE]["wire_bytes"] == sizes + HEADERS * sum(
        -(-payload // 1460) - 1 for _, payload in made if payload > 9216
    )


def cut_to(path: Path, most: int) -> Path:
    """Cut every record of a file as one that was written by what knows no larger frames: so its length says too."""
    data = path.read_bytes()
    found, at = [data[:24]], 24
    while at < len(data):
        seconds, fraction, kept, _ = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16 : at + 16 + kept][:most]
        found.append(struct.pack("<IIII", seconds, fraction, len(frame), len(frame)) + frame)
        at += 16 + kept
    path.write_bytes(b"".join(found))
    return path


def test_jumbo_frames_that_were_cut_are_as_long_as_ip_says(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", [sent(0, 0, "S"), *(sent(8946 * number, 8946) for number in range(10))])
    found = totals(cut_to(path, 1500))[A, TRANSMIT]
    assert (found["payload_bytes"], found["wire_bytes"]) == (89_460, 89_460 + 11 * HEADERS)


def wire_of(packets: list[Packet], path: Path) -> list[dict[str, int]]:
    """Return the rows of A's end as sent, 100 µs between packets, the first at 1 ms."""
    write(path, packets)
    with CaptureFile(path) as file:
        tables = list(Capture(file, FlowBook(Hosts(A).owner_of), MS, begin_ns=MS).tables())
    columns = next(columns for table, columns in tables if table == "wire" and columns["direction"][0] == TRANSMIT)
    return [{name: int(values[row]) for name, values in columns.items()} for row in range(len(columns["flow_id"]))]


def test_a_row_is_a_bin_and_says_where_the_stream_stands(tmp_path: Path) -> None:
    """Twelve packets make two bins; the last two of the first bring nothing new."""
    packets = [sent(0, 0, "S"), *(sent(100 * number, 100) for number in range(7)), sent(0, 100), sent(100, 100)]
    rows = wire_of([*packets, sent(700, 100), sent(800, 100)], tmp_path / "a.pcap")
    same = {"flow_id": 1, "direction": TRANSMIT, "wire_bytes": 0, "retransmitted_bytes": 0, "unsent": 0}
    expected = [
        {"bin_start_ns": MS, "first_ns": MS, "last_ns": MS + 900_000, "payload_bytes": 700, "packets": 10},
        {"bin_start_ns": 2 * MS, "first_ns": 2 * MS, "last_ns": 2 * MS + 100_000, "payload_bytes": 200, "packets": 2},
    ]
    expected[0] |= same | {"retransmitted_bytes": 200, "wire_bytes": 10 * HEADERS + 900}
    expected[1] |= same | {"wire_bytes": 2 * HEADERS + 200}
    expected[0] |= {"stream_position": (ISN + 701) % 2**32, "stream_position_ns": MS + 700_000}
    expected[1] |= {"stream_position": (ISN + 901) % 2**32, "stream_position_ns": 2 * MS + 100_000}
    assert rows == expected


def test_a_bin_with_bytes_that_passed_unseen_has_no_time_for_its_place(tmp_path: Path) -> None:
    (row,) = wire_of([sent(0, 0, "S"), sent(0, 100), sent(300, 100)], tmp_path / "a.pcap")
    assert (row["payload_bytes"], row["stream_position"], row["stream_position_ns"]) == (400, (ISN + 401) % 2**32, 0)


def test_bytes_that_no_packet_shows_are_known_by_their_acknowledgement(tmp_path: Path) -> None:
    """The end of a connection takes a number and is no byte."""
    found = totals(write(tmp_path / "a.pcap", [sent(0, 0, "S"), sent(0, 1000), answer(3000)]))
    assert found[A, TRANSMIT]["payload_bytes"] == found[B, RECEIVE]["payload_bytes"] == 3000
    found = totals(write(tmp_path / "b.pcap", [sent(0, 0, "S"), sent(0, 1000), sent(1000, 0, "FA"), answer(1001)]))
    assert found[A, TRANSMIT]["payload_bytes"] == found[B, RECEIVE]["payload_bytes"] == 1000


def test_what_began_before_the_capture_counts_from_its_first_packet(tmp_path: Path) -> None:
    found = totals(write(tmp_path / "a.pcap", [answer(700_000), sent(700_000, 1000), sent(701_000, 500)]))
    assert found[A, TRANSMIT]["payload_bytes"] == 1500


def test_a_jump_too_far_is_none(tmp_path: Path) -> None:
    found = totals(write(tmp_path / "a.pcap", [sent(0, 0, "S"), sent(0, 100), sent(FARTHEST + 200, 100)]))
    assert found[A, TRANSMIT]["payload_bytes"] == found[B, RECEIVE]["payload_bytes"] == 200


@pytest.mark.parametrize("block_bytes", [100, 1 << 20])
def test_ports_that_are_used_again_are_another_connection(block_bytes: int, tmp_path: Path) -> None:
    """A SYN that is sent again is not."""
    first = [sent(0, 0, "S"), sent(0, 0, "S"), sent(0, 1000), sent(1000, 1000)]
    second = [sent(0, 0, "S", isn=77), sent(0, 500, isn=77), sent(500, 100, isn=77)]
    path = write(tmp_path / "a.pcap", first + second)
    with CaptureFile(path, block_bytes) as file:
        tables = list(Capture(file, FlowBook(Hosts().owner_of), MS, begin_ns=MS).tables())
    flows = [flow for table, columns in tables if table == "flows" for flow in columns["flow_id"]]
    sums = dict.fromkeys(flows, 0)
    for table, columns in tables:
        if table == "wire":
            for flow, payload in zip(columns["flow_id"], columns["payload_bytes"], strict=True):
                sums[int(flow)] += int(payload)
    assert sorted(sums.values()) == [600, 600, 2000, 2000]


@pytest.mark.parametrize("block_bytes", [100, 1 << 20])
def test_the_answer_to_a_syn_tells_of_another_connection_too(block_bytes: int, tmp_path: Path) -> None:
    """The second SYN was not captured; the answers to the first, one of them sent again, are of the first."""

    def answered(isn: int) -> Packet:
        return LINK / IP(src=B, dst=A) / TCP(sport=80, dport=1000, seq=5, ack=isn + 1, flags="SA")

    first = [sent(0, 0, "S", isn=9000), answered(9000), answered(9000), sent(0, 1000, isn=9000)]
    path = write(tmp_path / "a.pcap", [*first, answered(77), sent(0, 700, isn=77), answer(700)])
    with CaptureFile(path, block_bytes) as file:
        tables = list(Capture(file, FlowBook(Hosts(A).owner_of), MS, begin_ns=MS).tables())
    flows = [flow for table, columns in tables if table == "flows" for flow in columns["flow_id"]]
    sums = dict.fromkeys(flows, (0, 0))
    for table, columns in tables:
        if table == "wire" and columns["direction"][0] == TRANSMIT:
            amounts = zip(columns["payload_bytes"], columns["retransmitted_bytes"], strict=True)
            for flow, (payload, again) in zip(columns["flow_id"], amounts, strict=True):
                sums[int(flow)] = (sums[int(flow)][0] + int(payload), sums[int(flow)][1] + int(again))
    assert list(sums.values()) == [(1000, 0), (700, 0)]


def test_buffers_beyond_the_mtu_are_as_many_packets_as_the_handshake_says(tmp_path: Path) -> None:
    syn = sent(0, 0, "S")
    syn[TCP].options = [("MSS", 8960)]
    reply = LINK / IP(src=B, dst=A) / TCP(sport=80, dport=1000, seq=0, ack=ISN + 1, flags="SA", options=[("MSS", 1000)])
    found = totals(write(tmp_path / "a.pcap", [syn, reply, sent(0, 4500)]))
    assert found[A, TRANSMIT]["packets"] == 1 + 5
    assert found[A, TRANSMIT]["wire_bytes"] == len(syn) + 4500 + 5 * HEADERS


def test_one_packet_on_several_devices_counts_once(tmp_path: Path) -> None:
    """As tcpdump -i any has it on a host with a bridge: the interface is in the cooked header."""
    from scapy.layers.l2 import CookedLinuxV2

    packets = []
    for each in (sent(0, 0, "S"), sent(0, 1000), sent(1000, 1000), sent(1000, 1000)):
        packets += [CookedLinuxV2(proto=0x0800, ifindex=index) / each[IP].copy() for index in (4, 7)]
    found = totals(write(tmp_path / "a.pcap", packets))
    assert found[A, TRANSMIT] == {
        "payload_bytes": 2000,
        "retransmitted_bytes": 1000,
        "packets": 4,
        "wire_bytes": 3000 + 4 * HEADERS,
    }


def rdma(opcode: int, psn: int, size: int = 0, *, pair: int = 17, ecn: int = 0, psn_of: str = A) -> Packet:
    source, destination = (A, B) if psn_of == A else (B, A)
    header = LINK / IP(src=source, dst=destination, tos=ecn) / UDP(sport=49152, dport=4791)
    return header / roce.BTH(opcode=opcode, dqpn=pair, psn=psn % 2**24) / Raw(bytes(size))


def report(path: Path, out: Path, **options: Any) -> dict[str, Any]:
    from netprof.views.json_report import to_json

    import_capture(path, out, CaptureOptions(MS, **options), lambda done, total: None)
    document: dict[str, Any] = to_json(analyze(TraceReader(out)))
    return document


def test_roce_by_queue_pair(tmp_path: Path) -> None:
    """A message of three packets, its middle one sent again, across the end of the sequence numbers; marks; a CNP."""
    begin = 2**24 - 2
    packets = [
        rdma(0x06, begin, 16 + 1024),  # RDMA_WRITE_FIRST, with its RETH
        rdma(0x07, begin + 1, 1024, ecn=3),
        rdma(0x07, begin + 1, 1024, ecn=3),
        rdma(0x08, begin + 2, 1000),  # RDMA_WRITE_LAST
        rdma(0x11, begin + 1, 4, pair=33, psn_of=B),  # an acknowledgement
        rdma(0x11, begin + 1, 4, pair=33, psn_of=B),  # acknowledgements repeat numbers by design
        LINK / IP(src=B, dst=A) / UDP(sport=49152, dport=4791) / roce.cnp(33),
        rdma(0x04, 5, 100, pair=18),  # SEND_ONLY to another queue pair: numbered by itself
    ]
    document = report(write(tmp_path / "a.pcap", packets), tmp_path / "t")
    flows = {(flow["local"], flow["remote"]): flow for flow in document["flows"]}
    assert set(flows) == {
        (f"{near} QP {own}", f"{far} QP {other}")
        for near, far, pair in ((A, B, 17), (A, B, 18), (B, A, 33))
        for near, own, far, other in ((near, "?", far, pair), (far, pair, near, "?"))
    }
    written = flows[f"{A} QP ?", f"{B} QP 17"]["tx"]
    assert (written["payload_bytes"], written["retransmitted_bytes"], written["packets"]) == (3048, 1024, 4)
    assert flows[f"{B} QP 17", f"{A} QP ?"]["rx"]["payload_bytes"] == 3048
    assert flows[f"{B} QP ?", f"{A} QP 33"]["tx"]["payload_bytes"] == 0
    counted = {(each["name"], each["worst_subject"]): each for each in document["counters"]}
    by_name = {name: each["total"] for (name, _), each in counted.items()}
    assert by_name == {
        "messages": 2,
        "ecn_marked_packets": 2,
        "cnp_packets": 1,
        "resent_packets": 1,
        "negative_acknowledgements": 0,
    }
    assert ("resent_packets", f"{A} to {B} queue pair 17") in counted
    protocols = set(TraceReader(tmp_path / "t").table("flows").column("protocol").to_pylist())
    assert protocols == {ROCE}


def test_what_is_not_wanted_counts_nowhere(tmp_path: Path) -> None:
    """Two other hosts' queue pair, and bytes between them that were not captured."""
    header = LINK / IP(src="10.0.0.8", dst="10.0.0.9")
    others = [header / UDP(sport=1, dport=4791) / roce.BTH(opcode=4, dqpn=3) / Raw(bytes(100))]
    others += [header / TCP(sport=1, dport=2, seq=at, flags="A") / Raw(bytes(100)) for at in (0, 500)]
    document = report(write(tmp_path / "a.pcap", [sent(0, 0, "S"), sent(0, 10), *others]), tmp_path / "t", host=A)
    assert len(document["flows"]) == 1
    assert document["counters"] == []
    assert document["losses"]["healed_bytes"] == 0


def test_a_negative_acknowledgement(tmp_path: Path) -> None:
    nak = LINK / IP(src=B, dst=A) / UDP(sport=1, dport=4791) / roce.BTH(opcode=0x11, dqpn=3) / roce.AETH(syndrome=0x60)
    document = report(write(tmp_path / "a.pcap", [nak]), tmp_path / "t")
    assert next(each["total"] for each in document["counters"] if each["name"] == "negative_acknowledgements") == 1


def test_the_report_of_a_capture(tmp_path: Path) -> None:
    """An address is a host with one device; the line rate is known only if it was given; the clock is the capture's."""
    packets = [sent(0, 0, "S"), *(sent(1000 * number, 1000) for number in range(50))]
    document = report(write(tmp_path / "a.pcap", packets), tmp_path / "t", line_rate_bps=1e9)
    links = {link["device"]: link for link in document["links"]}
    assert set(links) == {A, B}
    assert links[A]["line_rate_bps"] == 1e9
    meta: Meta = TraceReader(tmp_path / "t").meta
    assert meta.clock.realtime_ns - meta.clock.monotonic_ns + meta.started_ns == BEGAN_S * 10**9
    assert document["recording_s"] == pytest.approx(50 * 100e-6, rel=0.01)
    alone = report(tmp_path / "a.pcap", tmp_path / "u", host=B)
    assert [flow["local"] for flow in alone["flows"]] == [f"{B}:80"]
    assert alone["links"][0]["line_rate_bps"] is None


@pytest.mark.parametrize("earlier_s", [0.5, 5, 365 * 86400])
def test_packets_from_before_the_first_are_of_the_trace(earlier_s: float, tmp_path: Path) -> None:
    """As where a clock was set back, or captures were put together: the trace begins with the earliest."""
    packets = [sent(0, 0, "S"), *(sent(1000 * number, 1000) for number in range(20))]
    path = write(tmp_path / "a.pcap", packets)
    for number, each in enumerate(packets[10:]):
        each.time = BEGAN_S - earlier_s + number / 1e4
    wrpcap(str(path), packets)
    document = report(path, tmp_path / "t")
    meta: Meta = TraceReader(tmp_path / "t").meta
    assert meta.clock.realtime_ns - meta.clock.monotonic_ns + meta.started_ns == int((BEGAN_S - earlier_s) * 10**9)
    assert document["recording_s"] == pytest.approx(earlier_s + 9e-4, rel=1e-6)
    assert [flow["tx"]["payload_bytes"] for flow in document["flows"]] == [20_000, 0]


@pytest.mark.parametrize(
    ("packets", "link_type", "message"),
    [
        ([], 1, "holds no packets"),
        ([LINK / IP(src=A, dst=B) / UDP(sport=1, dport=2)], 1, "holds 1 packet, and none of TCP or RoCE"),
        ([LINK], 250, "kind of link that netprof does not read"),
    ],
)
def test_captures_of_no_use(packets: list[Packet], link_type: int, message: str, tmp_path: Path) -> None:
    """One line each, and no trace stays behind."""
    wrpcap(str(tmp_path / "a.pcap"), packets, linktype=link_type)
    with pytest.raises(NetprofError, match=message) as error:
        import_capture(tmp_path / "a.pcap", tmp_path / "t", CaptureOptions(MS), lambda done, total: None)
    assert (error.value.exit_code, "\n" in error.value.message) == (1, False)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("packet", "kept", "hint"),
    [
        (LINK / IP(src=A, dst=B) / UDP(sport=1, dport=2), 100, "capture where the job's traffic is"),
        (sent(0, 1000), 40, "capture with more of each packet (tcpdump -s 128)"),
    ],
)
def test_what_to_do_about_a_capture_without_streams(packet: Packet, kept: int, hint: str, tmp_path: Path) -> None:
    wrpcap(str(tmp_path / "a.pcap"), [Raw(bytes(packet)[:kept])], linktype=1)
    with pytest.raises(NetprofError, match="none of TCP or RoCE") as error:
        import_capture(tmp_path / "a.pcap", tmp_path / "t", CaptureOptions(MS), lambda done, total: None)
    assert error.value.hint == hint


def test_an_address_that_no_packet_has(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", [sent(0, 0, "S"), sent(0, 1000)])
    with pytest.raises(NetprofError, match=r"10\.0\.0\.9 is not in .*a\.pcap"):
        report(path, tmp_path / "t", host="10.0.0.9")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("simple", [True, False])
def test_packets_without_a_time_are_no_empty_capture(simple: bool, tmp_path: Path) -> None:
    """Simple blocks of a pcapng have none, and packets that were made up may be of time 0."""
    path = tmp_path / "a.pcapng"
    data = bytes(sent(0, 1000))
    with PcapNgWriter(str(path)) as writer:
        made = Ether(data)
        made.time = 0
        writer.write(made)
    if simple:
        body = struct.pack("<I", len(data)) + data + bytes(-len(data) % 4)
        head = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
        head += struct.pack("<IIHHII", 1, 20, 1, 0, 0, 20)
        path.write_bytes(head + struct.pack("<II", 3, 12 + len(body)) + body + struct.pack("<I", 12 + len(body)))
    with pytest.raises(NetprofError, match=r"a.pcapng holds 1 packet and says of none when it passed"):
        import_capture(path, tmp_path / "t", CaptureOptions(MS), lambda done, total: None)


def test_what_no_stream_was_found_in_is_named(tmp_path: Path) -> None:
    """Beside others in a note, alone in the refusal; a device's whole kind of link as well."""
    hidden = LINK / IP(src=A, dst=B, proto=50) / Raw(bytes(100))
    document = report(write(tmp_path / "a.pcap", [sent(0, 0, "S"), sent(0, 10), hidden]), tmp_path / "t")
    assert "not looked into: 1 packet of IPsec; what streams they carry is unknown" in document["notes"]
    with pytest.raises(NetprofError, match=r"none of TCP or RoCE that could be read: 2 packets of IPsec"):
        report(write(tmp_path / "b.pcap", [hidden, hidden.copy()]), tmp_path / "u")
    with PcapNgWriter(str(tmp_path / "c.pcapng")) as writer:
        for number, (link_type, packet) in enumerate([(1, sent(0, 10)), (189, Raw(bytes(64))), (1, sent(10, 10))]):
            packet.time, packet.sniffed_on, writer.linktype = BEGAN_S + number, f"dev{link_type}", link_type
            writer.write(packet)
    document = report(tmp_path / "c.pcapng", tmp_path / "v")
    assert "not looked into: 1 packet of link type 189; what streams they carry is unknown" in document["notes"]


def test_a_damaged_capture_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcap", [sent(0, 0, "S"), sent(0, 1000), sent(1000, 1000)])
    path.write_bytes(path.read_bytes()[:-10])
    document = report(path, tmp_path / "t")
    assert any("it ends inside a packet" in note and "after 2 packets" in note for note in document["notes"])
    assert document["flows"][0]["tx"]["payload_bytes"] == 1000


@pytest.mark.parametrize("wrong", [{"bin_width": "1ns"}, {"host": "nowhere"}, {"line_rate": "fast"}])
def test_options_that_cannot_be_meant(wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        CaptureOptions.parse(**({"bin_width": "1ms", "line_rate": None, "host": None, "force": False} | wrong))  # type: ignore[arg-type]


def test_options_as_typed() -> None:
    options = CaptureOptions.parse(bin_width="2ms", line_rate="10", host="fd00:0::1", force=True)
    assert options == CaptureOptions(2 * MS, 10e9, "fd00::1", True)
    assert CaptureOptions.parse(bin_width="2ms", line_rate=None, host=None, force=False) == CaptureOptions(2 * MS)


COUNTS = {
    "unseen_bytes": "1.00 kB of payload passed without being captured",
    "unseen_packets": "about 1000 packets of RoCE passed without being captured",
    "twice": "left out: 1000 packets that are in the capture a second time",
    "cut": "1000 packets were captured too short",
    "fragments": "left out: 1000 later fragments",
    "without_room": "left out: 1000 packets of connections after the first 100000",
    "not_dissected": "left out: 1000 packets of rare framings",
}
OF_FILE = {
    "dropped": "the program that captured missed 1000 packets",
    "untimed": "left out: 1000 packets without a time",
    "damage": "the capture is damaged (1000)",
}


@pytest.mark.parametrize("name", ["", "guessed", "together", "unread", *COUNTS, *OF_FILE])
def test_what_is_said_is_what_there_was(name: str) -> None:
    counts = SimpleNamespace(**dict.fromkeys((*COUNTS, "packets", "dissected"), 0), unread=Counter())
    file = SimpleNamespace(dropped=0, untimed=0, damage="")
    capture = SimpleNamespace(counts=counts, tcp=SimpleNamespace(guessed=0), events=SimpleNamespace(together=0))
    if name in ("guessed", "together"):
        setattr(capture.tcp if name == "guessed" else capture.events, name, 1000)
    if name in COUNTS:
        setattr(counts, name, 1000)
    elif name == "unread":
        counts.unread = Counter(dict.fromkeys("abcde", 10) | {"WireGuard": 900, "link type 9": 50})
    elif name in OF_FILE:
        setattr(file, name, "1000" if name == "damage" else 1000)
    first, *others = notes_of(cast(Capture, capture), cast(CaptureFile, file))
    assert first.startswith("a capture holds packets as they passed one place")
    expected = COUNTS | OF_FILE | {"guessed": "1000 packets are several of the link put together"}
    expected["together"] = "events of 1000 queue pairs are counted together"
    some = "900 packets of WireGuard, 50 packets of link type 9, 10 packets of a, 10 packets of b, 30 packets of other"
    expected["unread"] = f"not looked into: {some} kinds"
    assert len(others) == (1 if name else 0)
    assert all(expected[name] in note for note in others)


@pytest.mark.parametrize("syn", [False, True])
def test_connections_after_the_first_ones_are_left_out(
    syn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether each has ports of its own, or all begin on the ports of one: then they are counted to that one."""
    monkeypatch.setattr(Streams.__init__, "__defaults__", (3,))
    monkeypatch.setattr("netprof.session.capture.MOST_CONNECTIONS", 3)
    packets: list[Packet] = []
    for number in range(8):
        port = 1000 if syn else 1000 + number
        to = Ether() / IP(src="10.0.0.1", dst="10.0.0.2")
        if syn:
            packets.append(to / TCP(sport=port, dport=5000, seq=10**6 * number, flags="S"))
        packets.append(to / TCP(sport=port, dport=5000, seq=10**6 * number + 1, flags="A") / Raw(b"x" * 100))
    meta = import_capture(write(tmp_path / "c.pcap", packets), tmp_path / "t", CaptureOptions(MS), lambda *_: None)
    flows = TraceReader(tmp_path / "t").table("flows")
    assert len(flows) == 2 * 3
    left_out = [each for each in meta.warnings if "connections after the first 3" in each]
    assert len(left_out) == (0 if syn else 1)
    assert all(each.startswith("left out: 5 packets") for each in left_out)
