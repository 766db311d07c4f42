"""Gloo: PyTorch's collectives on CPUs. They run to completion on a worker thread, so that begin and end are true times.

`gloo::allreduce` is called between the two on the same thread and knows the size. The offsets in its options were the
same in libtorch 2.1.2 to 2.13.0 (x86-64); an element size that no type has shows a version where they moved.
"""

from __future__ import annotations

from netprof.probes.frameworks.table import Framework, Mark, Memory
from netprof.schema import MarkKind

_ELEMENTS = Memory(register=1, offset=80, size=8)
_ELEMENT_BYTES = Memory(register=1, offset=88, size=8, valid=(1, 2, 4, 8, 16))

GLOO = Framework(
    name="gloo",
    library="libtorch_cpu*.so*",
    marks=(
        Mark(MarkKind.COLLECTIVE_BEGIN, "_ZN4c10d16ProcessGroupGloo9AsyncWork7executeE"),
        Mark(MarkKind.COLLECTIVE_SIZE, "_ZN4gloo9allreduceERKN", (_ELEMENTS, _ELEMENT_BYTES)),
        Mark(MarkKind.COLLECTIVE_END, "_ZN4c10d16ProcessGroupGloo9AsyncWork14finishWorkGlooEv"),
    ),
)
