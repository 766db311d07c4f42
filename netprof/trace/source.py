"""What a recording is read from: the trace of one host, or the traces of many as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from netprof.model import Host, Meta


class TraceSource(Protocol):
    """A recording's tables, read batch by batch. `hosts` are those that recorded it, the reference first."""

    @property
    def path(self) -> Path:
        """Where it lies; of several traces, the first one's place."""

    @property
    def meta(self) -> Meta:
        """The recording's description."""

    @property
    def hosts(self) -> Sequence[Host]:
        """Whose recording it is."""

    @property
    def still_recording(self) -> bool:
        """Whether a recorder is at work: the end is to come."""

    @property
    def truncated(self) -> bool:
        """Whether a recorder did not finish, or a table ends inside a batch (known once it was read)."""

    @property
    def damage(self) -> Sequence[str]:
        """What was found in the tables, as far as they were read, that no recorder writes: a sentence each."""

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the complete record batches of table `name`."""

    def places(self, name: str, columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield where each complete batch of table `name` lies, and some of its columns."""

    def batches_at(self, name: str, offsets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of table `name` that lie at some places. Raises TraceError where one is gone."""

    def table(self, name: str) -> pa.Table:
        """Return table `name` whole; empty, with the right columns, if it was not recorded."""
