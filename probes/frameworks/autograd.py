"""PyTorch as such: where a step is told by the optimizer, and its backward pass by the autograd engine.

Every `torch.optim.Optimizer` runs its step inside a `record_function` of the name `Optimizer.step#CLASS.step`, and a
model in DDP its forward pass inside one of the name `DistributedDataParallel.forward`, whether or not its gradients
will be exchanged (`c10d::Reducer` is told only of those that will). The name is a `std::string` there: the characters
lie behind its first field. The engine is entered for every backward pass, and for those inside of one too (activation
checkpointing).
"""

from __future__ import annotations

from netprof.probes.frameworks.table import Chain, Framework, Mark
from netprof.schema import MarkKind

_RECORD_FUNCTION = "_ZN5torch8autograd8profiler25record_function_enter_newE"


def _characters(*places: int) -> tuple[Chain, ...]:
    """Return eight characters of the record's name from each of the places on."""
    return tuple(Chain(register=2, offset=0, then=place) for place in places)


AUTOGRAD = Framework(
    name="autograd",
    library="libtorch_cpu*.so*",
    family="torch",
    marks=(
        Mark(MarkKind.OPTIMIZER_STEP, _RECORD_FUNCTION, _characters(0, 8), only=("Optimize", "r.step#")),
        Mark(MarkKind.FORWARD, _RECORD_FUNCTION, _characters(0, 16, 24), only=("Distribu", "arallel.", "forward")),
        Mark(MarkKind.BACKWARD, "_ZN5torch8autograd6Engine7executeE"),
        Mark(MarkKind.PROFILER, "_ZN5torch8profiler4impl19ThreadLocalSubqueue8begin_opE", sampled=True, newer=True),
    ),
)
