"""A packet capture as a trace: flows and bytes, and no marks."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from netprof.errors import NetprofError, UsageError
from netprof.files import OutputPlace
from netprof.model import Clock, Device, LineRate, Losses, Meta, SkippedProbe, StartedProbe, Target
from netprof.probes.capture.capture import Capture
from netprof.probes.capture.connections import MOST_CONNECTIONS
from netprof.probes.capture.file import LONGEST_NS, CaptureFile
from netprof.probes.capture.flow_book import MOST_HOSTS, OTHERS, FlowBook, Hosts
from netprof.probes.capture.networks import tunnels_in_words
from netprof.session.cost import RecorderCost
from netprof.session.options import parse_bin_ns
from netprof.session.timeline import imported_meta
from netprof.trace import TraceWriter
from netprof.units import count, parse_rate_bps, size

_BEGIN_NS = LONGEST_NS + 10**9
"""When on its trace's clock a capture begins: whatever is dated before its first packet is still after zero."""

_FEWER = "For fewer: tcpdump -r CAPTURE -w PART FILTER, or --host"

OnProgress = Callable[[int, int], None]
"""Told how many bytes of how many were read; of 0 where unknown."""


@dataclass(frozen=True)
class CaptureOptions:
    """How a capture is read; `host` is the address whose view alone is wanted."""

    bin_ns: int
    line_rate_bps: float | None = None
    host: str | None = None
    force: bool = False

    @classmethod
    def parse(cls, *, bin_width: str, line_rate: str | None, host: str | None, force: bool) -> CaptureOptions:
        """Read the options as typed. Raises UsageError for what cannot be meant."""
        line_rate_bps = parse_rate_bps(line_rate) if line_rate else None
        return cls(parse_bin_ns(bin_width), line_rate_bps, _address(host) if host else None, force)


def _address(text: str) -> str:
    """Return an address as the flows have it. Raises UsageError."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise UsageError(f"'{text}' is not an address", "write it like 10.0.0.1 or fd00::1") from error


def import_capture(path: Path, out: Path | OutputPlace, options: CaptureOptions, on_progress: OnProgress) -> Meta:
    """Write the trace `out` from a capture file, as far as that can be read.

    Raises NetprofError for what is no capture or holds nothing of use, TraceError where `out` cannot be written.
    """
    cost, hosts = RecorderCost(), Hosts(options.host)
    with CaptureFile(path) as file:
        capture = Capture(file, FlowBook(hosts.owner_of), options.bin_ns, begin_ns=_BEGIN_NS)
        meta = _first_meta(path, options)
        with TraceWriter(out, meta, force=options.force) as writer:
            for table, columns in capture.tables():
                writer.append(table, columns)
                on_progress(*file.progress)
            check(path, capture, file, any(hosts), options)
            first_ns, last_ns = capture.span_ns or (0, 0)
            meta = replace(
                meta,
                clock=Clock(_BEGIN_NS, _BEGIN_NS - capture.offset_ns),
                started_ns=first_ns,
                stopped_ns=last_ns + 1,
                stop_reason="the end of the capture" if not file.damage else "the capture is damaged",
                targets=tuple(Target(pid, 0, f"{address}, as captured") for address, pid in hosts),
                devices=tuple(Device(address, 0, line_rate(options)) for address, _ in hosts),
                series=capture.series,
                warnings=(*notes_of(capture, file), *_crowded(hosts)),
                losses=losses(capture),
                cost=cost.result(writer.size_bytes(), (), (0.0, ())),
            )
            writer.close(meta)
    return meta


def check(path: Path, capture: Capture, file: CaptureFile, has_flows: bool, options: CaptureOptions) -> None:
    """Raise NetprofError where nothing of a capture is of use."""
    counts = capture.counts
    if not counts.packets:
        if file.untimed:
            raise NetprofError(
                f"{path} holds {count(file.untimed, 'packet')} and says of none when it passed",
                "capture with tcpdump or dumpcap, which write the times",
            )
        raise NetprofError(f"{path} holds no packets" + (f": {file.damage}" if file.damage else ""))
    if not counts.streams:
        raise NetprofError(
            f"{path} holds {count(counts.packets, 'packet')}, and none of TCP or RoCE that could be read"
            + (f": {tunnels_in_words(counts.unread)}" if counts.unread else ""),
            "capture with more of each packet (tcpdump -s 128)" if counts.cut else "capture where the job's traffic is",
        )
    if not has_flows:
        raise NetprofError(f"{options.host} is not in {path}", "name an address that the capture's packets have")


def _crowded(hosts: Hosts) -> Iterator[str]:
    """Say what is not told apart because a trace has no room for it."""
    if hosts.together:
        yield (
            f"{count(hosts.together, 'address is', 'addresses are')} put together as '{OTHERS}': the first "
            f"{MOST_HOSTS} are hosts of their own. {_FEWER}"
        )


def losses(capture: Capture) -> Losses:
    """Return what a capture does not hold of what passed."""
    return Losses(healed_bytes=capture.counts.unseen_bytes, unseen_packets=capture.counts.unseen_packets)


def notes_of(capture: Capture, file: CaptureFile) -> Iterator[str]:
    """Yield what a reader must know of how the capture was read, and of what is not in it."""
    counts = capture.counts
    yield (
        "a capture holds packets as they passed one place: what was lost before that place, or sent again after it, is "
        "not told apart from what was not captured"
    )
    if file.damage:
        yield f"the capture is damaged ({file.damage}): what comes after {count(counts.packets, 'packet')} is missing"
    if file.dropped:
        yield f"the program that captured missed {count(file.dropped, 'packet')}, as it says itself"
    if counts.unseen_bytes:
        yield f"{size(counts.unseen_bytes)} of payload passed without being captured, as sequence numbers show"
    if counts.unseen_packets:
        yield (
            f"about {count(counts.unseen_packets, 'packet')} of RoCE passed without being captured, or out of order, "
            "as sequence numbers show: how much they carried is unknown"
        )
    if counts.twice:
        yield (
            f"left out: {count(counts.twice, 'packet that is', 'packets that are')} in the capture a second time, from "
            "another device, inside or outside of a tunnel or VLAN, or from a mirror of both ways"
        )
    if counts.cut:
        yield f"{count(counts.cut, 'packet was', 'packets were')} captured too short for the headers, and left out"
    if counts.fragments:
        yield f"left out: {count(counts.fragments, 'later fragment')} of IP packets, which name no flow"
    if counts.without_room:
        yield (
            f"left out: {count(counts.without_room, 'packet')} of connections after the first {MOST_CONNECTIONS}, "
            f"which are told apart. {_FEWER}"
        )
    if counts.not_dissected:
        yield (
            f"left out: {count(counts.not_dissected, 'packet')} of rare framings, of which only the first "
            f"{counts.dissected} were taken apart"
        )
    if counts.unread:
        yield f"not looked into: {tunnels_in_words(counts.unread)}; what streams they carry is unknown"
    if file.untimed:
        yield f"left out: {count(file.untimed, 'packet')} without a time"
    if together := capture.events.together:
        yield (
            f"events of {count(together, 'queue pair')} are counted together: there are too many to tell all "
            f"apart; their bytes are. {_FEWER}"
        )
    if guessed := capture.tcp.guessed:
        yield (
            f"{count(guessed, 'packet is', 'packets are')} several of the link put together, and no handshake "
            "says how large those were: they are counted as of 1500 bytes each"
        )


def _first_meta(path: Path, options: CaptureOptions) -> Meta:
    return imported_meta(
        command=("netprof", "capture", path.name),
        clock=Clock(0, 0),
        bin_ns=options.bin_ns,
        probes_started=(StartedProbe("capture", "each address is a host with one device, each connection two flows"),),
        probes_skipped=(
            SkippedProbe("marks", "a capture holds no marks of the program", "record with netprof attach"),
        ),
    )


def line_rate(options: CaptureOptions) -> LineRate:
    """Return the line rate of a device that only the capture knows."""
    if options.line_rate_bps is None:
        return LineRate(None, "unknown: a capture does not say it")
    return LineRate(options.line_rate_bps, "given with --line-rate")
