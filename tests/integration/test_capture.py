"""What tcpdump captured against what the probes counted in the same seconds: flow by flow, to the byte."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import IPPROTO_TCP
from typing import Any

import pytest
from lab import NETNS_DIR, Lab
from scapy.utils import RawPcapReader
from support.traffic import Collector, Peer, Recorded
from support.training import netprof, training

from netprof.probes.flow.probe import FlowProbe
from netprof.schema import RECEIVE, TRANSMIT
from netprof.session.capture import CaptureOptions, import_capture
from netprof.trace import TraceReader

pytestmark = [
    pytest.mark.timing,
    pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root"),
    pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed"),
]
AMOUNTS = ("payload_bytes", "retransmitted_bytes")
MS = 1_000_000


END = "the end of the capture"
SEND_END = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'{END}', ('10.77.0.2', 9))"


@contextmanager
def captured(lab: Lab, path: Path, *options: str, at_switch: bool = False) -> Iterator[None]:
    """Let tcpdump capture on the first host's device, or on the switch's mirror of it, until all is written.

    It may stop with packets unread in its ring, so a last one is sent, and waited for in the file.
    """
    netns, device = (lab.switch_netns, lab.mirror(0)) if at_switch else (lab[0].netns, lab[0].device)
    command = [
        "nsenter",
        f"--net={NETNS_DIR / netns}",
        "--",
        "tcpdump",
        "-i",
        device,
        "-w",
        str(path),
        "-U",
        "-Z",
        "root",
    ]
    command += ["-U", "-Z", "root", "-B", "65536", "--immediate-mode", "--time-stamp-precision", "nano", *options]
    tcpdump = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tcpdump.stderr is not None
    while "listening on" not in tcpdump.stderr.readline():
        assert tcpdump.poll() is None
    try:
        yield
        lab[0].run(sys.executable, "-c", SEND_END)
        deadline_s = time.monotonic() + 30
        while END.encode() not in path.read_bytes()[-4096:]:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
    finally:
        tcpdump.send_signal(signal.SIGINT)
        said = tcpdump.communicate(timeout=30)[1]
    assert "\n0 packets dropped by kernel" in said, said


def transfer(lab: Lab, addr: str) -> tuple[Recorded, list[Peer]]:
    """Send both ways over two connections under the probe, from before the first one to after the last."""
    receiver = Peer(lab[1].popen, "receive", "--addr", addr, "--flows", "2")
    port = str(receiver.until("listening")["port"])
    options = ["--bytes", "3000000", "--count", "4", "--period-ms", "20", "--reply", "120000", "--wait", "connect"]
    sender = Peer(lab[0].popen, "send", "--addr", addr, "--port", port, "--flows", "2", *options)
    sender.until("ready")
    with FlowProbe(MS) as probe:
        for peer in (sender, receiver):
            probe.targets.add(peer.pid)
        probe.follow(())
        collector = Collector(probe)
        sender.go()
        sender.until("closed")
        for _ in range(2):
            receiver.until("closed")
        return collector.finish(), [sender, receiver]


def imported(path: Path, out: Path, **options: Any) -> dict[tuple[str, int, str, int], dict[tuple[int, str], int]]:
    """Return by flow, of each direction, the totals that a capture's trace has."""
    import_capture(path, out, CaptureOptions(MS, **options), lambda done, total: None)
    reader = TraceReader(out)
    wire = reader.table("wire").to_pandas().groupby(["flow_id", "direction"]).sum()
    return {
        names(flow): {
            (direction, name): int(wire[name].get((flow["flow_id"], direction), 0))
            for direction in (TRANSMIT, RECEIVE)
            for name in (*AMOUNTS, "wire_bytes", "packets")
        }
        for flow in reader.table("flows").to_pylist()
    }


def names(flow: dict[str, Any]) -> tuple[str, int, str, int]:
    return flow["local_addr"], flow["local_port"], flow["remote_addr"], flow["remote_port"]


def assert_new_bytes_are_equal(recorded: Recorded, found: dict[Any, dict[tuple[int, str], int]]) -> None:
    """At either end and both ways, whatever was lost on the way."""
    assert len(recorded.flows) == 4
    for flow in recorded.flows.values():
        for direction in (TRANSMIT, RECEIVE):
            assert found[names(flow)][direction, "payload_bytes"] == recorded.total(flow, direction), (flow, direction)


@pytest.mark.core
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize("offloads", [True, False])
def test_at_a_host_all_is_equal(offloads: bool, family: str, tmp_path: Path) -> None:
    """Of the host's own end: bytes, what was sent again, packets of the link; with offloads, buffers beyond the MTU."""
    path = tmp_path / "a.pcap"
    with Lab(offloads=offloads) as lab, captured(lab, path, "-s", "128"):
        recorded, peers = transfer(lab, getattr(lab[1], family))
    found = imported(path, tmp_path / "t")
    assert_new_bytes_are_equal(recorded, found)
    for flow in recorded.flows.values():
        for (direction, name), amount in found[names(flow)].items() if flow["pid"] == peers[0].pid else ():
            counted = recorded.total(flow, direction, name)
            if name == "retransmitted_bytes":
                assert amount == counted, (flow, direction, name)
            else:  # what the kernel sends and takes when the socket is closed already is in the capture only
                assert amount == pytest.approx(counted, abs=4 if name == "packets" else 400), (flow, direction, name)


def out_of_order_bytes(path: Path, source: int, destination: int) -> int:
    """Return the payload, between two ports over IPv4, of segments that come first only after later ones."""
    seen: set[int] = set()
    highest, late = 0, 0
    for raw, _ in RawPcapReader(str(path)):
        if raw[12:14] != b"\x08\x00" or raw[23] != IPPROTO_TCP:
            continue
        tcp = 14 + 4 * (raw[14] & 15)
        ports_and_sequence = struct.unpack_from(">HHI", raw, tcp)
        size = struct.unpack_from(">H", raw, 16)[0] + 14 - tcp - 4 * (raw[tcp + 12] >> 4)
        if ports_and_sequence[:2] != (source, destination) or size <= 0:
            continue
        begin = ports_and_sequence[2]
        late += size if begin not in seen and seen and (begin - highest) & 0xFFFFFFFF > 1 << 31 else 0
        highest = begin if not seen or (begin - highest) & 0xFFFFFFFF < 1 << 31 else highest
        seen.add(begin)
    return late


@pytest.mark.core
@pytest.mark.parametrize("place", ["host", "switch"])
def test_with_loss_new_bytes_are_equal_and_the_sender_s_end_in_full(place: str, tmp_path: Path) -> None:
    """Where nothing that the sender sends is lost yet, what it sent again is equal too.

    To the switch packets may come in another order: a capture takes what fills such a gap for sent again. What the
    other end sent was lost in part before it came to where the capture was taken: of that only new bytes are.
    """
    path = tmp_path / "a.pcap"
    lossy = Lab(loss_percent=1, offloads=False, switch=True)
    with lossy as lab, captured(lab, path, "-s", "128", at_switch=place == "switch"):
        recorded, peers = transfer(lab, lab[1].ipv4)
    found = imported(path, tmp_path / "t")
    assert_new_bytes_are_equal(recorded, found)
    again, finished = 0, peers[0].events("finished")[0]["flows"]
    resent = {(sock["local_port"], sock["remote_port"]): sock["tcp"]["bytes_retrans"] for sock in finished}
    for flow in recorded.flows.values():
        if flow["pid"] == peers[0].pid:
            sent_again = resent[flow["local_port"], flow["remote_port"]]  # a hook may miss one, TCP does not
            out_of_order = out_of_order_bytes(path, flow["local_port"], flow["remote_port"])
            assert found[names(flow)][TRANSMIT, "retransmitted_bytes"] == sent_again + out_of_order
            assert out_of_order == 0 or place == "switch"
            again += sent_again
    assert again > 0


@pytest.mark.core
def test_one_end_s_view(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    with Lab() as lab, captured(lab, path):
        recorded, peers = transfer(lab, lab[1].ipv4)
    found = imported(path, tmp_path / "t", host=lab[0].ipv4)
    assert set(found) == {names(flow) for flow in recorded.flows.values() if flow["pid"] == peers[0].pid}


@pytest.mark.core
def test_a_job_s_marks_with_a_capture_s_bytes(tmp_path: Path) -> None:
    """On one axis: the same iterations, the same bytes of every flow, and a clock that fits to well below a bin."""
    path, trace, both = tmp_path / "a.pcap", tmp_path / "job.netprof", tmp_path / "both.netprof"
    options = ["--gradient-mb", "4", "--bucket-cap-mb", "2", "--data-ms", "20"]
    with (
        Lab(rate="200mbit") as lab,  # what it waits for is no toss-up
        captured(lab, path, "-s", "128"),
        training([host.popen for host in lab], tmp_path, *options, master=f"{lab[0].ipv4}:29500") as job,
    ):
        pids = [str(pid) for pid in job.pids]
        recorded = netprof("attach", *pids, "--out", str(trace), "--iterations", "20", "--no-live", "--json")
    assert recorded.returncode == 0, recorded.stderr
    done = netprof("capture", str(path), "--with", str(trace), "--out", str(both), "--json")
    assert done.returncode == 0, done.stderr
    before, after = json.loads(recorded.stdout), json.loads(done.stdout)
    for name in ("iterations", "buckets", "verdict_case"):
        assert after.get(name) == before.get(name)
    said = next(note for note in after["notes"] if "clock is put on the recording's by" in note)
    assert (
        TraceReader(both).meta.probes_started[-1].detail == f"the bytes of {len(job.pids)} flows are the capture's"
    ), said
    flows = {flow["flow_id"]: flow for flow in after["flows"]}
    for flow in before["flows"]:
        for side in ("tx", "rx"):
            amounts = [each[side]["payload_bytes"] for each in (flow, flows[flow["flow_id"]])]
            assert amounts[1] == pytest.approx(amounts[0], rel=1e-3), said
