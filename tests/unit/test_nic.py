"""Reading `/proc/net/dev`; counters of real links are in integration/test_nic.py."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from netprof.errors import NetprofError
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.nic.counters import NicSampler, parse_counters
from netprof.schema import tables

HEADER = b"Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n"
OWN_NETNS = Path("/proc/self/ns/net").stat().st_ino


def line(name: bytes, first: int = 1) -> bytes:
    return name.rjust(6) + b": " + b" ".join(str(first + step).encode() for step in range(16)) + b"\n"


def test_lines_are_split_by_the_last_thing_the_kernel_forbids_in_a_name() -> None:
    names = [b"eth0", b"a-name-of-15-ch", b"\xff\x1b[2J", b"%s{0}", "ñ".encode()]
    found = parse_counters(HEADER + b"".join(line(name) for name in names))
    assert list(found) == ["eth0", "a-name-of-15-ch", "\\xff\x1b[2J", "%s{0}", "ñ"]
    assert all(counters == [str(number).encode() for number in range(1, 17)] for counters in found.values())


def test_a_line_cut_short_is_left_out() -> None:
    assert parse_counters(HEADER + line(b"eth0") + b"  eth1: 1 2 3") == parse_counters(HEADER + line(b"eth0"))
    assert parse_counters(b"") == {}


def test_every_counter_goes_into_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "netprof.probes.nic.counters._read_all", lambda descriptor: HEADER + line(b"eth0") + line(b"eth1", 100)
    )
    with NicSampler() as sampler:
        sampler.add("eth1", OWN_NETNS, os.getpid())
        columns = sampler.sample()
    assert {len(column) for column in columns.values()} == {1}
    row = {name: column[0] for name, column in columns.items()}
    assert int(row.pop("time_ns")) > 0
    assert row == {
        "device": "eth1",
        "netns": OWN_NETNS,
        "rx_bytes": 100,
        "rx_packets": 101,
        "rx_errors": 102,
        "rx_drops": 103,
        "tx_bytes": 108,
        "tx_packets": 109,
        "tx_errors": 110,
        "tx_drops": 111,
    }


def test_the_columns_are_those_of_the_trace() -> None:
    with NicSampler() as sampler:
        sampler.add("lo", OWN_NETNS, os.getpid())
        sampler.add("lo", OWN_NETNS, os.getpid())
        sampler.add("no-such-device", OWN_NETNS, os.getpid())
        columns = sampler.sample()
    assert set(columns) == set(tables()["nic"].names)
    assert {len(column) for column in columns.values()} == {1}
    assert columns["device"] == ["lo"]


def test_a_process_that_is_gone_or_elsewhere() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with NicSampler() as sampler:
        with pytest.raises(NetprofError, match=f"no process {ended.pid}"):
            sampler.add("lo", OWN_NETNS, ended.pid)
        with pytest.raises(NetprofError, match="is not in network namespace 1"):
            sampler.add("lo", 1, os.getpid())
        assert sampler.sample()["device"] == []
    with pytest.raises(NetprofError, match=f"no process {ended.pid}"):
        NetworkNamespace.of(ended.pid)


def test_what_is_raised_inside_a_namespace_is_raised_outside() -> None:
    with NetworkNamespace.own() as namespace, pytest.raises(ZeroDivisionError):
        namespace.run(lambda: 1 // 0)
