"""The job as Chakra execution traces, one a rank, which ASTRA-sim and its like simulate.

`job.RANK.et` holds what a rank did: computing, as long as it took, and collectives, with their size and group, each
node with those that it waits for. `comm_groups.json` holds the ranks of the groups that are not the whole job. For
ASTRA-sim: --workload-configuration=FOLDER/job --comm-group-configuration=FOLDER/comm_groups.json

A file is a `GlobalMetadata` and then `Node` messages (chakra_schema.py), each with its length before it.
`comm_size` is what a rank puts in, in bytes: of an all-gather its own part, else the whole buffer. A collective's
`duration_micros` is how long it took on the network that it was recorded on, from when it was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from netprof.analysis.execution.job_execution import COMPUTE, Execution, JobExecution, job_execution
from netprof.errors import NetprofError
from netprof.schema import CollectiveKind
from netprof.views.chakra_schema import VERSION, CommType, NodeType, message
from netprof.views.json_text import json_text
from netprof.views.output import opened
from netprof.views.safe import safe_text

if TYPE_CHECKING:
    from netprof.analysis import Analysis
    from netprof.files import Directory
    from netprof.views.reporter import Report

NAME = "job"
GROUPS = "comm_groups.json"
_KINDS: Mapping[int, CommType] = {
    kind: CommType[kind.name] for kind in CollectiveKind if kind.name in CommType.__members__
}


def fill(report: Report, folder: Directory) -> None:
    """Write a file for each rank, and the groups. Raises NetprofError, OSError."""
    message("Node")  # before anything is written
    job = job_execution(report.analysis.evidence)
    if not any(job.iterations.values()):
        raise NetprofError(
            "there is no iteration that all ranks were recorded in", "record some iterations of a job that has marks"
        )
    for execution in job.executions:
        with opened(folder, f"{NAME}.{job.ranks[execution.pid]}.et") as out:
            _write(out, _metadata(report.analysis, job, execution))
            for node in _nodes(job, execution, report.analysis.meta.started_ns):
                _write(out, node)
    with opened(folder, GROUPS) as out:
        groups = {_group_name(number): list(ranks) for number, ranks in job.groups.items() if ranks is not None}
        out.write(json_text(groups).encode() + b"\n")


def _write(out: IO[bytes], content: Any) -> None:
    """Write a message behind its length, as a base 128 varint."""
    data = content.SerializeToString(deterministic=True)
    length, prefix = len(data), bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    out.write(bytes([*prefix, length]) + data)


def _metadata(analysis: Analysis, job: JobExecution, execution: Execution) -> Any:
    attributes = [
        _attribute("schema", string_val=VERSION),
        _attribute("generator", string_val=f"netprof {safe_text(analysis.meta.netprof_version)}"),
        _attribute("hostname", string_val=safe_text(analysis.meta.host)),
        _attribute("rank", int64_val=job.ranks[execution.pid]),
        _attribute("world_size", int64_val=job.world_size),
        _attribute("iterations", int64_val=job.iterations[execution.pid]),
    ]
    if job.notes:
        notes = message("StringList")(values=[safe_text(note) for note in job.notes])
        attributes.append(_attribute("notes", string_list=notes))
    return message("GlobalMetadata")(version=VERSION, attr=attributes)


def _nodes(job: JobExecution, execution: Execution, origin_ns: int) -> Iterator[Any]:
    """Yield the nodes, numbered from 0 on; begins and lengths are rounded so that ends are not a microsecond off."""
    nodes = execution.nodes
    edges = np.stack((nodes.begin_ns, nodes.end_ns)) - origin_ns
    begin_us, end_us = np.maximum(np.rint(edges / 1000).astype(np.int64), 0)
    length_us = np.maximum(end_us - begin_us, 0)
    first = np.searchsorted(execution.child, np.arange(len(nodes) + 1))
    columns = (nodes.kind, nodes.phase, nodes.bytes, nodes.group, nodes.ranks, begin_us, length_us)
    for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        kind, phase, size, group, ranks, begin, length = row
        is_compute = kind == COMPUTE
        node = message("Node")(
            id=number,
            name=execution.phases[phase] if is_compute else _KINDS[kind].name,
            type=int(NodeType.COMPUTE if is_compute else NodeType.COLLECTIVE),
            data_deps=execution.parent[first[number] : first[number + 1]].tolist(),
            start_time_micros=begin,
            duration_micros=length,
        )
        node.attr.append(_attribute("is_cpu_op", bool_val=False))
        if not is_compute:
            node.attr.extend(_of_collective(kind, size, ranks, _group_name(group), job.groups[group]))
        yield node


def _of_collective(kind: int, size: int, ranks: int, name: str, group: Sequence[int] | None) -> Iterator[Any]:
    yield _attribute("comm_type", int64_val=int(_KINDS[kind]))
    put_in = size // ranks if kind == CollectiveKind.ALL_GATHER and ranks > 0 else size
    yield _attribute("comm_size", int64_val=put_in)
    if group is not None:
        yield _attribute("pg_name", string_val=name)


def _group_name(number: int) -> str:
    """Return a group's name, a number above 0: that is the group of all ranks to ASTRA-sim."""
    return str(number + 1)


def _attribute(name: str, **value: Any) -> Any:
    return message("AttributeProto")(name=name, **value)
