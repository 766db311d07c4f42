"""One table per framework: which function means what. A new framework is a new table here, and no new C."""

from netprof.probes.frameworks.autograd import AUTOGRAD
from netprof.probes.frameworks.cuda import CUDA_DRIVER, CUDA_RUNTIME
from netprof.probes.frameworks.ddp import DDP
from netprof.probes.frameworks.gloo import GLOO
from netprof.probes.frameworks.horovod import HOROVOD
from netprof.probes.frameworks.mpi import MPICH, OPEN_MPI
from netprof.probes.frameworks.nccl import NCCL, ONECCL
from netprof.probes.frameworks.python import PYTHON
from netprof.probes.frameworks.rpc import RPC
from netprof.probes.frameworks.table import Framework

FRAMEWORKS: tuple[Framework, ...] = (
    DDP, GLOO, AUTOGRAD, RPC, NCCL, ONECCL, HOROVOD, OPEN_MPI, MPICH, CUDA_RUNTIME, CUDA_DRIVER, *PYTHON
)  # fmt: skip
"""All that netprof looks for in a process."""
