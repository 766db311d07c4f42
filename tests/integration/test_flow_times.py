"""Bursts of known bytes at known times over a shaped link: where the bins put them, and the gaps between.

The truth is the sending program's log for when a burst began and how many bytes it had, and a packet capture with
the kernel's own time stamps for when its packets left.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from lab import Lab
from support.traffic import Capture, Collector, Peer

from netprof.probes.flow.probe import FlowProbe
from netprof.schema import TRANSMIT

pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")]

BYTES, COUNT, PERIOD_NS = 500_000, 20, 60_000_000


def record_bursts(bin_ns: int) -> tuple[list[dict[str, Any]], dict[str, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return the sender's log, the rows of what it transmitted, and the captured packets."""
    with Lab(rate="200mbit") as lab, FlowProbe(bin_ns) as probe:
        receiver = Peer(lab[1].popen, "receive", "--addr", lab[1].ipv4)
        port = str(receiver.until("listening")["port"])
        options = ["--bytes", str(BYTES), "--count", str(COUNT), "--period-ms", str(PERIOD_NS / 1e6)]
        sender = Peer(lab[0].popen, "send", "--addr", lab[1].ipv4, "--port", port, "--wait", "send", *options)
        sender.until("connected")
        capture = Capture(lab[0].netns, lab[0].device)
        probe.targets.add(sender.pid)
        probe.follow(())
        collector = Collector(probe)
        sender.go()
        sender.until("finished")
        recorded = collector.finish()
        packets = capture.packets()
    rows = recorded.rows(next(iter(recorded.flows.values())), TRANSMIT)
    full = rows["payload_bytes"] > 0
    return sender.events("burst"), {name: column[full].astype(np.int64) for name, column in rows.items()}, packets


@pytest.mark.parametrize("bin_ns", [pytest.param(1_000_000, marks=pytest.mark.core), 100_000])
def test_bursts_and_gaps_are_where_they_were(bin_ns: int) -> None:
    bursts, rows, (sent_ns, sizes) = record_bursts(bin_ns)
    assert len(bursts) == COUNT
    assert rows["payload_bytes"].sum() == sizes.sum() == BYTES * COUNT
    ends_ns = []
    for burst, following in pairwise([*bursts, {"begin_ns": np.iinfo(np.int64).max}]):
        lower, upper = burst["begin_ns"], following["begin_ns"]
        mine = (rows["first_ns"] >= lower) & (rows["first_ns"] < upper)
        captured = (sent_ns >= lower) & (sent_ns < upper)  # a sender without a CPU may be late with the last of a burst
        truth_ns = sent_ns[captured]
        assert burst["bytes"] == BYTES
        assert rows["payload_bytes"][mine].sum() == sizes[captured].sum()
        begin_ns, end_ns = rows["first_ns"][mine].min(), rows["last_ns"][mine].max()
        assert abs(begin_ns - truth_ns[0]) < bin_ns
        assert abs(end_ns - truth_ns[-1]) < bin_ns
        ends_ns.append((begin_ns, end_ns, truth_ns[0], truth_ns[-1]))
    begins, ends, true_begins, true_ends = np.array(ends_ns).T
    assert (np.abs((begins[1:] - ends[:-1]) - (true_begins[1:] - true_ends[:-1])) < bin_ns).all()


@pytest.mark.core
def test_bins_hold_what_left_in_them() -> None:
    """Bin by bin, against the capture: typically no bin is off by more than the packets at its edges."""
    bin_ns = 1_000_000
    _, rows, (sent_ns, sizes) = record_bursts(bin_ns)
    begin = min(int(sent_ns[0] // bin_ns), int(rows["bin_start_ns"][0] // bin_ns))
    truth = np.bincount(sent_ns // bin_ns - begin, weights=sizes)
    bins = np.bincount(rows["bin_start_ns"] // bin_ns - begin, rows["payload_bytes"], minlength=len(truth))
    errors = np.abs(bins[: len(truth)] - truth)[truth > 0]
    assert np.median(errors) <= 1448
