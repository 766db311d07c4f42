"""PyTorch without DDP: where a step is told by the optimizer, and its backward pass by the autograd engine.

Every `torch.optim.Optimizer` runs its step inside a `record_function` of the name `Optimizer.step#CLASS.step`, which is
a `std::string` there: the characters lie behind its first field. The engine is entered for every backward pass, and for
those inside of one too (activation checkpointing).
"""

from __future__ import annotations

from netprof.probes.frameworks.table import Chain, Framework, Mark
from netprof.schema import MarkKind

AUTOGRAD = Framework(
    name="autograd",
    library="libtorch_cpu*.so*",
    family="torch",
    marks=(
        Mark(
            MarkKind.OPTIMIZER_STEP,
            "_ZN5torch8autograd8profiler25record_function_enter_newE",
            (Chain(register=2, offset=0, then=0), Chain(register=2, offset=0, then=8)),
            only=("Optimize", "r.step#"),
        ),
        Mark(MarkKind.BACKWARD, "_ZN5torch8autograd6Engine7executeE"),
    ),
)
