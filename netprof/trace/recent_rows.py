"""The newest rows of a trace that grows, kept in memory and read like a trace."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from netprof.model import Host, Meta
from netprof.schema import tables


class RecentRows:
    """A `TraceSource` of what was added last: of each table in `most` at least as many rows, and few more.

    Of tables that are not in `most` nothing is kept.
    """

    still_recording = True
    truncated = False
    damage: Sequence[str] = ()

    def __init__(self, path: Path, meta: Meta, most: Mapping[str, int]) -> None:
        self.path, self.meta = path, meta
        self._most = most
        self._kept: dict[str, deque[pa.RecordBatch]] = {name: deque() for name in most}
        self._rows = dict.fromkeys(most, 0)

    @property
    def hosts(self) -> Sequence[Host]:
        """The trace's host."""
        return (Host(self.meta.host, self.meta, self.path.name),)

    def add(self, name: str, batch: pa.RecordBatch) -> None:
        """Add rows of a table, and forget those that are too many."""
        if name not in self._most:
            return
        kept = self._kept[name]
        kept.append(batch)
        self._rows[name] += batch.num_rows
        while self._rows[name] - kept[0].num_rows >= self._most[name]:
            self._rows[name] -= kept.popleft().num_rows

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield what is kept of a table."""
        return iter(tuple(self._kept.get(name, ())))

    def places(self, name: str, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the number of each batch that is kept, and the batch; numbers hold until rows are added."""
        return iter(tuple(enumerate(self._kept.get(name, ()))))

    def batches_at(self, name: str, offsets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Yield batches by their numbers."""
        return (self._kept[name][number] for number in offsets)

    def table(self, name: str) -> pa.Table:
        """Return what is kept of a table; empty if that is nothing."""
        return pa.Table.from_batches(list(self.batches(name)), schema=tables()[name])
