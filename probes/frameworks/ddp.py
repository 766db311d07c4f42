"""PyTorch DistributedDataParallel: the steps of `c10d::Reducer`, which reduces the gradients of one wrapped model.

The functions are exported by every libtorch checked (2.0.1, 2.1.2, 2.5.1, 2.9.1, 2.13.0, 2.15.0, x86-64). The
reducer's address tells two wrapped models of one process apart.
"""

from __future__ import annotations

from netprof.probes.frameworks.table import Framework, Mark, Register
from netprof.schema import MarkKind

_REDUCER = Register(1)
_ARGUMENT = Register(2)

DDP = Framework(
    name="ddp",
    library="libtorch_cpu*.so*",
    family="torch",
    marks=(
        Mark(MarkKind.DDP_FORWARD, "_ZN4c10d7Reducer19prepare_for_forwardEv", (_REDUCER,)),
        Mark(MarkKind.DDP_BACKWARD, "_ZN4c10d7Reducer20prepare_for_backwardE", (_REDUCER,)),
        Mark(MarkKind.GRADIENT_READY, "_ZN4c10d7Reducer19mark_variable_readyEm", (_ARGUMENT, _REDUCER), sampled=True),
        Mark(MarkKind.BUCKET_LAUNCH, "_ZN4c10d7Reducer17all_reduce_bucketE", (_ARGUMENT, _REDUCER)),
        # The last gradient exists. The wait for the buckets is inside this function: its entry is not the end.
        Mark(MarkKind.DDP_WAIT, "_ZN4c10d7Reducer17finalize_backwardEv", (_REDUCER,)),
        Mark(MarkKind.BUCKET_DONE, "_ZN4c10d7Reducer21finalize_bucket_denseE", (_ARGUMENT, _REDUCER)),
        # Asked at six points of an iteration; the last time at the end of finalize_backward.
        Mark(MarkKind.DDP_STATS, "_ZN4c10d7Reducer28should_collect_runtime_statsEv", (_REDUCER,)),
    ),
)
