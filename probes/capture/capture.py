"""A packet capture as tables of a trace: `flows`, `wire` and `counters`, block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from netprof.model import Series
from netprof.probes.capture import dissect
from netprof.probes.capture.connections import ConnectionHashes, Streams
from netprof.probes.capture.duplicates import LastAdvances, RecentPackets, Sightings, identities
from netprof.probes.capture.file import CaptureFile
from netprof.probes.capture.flow_book import LEFT_OUT, FlowBook
from netprof.probes.capture.framing import FRAMED, parse
from netprof.probes.capture.grouped import Groups
from netprof.probes.capture.link_types import beyond_link, check_link_types, devices
from netprof.probes.capture.packets import Bool, Int64, Packets, Rows
from netprof.probes.capture.roce import RoceSequences
from netprof.probes.capture.roce_events import RoceEvents
from netprof.probes.capture.segments import Segments, concatenate
from netprof.probes.capture.tcp import TcpSequences
from netprof.probes.capture.wire_rows import Amounts, bin_groups, wire_rows
from netprof.probes.probe import Columns
from netprof.schema import RECEIVE, TCP, TRANSMIT

MOST_DISSECTED = 200_000
"""Packets of rare framings that are taken apart one by one; more of them would take minutes."""


@dataclass
class Counts:
    """What became of a capture's packets: `streams` of them are in table `wire`, the others no one's business here."""

    packets: int = 0
    streams: int = 0
    cut: int = 0
    fragments: int = 0
    dissected: int = 0
    not_dissected: int = 0
    without_room: int = 0  # of connections after those that are told apart
    twice: int = 0  # seen again: on another device, or in a mirror of both ways
    unseen_bytes: int = 0  # of payload, that passed and are not in the capture
    unseen_packets: int = 0  # of RoCE, that passed and are not in the capture
    unread: Counter[str] = field(default_factory=Counter)  # by kind, of tunnels and links that nobody looks into


@dataclass(frozen=True, eq=False)
class SortedSegments(Rows):
    """The segments of a block, by stream and then by time, how long and when each was on the link, and where."""

    segments: Segments
    stream: Int64
    length: Int64
    time_ns: Int64
    place: Int64


class Capture:
    """Reads a capture. Times are on the trace's clock: the capture's, which is realtime, plus `offset_ns`.

    Without an offset the first packet is at `begin_ns`. Series of counters are numbered from `first_series` on.
    """

    def __init__(
        self,
        file: CaptureFile,
        book: FlowBook,
        bin_ns: int,
        *,
        offset_ns: int | None = None,
        begin_ns: int = 0,
        first_series: int = 0,
    ) -> None:
        self._file, self._book, self._bin_ns = file, book, bin_ns
        self._offset_ns, self._begin_ns = offset_ns, begin_ns
        self._streams, self.tcp, self._roce = Streams(), TcpSequences(), RoceSequences()
        self.events = RoceEvents(first_series)
        self._recent, self._advances = RecentPackets(), LastAdvances()
        self._last_ns = np.zeros(0, np.int64)
        self.counts = Counts()
        self.span_ns: tuple[int, int] | None = None
        """When the first and the last packet of any kind passed."""

    @property
    def series(self) -> tuple[Series, ...]:
        """What the rows of table `counters` are of."""
        return tuple(self.events.series)

    @property
    def offset_ns(self) -> int:
        """What the trace's clock reads more than the capture's."""
        return self._offset_ns or 0

    def tables(self) -> Iterator[tuple[str, Columns]]:
        """Yield rows of tables until the capture ends. Raises NetprofError for one of unknown link types."""
        for packets in self._file.blocks():
            yield from self._block(packets)
        yield from self._tails()

    def segments(self) -> Iterator[SortedSegments]:
        """Yield the TCP segments of every block, by stream; rows of tables are not made."""
        for packets in self._file.blocks():
            block = self._sorted(packets)
            self._book.add(self._streams.connections, self._first_times(block))
            yield block.where(block.segments.protocol == TCP)

    @property
    def flow_of(self) -> Int64:
        """By stream, the flow of the end that it comes from, as its book has it."""
        return self._book.flow_of

    def _block(self, packets: Packets) -> Iterator[tuple[str, Columns]]:
        block = self._sorted(packets)
        first_ns = self._first_times(block)
        flows = self._book.add(self._streams.connections, first_ns)
        if flows is not None:
            yield "flows", flows
        of_tcp = block.segments.protocol == TCP
        if of_tcp.any():
            tcp = block.where(of_tcp)
            groups = Groups(tcp.stream)
            sent, received = self.tcp.account(groups, tcp.segments, tcp.length)
            kept = self._advances.new(groups, tcp.time_ns, tcp.place, sent.advanced) | (tcp.segments.payload == 0)
            self.counts.twice += int((~kept).sum())
            yield from self._rows(tcp.stream, tcp.time_ns, sent, received, kept)
        if not of_tcp.all():
            yield from self._roce_rows(block.where(~of_tcp))

    def _roce_rows(self, block: SortedSegments) -> Iterator[tuple[str, Columns]]:
        amounts, events, missing = self._roce.account(block.stream, block.segments, block.length)
        wanted = self._wanted(block.stream)
        self.counts.unseen_packets += int(missing[wanted].sum())
        yield from self._rows(block.stream, block.time_ns, amounts, amounts)
        stream, time_ns = block.stream[wanted], block.time_ns[wanted]
        if len(stream):
            groups, events = bin_groups(stream, time_ns, self._bin_ns), {name: events[name][wanted] for name in events}
            yield "counters", self.events.rows(groups, stream, time_ns, events, self._streams.connections)

    def _rows(
        self, stream: Int64, time_ns: Int64, sent: Amounts, received: Amounts, kept: Bool | bool = True
    ) -> Iterator[tuple[str, Columns]]:
        """Yield the rows of table `wire` of those packets that are `kept`, as both ends have them."""
        self.counts.unseen_bytes += int(sent.unseen[self._wanted(stream)].sum())
        flow_of = self._book.flow_of
        for direction, amounts in ((TRANSMIT, sent), (RECEIVE, received)):
            flow_id = flow_of[stream ^ direction]
            rows = np.flatnonzero(kept & (flow_id != LEFT_OUT))
            if len(rows):
                groups = bin_groups(stream[rows], time_ns[rows], self._bin_ns)
                chosen = amounts.where(rows)
                yield "wire", wire_rows(groups, flow_id[rows], direction, time_ns[rows], chosen, self._bin_ns)

    def _wanted(self, stream: Int64) -> Bool:
        """Say which streams are of a flow of the trace, at either end."""
        flow_of = self._book.flow_of
        return np.asarray((flow_of[stream] != LEFT_OUT) | (flow_of[stream ^ 1] != LEFT_OUT))

    def _sorted(self, packets: Packets) -> SortedSegments:
        """Return the segments of a block by stream, with room made for streams that are new."""
        self._note(packets)
        segments, stream, place = self._new_segments(packets)
        order = np.argsort(stream, kind="stable")
        segments, stream, place = segments.where(order), stream[order], place[order]
        for by_stream in (self.tcp, self._roce, self._advances):
            by_stream.grow(len(self._streams))
        self._last_ns = np.append(self._last_ns, np.zeros(len(self._streams) - len(self._last_ns), np.int64))
        extra = beyond_link(packets, self._file.interfaces)[segments.packet]
        segments.header_bytes[:] -= extra
        by_ip = segments.header_bytes + segments.payload  # more than a record says whose capture cut jumbo frames
        block = SortedSegments(
            segments,
            stream,
            np.maximum(packets.length[segments.packet] - extra, by_ip),
            packets.time_ns[segments.packet] + self.offset_ns,
            place,
        )
        if len(stream):
            groups = Groups(stream)
            self._last_ns[groups.keys] = block.time_ns[groups.ends - 1]
        return block

    def _new_segments(self, packets: Packets) -> tuple[Segments, Int64, Int64]:
        """Return the segments of a block without those that are in the capture twice, their streams and places."""
        segments = self._segments(packets)
        if not len(segments):
            return segments, np.zeros(0, np.int64), np.zeros(0, np.int64)
        hashes = ConnectionHashes(segments)
        if not (has_room := self._streams.has_room(hashes)).all():
            self.counts.without_room += int((~has_room).sum())
            segments = segments.where(has_room)
            hashes = ConnectionHashes(segments)
        identity = identities(packets, segments, hashes.way)
        stream = self._streams.number(segments, hashes, identity, self._recent.sightings)
        place = devices(packets, self._file.interfaces)[segments.packet] + (segments.network << 16)
        seen = Sightings(identity, stream, packets.time_ns[segments.packet], place, stream < 0)
        new = self._recent.new(seen, segments.identifier)
        self.counts.twice += int((~new).sum())
        return (segments, stream, place) if new.all() else (segments.where(new), stream[new], place[new])

    def _segments(self, packets: Packets) -> Segments:
        check_link_types(self._file.interfaces)
        segments, left = parse(packets, self._file.interfaces)
        self.counts.cut += left.cut
        self.counts.fragments += left.fragments
        self.counts.unread += left.unread
        odd = np.unique(np.concatenate(left.odd)) if left.odd else np.zeros(0, np.int64)
        if len(odd):
            odd = odd[~self._of_unknown_links(packets.interface[odd])]
        if len(odd):
            taken = odd[: max(0, MOST_DISSECTED - self.counts.dissected)]
            self.counts.dissected += len(taken)
            self.counts.not_dissected += len(odd) - len(taken)
            dissected = dissect.dissect(packets, taken, self._file.interfaces, self.counts.unread)
            segments = concatenate([segments, dissected])
        self.counts.streams += len(segments)
        return segments

    def _of_unknown_links(self, interface: Int64) -> Bool:
        """Say which packets, by their interface, are of unknown kinds of links, and count them."""
        unknown = np.zeros(len(interface), np.bool_)
        for number in np.unique(interface).tolist():
            link_type = self._file.interfaces[number].link_type
            if link_type not in FRAMED and not dissect.knows(link_type):
                unknown |= interface == number
                self.counts.unread[f"link type {link_type}"] += int((interface == number).sum())
        return unknown

    def _note(self, packets: Packets) -> None:
        self.counts.packets += len(packets)
        if self._offset_ns is None:
            self._offset_ns = self._begin_ns - int(packets.time_ns[0])
        low, high = int(packets.time_ns.min()) + self._offset_ns, int(packets.time_ns.max()) + self._offset_ns
        first, last = self.span_ns or (low, high)
        self.span_ns = min(first, low), max(last, high)

    def _first_times(self, block: SortedSegments) -> Int64:
        """Return when each connection that is new with this block was first seen."""
        known = len(self._book.flow_of) // 2
        first_ns = np.full(len(self._streams.connections) - known, np.iinfo(np.int64).max)
        fresh = block.stream >= 2 * known
        np.minimum.at(first_ns, block.stream[fresh] // 2 - known, block.time_ns[fresh])
        return first_ns

    def _tails(self) -> Iterator[tuple[str, Columns]]:
        """Yield what was acknowledged at the end of streams and is not in the capture."""
        stream, missing = self.tcp.tails()
        zeros = np.zeros_like(missing)
        amounts = Amounts(missing, zeros, missing, zeros, zeros > 0, zeros, missing)
        yield from self._rows(stream, self._last_ns[stream], amounts, amounts)
