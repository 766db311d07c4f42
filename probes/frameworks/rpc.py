"""torch.distributed.rpc over TensorPipe: when a call, or an answer, is handed over.

The caller waits for the answer in a lock: that is seen by the kernel (`probes/threads`), not by a function.
"""

from __future__ import annotations

from netprof.probes.frameworks.table import Framework, Mark
from netprof.schema import MarkKind

_AGENT = "_ZN5torch11distributed3rpc15TensorPipeAgent"

RPC = Framework(
    name="rpc",
    library="libtorch_cpu*.so*",
    family="torch",
    marks=(
        Mark(MarkKind.RPC_SENT, f"{_AGENT}4sendE", newer=True),
        Mark(MarkKind.RPC_SENT, f"{_AGENT}28sendCompletedResponseMessageE", newer=True),
    ),
)
