"""The traces of a job's hosts, read as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from netprof.analysis.hosts.moved import Mover
from netprof.model import Host, Meta
from netprof.schema import tables
from netprof.trace import TraceSource

_OFFSET_BITS = 48
"""Of a place in the traces: the place in the host's own file; the host is above."""


class JoinedReader:
    """Several traces as one: every table holds the rows of all hosts, as their `movers` turn them into the job's.

    `hosts` and `meta` describe what they are together. Rows come host by host.
    """

    def __init__(
        self, readers: Sequence[TraceSource], movers: Sequence[Mover], hosts: Sequence[Host], meta: Meta
    ) -> None:
        self._parts = list(zip(readers, movers, strict=True))
        self.hosts = tuple(hosts)
        self.meta = meta

    @property
    def readers(self) -> tuple[TraceSource, ...]:
        """The traces, in the order of `hosts`."""
        return tuple(reader for reader, _ in self._parts)

    @property
    def path(self) -> Path:
        """Where the first trace lies."""
        return self._parts[0][0].path

    @property
    def still_recording(self) -> bool:
        """Whether any host's recorder is at work."""
        return any(reader.still_recording for reader, _ in self._parts)

    @property
    def truncated(self) -> bool:
        """Whether the end of any trace is missing; known once its tables were read."""
        return any(reader.truncated for reader, _ in self._parts)

    @property
    def damage(self) -> tuple[str, ...]:
        """What no recorder writes, a sentence each with its host; known once the tables were read."""
        parts = zip(self.hosts, self._parts, strict=True)
        return tuple(f"{host.name}: {sentence}" for host, (reader, _) in parts for sentence in reader.damage)

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of table `name`, host by host."""
        for reader, mover in self._parts:
            yield from (mover.move(name, batch) for batch in reader.batches(name))

    def places(self, name: str, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield where each batch of table `name` lies, by host and file, and some of its columns (or more)."""
        for host, (reader, mover) in enumerate(self._parts):
            for offset, batch in reader.places(name, mover.needs(name, list(columns))):
                yield (host << _OFFSET_BITS) + offset, mover.move(name, batch)

    def batches_at(self, name: str, offsets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of table `name` that lie at some places. Raises TraceError where one is gone."""
        for host, places in groupby(offsets, lambda place: place >> _OFFSET_BITS):
            reader, mover = self._parts[host]
            local = (place % (1 << _OFFSET_BITS) for place in places)
            yield from (mover.move(name, batch) for batch in reader.batches_at(name, local))

    def table(self, name: str) -> pa.Table:
        """Return table `name` whole; empty, with the right columns, if no host recorded it."""
        return pa.Table.from_batches(list(self.batches(name)), schema=tables()[name])
