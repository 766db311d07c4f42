"""Gloo: PyTorch's collectives on CPUs. They run to completion on a worker thread, so that begin and end are true times.

Between the two, on the same thread, torch calls the function of libgloo that does the work: it says which collective it
is, and its options the size of the buffer: the whole of it, over all ranks, where ranks hold different parts (of a
gather and a scatter one rank's part). Torch does not use a reduce-scatter of gloo's: it runs an all-reduce of the whole
buffer and keeps a part. So that is what is recorded, and beside it that a reduce-scatter was asked for. A message from
one rank to another is posted by the caller, who waits for it in a function that ends in `Work::finishAndThrow`.

The options have a tag as well, by which the members of a process group know a collective's messages: torch counts them
up, so that it says which of the group's collectives this is, on all of them. It is the same in all messages of a work.

With TORCH_DISTRIBUTED_DEBUG=DETAIL a wrapper compares each collective with the other ranks' before it is begun: a
monitored barrier of such messages, and a small gather.

All options begin with a pointer to the `gloo::Context`, the communicator of a process group, which holds this rank's
number and the ranks there are: at its begin, or behind the pointer to its virtual functions where it has such, as up to
libtorch 2.5.1. (A group with several devices has a context for each, and takes them in turn.)

The offsets are those of x86-64. On libtorch 2.0.1, 2.1.2, 2.5.1, 2.9.1, 2.13.0 and 2.15.0 a job of two ranks with
groups of its own was recorded, and every collective that the version has came with its size, rank and group. An element
or a buffer of a size that cannot be, or a rank that is none of its group, shows a version where they moved; so do roots
that are none of the group and tags that do not rise. Those two were compared on 2.13.0, with every collective.
"""

from __future__ import annotations

from netprof.probes.frameworks.table import Argument, Chain, Constant, Framework, Mark, MemoryField, Register
from netprof.schema import NOT_SAID, Backend, CollectiveKind, MarkKind

_ELEMENT_SIZES = (1, 2, 4, 8, 16)
_LARGEST_BUFFER = 1 << 44  # bytes: more than a machine has; an address is above it
_IN, _OUT = 16, 24  # unique_ptr<UnboundBuffer> in most options
_OUT_OF_SCATTER = 40  # after a vector of them
_BUFFER_SIZE = 16  # in an UnboundBuffer
_MOST_RANKS = 1 << 22  # more than any job has
_VIRTUAL_CONTEXT = "_ZN4gloo7ContextD0Ev"  # a destructor that only a class with virtual functions has


def _performed(
    kind: CollectiveKind, function: str, *size: Argument, tag: int, root: int | None = None, seldom: bool = False
) -> tuple[Mark, ...]:
    """Return the marks of a collective's function: how much it moves, among whom, and which of theirs it is.

    `tag` and `root` are offsets in the options: torch gives the collectives of a process group ascending tags.
    """
    symbol = f"_ZN4gloo{function}"
    order = Constant(NOT_SAID) if root is None else MemoryField(1, root, 4), MemoryField(1, tag, 4)
    return (
        Mark(MarkKind.COLLECTIVE_SIZE, symbol, (*size, Constant(kind)), seldom=seldom),
        Mark(MarkKind.COLLECTIVE_GROUP, symbol, _group(0), seldom=seldom, until=_VIRTUAL_CONTEXT),
        Mark(MarkKind.COLLECTIVE_GROUP, symbol, _group(8), seldom=seldom, since=_VIRTUAL_CONTEXT),
        Mark(MarkKind.COLLECTIVE_ORDER, symbol, order, seldom=seldom),
    )


def _group(offset: int) -> tuple[Argument, ...]:
    """Return the context, its ranks and this one's number, which begin at `offset` of it."""
    ranks = Chain(1, 0, offset + 4, size=4, below=_MOST_RANKS)
    return MemoryField(1, 0, 8), ranks, Chain(1, 0, offset, size=4, below_argument=1)


def _elements(offset: int) -> tuple[Argument, Argument]:
    """Return elements and element size, side by side at `offset` of the options."""
    return MemoryField(1, offset, 8), MemoryField(1, offset + 8, 8, valid=_ELEMENT_SIZES)


def _buffer(offset: int) -> tuple[Argument, Argument]:
    """Return the bytes of the buffer whose pointer is at `offset` of the options."""
    return Chain(1, offset, _BUFFER_SIZE, below=_LARGEST_BUFFER), Constant(1)


_GROUP = "_ZN4c10d16ProcessGroupGloo"
_SELF = MemoryField(2, 16, 8)
"""This one's number in its process group and, above 32 bits, the group's ranks: constants of `c10d::Backend`.

Of a function that returns a work, whose first argument is where that goes.
"""
_POSTED = Chain(register=3, offset=0, then=_BUFFER_SIZE, below=_LARGEST_BUFFER)

GLOO = Framework(
    name="gloo",
    library="libtorch_cpu*.so*",
    family="torch",
    marks=(
        Mark(MarkKind.COLLECTIVE_ENQUEUE, "_ZN4c10d16ProcessGroupGloo7enqueueE", (MemoryField(2, 0, 8),)),
        Mark(MarkKind.COLLECTIVE_BEGIN, "_ZN4c10d16ProcessGroupGloo9AsyncWork7executeE", (MemoryField(1, 0, 8),)),
        *_performed(CollectiveKind.ALL_REDUCE, "9allreduceERKN", *_elements(80), tag=128),
        *_performed(CollectiveKind.ALL_GATHER, "9allgatherERN", *_buffer(_OUT), tag=40),
        *_performed(CollectiveKind.ALL_GATHER, "10allgathervERN", *_buffer(_OUT), tag=64),
        *_performed(CollectiveKind.BROADCAST, "9broadcastERN", *_elements(32), tag=52, root=48),
        *_performed(CollectiveKind.REDUCE, "6reduceERN", *_elements(32), tag=88, root=48, seldom=True),
        *_performed(CollectiveKind.ALL_TO_ALL, "8alltoallERN", *_buffer(_IN), tag=40),
        *_performed(CollectiveKind.ALL_TO_ALL, "9alltoallvERN", *_buffer(_IN), tag=136),
        *_performed(CollectiveKind.GATHER, "6gatherERN", *_buffer(_IN), tag=44, root=40),
        *_performed(CollectiveKind.SCATTER, "7scatterERN", *_buffer(_OUT_OF_SCATTER), tag=60, root=56),
        *_performed(CollectiveKind.BARRIER, "7barrierERN", Constant(0), Constant(0), tag=24),
        Mark(MarkKind.COLLECTIVE_END, "_ZN4c10d16ProcessGroupGloo9AsyncWork14finishWorkGlooEv", (Register(1),)),
        Mark(MarkKind.WORK_WAIT, "_ZN4c10d4Work4waitE", (Register(1),)),
        Mark(MarkKind.REDUCE_SCATTER_ASKED, "_ZN4c10d16ProcessGroupGloo31reduce_scatter_tensor_coalescedE", newer=True),
        Mark(MarkKind.REDUCE_SCATTER_ASKED, "_ZN4c10d16ProcessGroupGloo14reduce_scatterE"),
        Mark(MarkKind.MESSAGE_PEER, f"{_GROUP}4sendE", (Register(4, size=4), Constant(0), _SELF)),
        Mark(MarkKind.MESSAGE_PEER, f"{_GROUP}4recvE", (Register(4, size=4), Constant(1), _SELF)),
        Mark(MarkKind.MESSAGE_PEER, f"{_GROUP}13recvAnysourceE", (Constant(NOT_SAID), Constant(1), _SELF)),
        Mark(MarkKind.SEND_POSTED, f"{_GROUP}8SendWorkC2E", (_POSTED, Constant(Backend.GLOO), Register(1))),
        Mark(MarkKind.RECEIVE_POSTED, f"{_GROUP}8RecvWorkC2E", (_POSTED, Constant(Backend.GLOO), Register(1))),
        Mark(MarkKind.POSTED_WAIT, f"{_GROUP}8SendWork4waitE", (Register(1),)),
        Mark(MarkKind.POSTED_WAIT, f"{_GROUP}8RecvWork4waitE", (Register(1),)),
        Mark(MarkKind.POSTED_WAIT_OVER, "_ZN4c10d4Work14finishAndThrowE"),
        Mark(MarkKind.COLLECTIVE_CHECK, "_ZN4c10d19ProcessGroupWrapper19runCollectiveChecksE", newer=True),
    ),
)
