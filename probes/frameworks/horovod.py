"""Horovod on PyTorch: what the job hands over, what is agreed upon, and what gloo then transfers.

A tensor is enqueued, waits until every rank has it and the cycle comes round (negotiation), becomes part of a response
of one or many tensors, is packed into the fusion buffer, transferred, unpacked and done. All of that but enqueuing and
waiting happens on Horovod's background thread, one response after the other, so those times are true times. (With the
NCCL backend the transfer is NCCL's: it is enqueued there.)

Looked at in 0.28.1. `HandleManager` begins with the last handle given away. A response begins with its type, then a
vector of the tensors' names. `GlooAlgorithms<T>` has the element type in its name and the count in a register.
"""

from __future__ import annotations

from netprof.probes.frameworks.table import Constant, Framework, Mark, MemoryField, Register
from netprof.schema import CollectiveKind, MarkKind

_NAMES_BEGIN, _NAMES_END = 8, 16

# As C++ mangles the types of GlooAlgorithms<T>, and their sizes in bytes.
_TYPES = {"b": 1, "h": 1, "a": 1, "t": 2, "s": 2, "N4gloo7float16E": 2, "i": 4, "f": 4, "l": 8, "d": 8}


def _response(kind: CollectiveKind, function: str) -> Mark:
    # The functions return a Status by a hidden first argument; then come `this`, the entries and the response.
    names = MemoryField(4, _NAMES_BEGIN, 8), MemoryField(4, _NAMES_END, 8)
    symbol = f"_ZNK7horovod6common16OperationManager{function}E"
    return Mark(MarkKind.HOROVOD_RESPONSE, symbol, (Constant(kind), *names))


def _transfers(kind: CollectiveKind, function: str, count: Register | Constant) -> tuple[Mark, ...]:
    return tuple(
        Mark(
            MarkKind.HOROVOD_TRANSFER,
            f"_ZN7horovod6common14GlooAlgorithmsI{name}E{function}E",
            (count, Constant(size), Constant(kind)),
            newer=True,  # or built without gloo
        )
        for name, size in _TYPES.items()
    )


HOROVOD = Framework(
    name="horovod",
    library="mpi_lib_v2*.so*",
    marks=(
        Mark(MarkKind.HOROVOD_ENQUEUE, "_ZN7horovod5torch13HandleManager14AllocateHandleEv", (MemoryField(1, 0, 4),)),
        _response(CollectiveKind.ALL_REDUCE, "16ExecuteAllreduce"),
        _response(CollectiveKind.ALL_REDUCE, "13ExecuteAdasum"),
        _response(CollectiveKind.ALL_GATHER, "16ExecuteAllgather"),
        _response(CollectiveKind.BROADCAST, "16ExecuteBroadcast"),
        _response(CollectiveKind.ALL_TO_ALL, "15ExecuteAlltoall"),
        _response(CollectiveKind.REDUCE_SCATTER, "20ExecuteReducescatter"),
        _response(CollectiveKind.BARRIER, "14ExecuteBarrier"),
        *_transfers(CollectiveKind.ALL_REDUCE, "9Allreduce", Register(3, size=4)),
        *_transfers(CollectiveKind.BROADCAST, "9Broadcast", Register(3, size=4)),
        *_transfers(CollectiveKind.ALL_GATHER, "9Allgather", Constant(0)),
        *_transfers(CollectiveKind.ALL_TO_ALL, "8Alltoall", Constant(0)),
        Mark(MarkKind.HOROVOD_UNPACK, "_ZN7horovod6common11AllreduceOp21MemcpyOutFusionBufferE"),
        Mark(MarkKind.HOROVOD_UNPACK, "_ZN7horovod6common11AllgatherOp21MemcpyOutFusionBufferE"),
        Mark(MarkKind.HOROVOD_UNPACK, "_ZN7horovod6common15ReducescatterOp21MemcpyOutFusionBufferE"),
        Mark(MarkKind.HOROVOD_DONE, "_ZN7horovod5torch13HandleManager8MarkDoneE", (Register(2, size=4),)),
        Mark(MarkKind.HOROVOD_WAIT, "_ZN7horovod5torch12WaitAndClearEi", (Register(1, size=4),)),
    ),
)
