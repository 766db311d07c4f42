"""Digests of a job on many hosts, made from that of a real one: each host has the same rows, and ranks of its own.

python examples/many_digests.py out/digests/job=ddp/host=h0 out/many --hosts 1000
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from netprof.analysis.tables.columns import column, text_column
from netprof.files import make_folder
from netprof.model import Meta
from netprof.schema import tables
from netprof.trace import TraceReader, TraceWriter
from netprof.trace.digest import host_folder

_ODD = 2654435761


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the digest of a host")
    parser.add_argument("target", type=Path)
    parser.add_argument("--hosts", type=int, default=1000)
    options = parser.parse_args()
    multiply(options.source, options.target, options.hosts)


def multiply(source: Path, target: Path, hosts: int) -> Path:
    """Write the digests of so many hosts, with as many ranks each as the source has, and return where they are."""
    reader = TraceReader(source)
    for host in range(hosts):
        folder = host_folder(target, "many", f"h{host:05}")
        make_folder(folder.parent)
        with TraceWriter(folder, _of_host(reader.meta, host, hosts)) as writer:
            for name in tables():
                for batch in reader.batches(name):
                    writer.append(name, _rows(name, batch, host))
            writer.close(_of_host(reader.meta, host, hosts))
    return target / "job=many"


def _rows(name: str, batch: pa.RecordBatch, host: int) -> dict[str, Any]:
    """Return the rows of a host: its connections have addresses and stream positions of their own."""
    texts = {each.name for each in batch.schema if pa.types.is_string(each.type)}
    rows: dict[str, Any] = {
        each: text_column(batch, each) if each in texts else column(batch, each) for each in batch.schema.names
    }
    if name == "flows":
        rows |= {each: [f"{host}-{text}" for text in rows[each]] for each in ("local_addr", "remote_addr")}
    if name == "wire":
        rows["stream_position"] = (rows["stream_position"].astype(np.int64) + host * _ODD) % (1 << 32)
    return rows


def _of_host(meta: Meta, host: int, hosts: int) -> Meta:
    count = len(meta.targets)
    targets = tuple(
        replace(each, rank=host * count + number, world_size=hosts * count) for number, each in enumerate(meta.targets)
    )
    return replace(meta, host=f"h{host:05}", boot_id=f"boot-{host}", targets=targets)


if __name__ == "__main__":
    main()
