"""`netprof capture` as a person types it: what is printed where, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap
from support.training import netprof


def capture(path: Path, link_type: int = 1) -> Path:
    link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    packets = [
        link / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(seq=100 * n, flags="A") / Raw(bytes(100)) for n in range(9)
    ]
    wrpcap(str(path), packets, linktype=link_type)
    return path


@pytest.mark.slow
def test_the_report_goes_to_standard_output_and_the_talk_to_the_other(tmp_path: Path) -> None:
    path, out = capture(tmp_path / "a.pcap"), tmp_path / "t"
    done = netprof("capture", str(path), "--out", str(out), "--json", "--line-rate", "10gbit", "--bin", "2ms")
    assert (done.returncode, done.stderr) == (0, f"the trace is {out}\n")
    document = json.loads(done.stdout)
    assert (document["bin_s"], document["links"][0]["line_rate_bps"]) == (0.002, 1e10)
    assert sum(flow["tx"]["payload_bytes"] for flow in document["flows"]) == 900
    again = netprof("capture", str(path), "--out", str(out))
    assert (again.returncode, again.stderr.splitlines()[0]) == (1, f"netprof: {out} exists already")
    assert netprof("capture", str(path), "--out", str(out), "--force").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing.pcap"], 1, "cannot read the capture nothing.pcap"),
        (["a.txt"], 1, "a.txt is no packet capture"),
        (["wrong.pcap"], 1, "the capture is of a kind of link that netprof does not read (link type 250)"),
        (["a.pcap", "--with", "nothing"], 1, "nothing is not a netprof trace"),
        (["a.pcap", "--host", "here"], 2, "'here' is not an address"),
        (["a.pcap", "--bin", "1m"], 2, "bins of 1m are out of range"),
    ],
)
def test_one_line_says_what_is_wrong(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no capture")
    capture(tmp_path / "a.pcap")
    capture(tmp_path / "wrong.pcap", 250)
    done = netprof("capture", *arguments, cwd=tmp_path)
    first, *hint = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (code, "")
    assert first.startswith(f"netprof: {message}")
    assert len(hint) <= 1


@pytest.mark.slow
def test_nothing_but_a_rare_packet_needs_scapy(tmp_path: Path) -> None:
    """It takes long to import: neither the help nor a usual capture waits for it."""
    look = (
        "import sys; from netprof.cli import main\ntry: main()\nfinally: print('scapy' in sys.modules, file=sys.stderr)"
    )
    for arguments in (["--help"], ["capture", str(capture(tmp_path / "a.pcap")), "--out", str(tmp_path / "t")]):
        done = subprocess.run([sys.executable, "-c", look, *arguments], capture_output=True, text=True, check=True)
        assert done.stderr.splitlines()[-1] == "False"
