"""Everything that a recording measures. A new measurement is a folder beside this file, and a line here."""

from netprof.probes.flow.probe import FlowProbe
from netprof.probes.gpu.probe import GpuProbe
from netprof.probes.host.probe import HostProbe
from netprof.probes.kineto.probe import KinetoProbe
from netprof.probes.marks.probe import MarkProbe
from netprof.probes.nccl.probe import NcclNetworkProbe
from netprof.probes.nic.probe import NicProbe
from netprof.probes.probe import Probe
from netprof.probes.process.probe import ProcessProbe
from netprof.probes.ras.probe import RasProbe
from netprof.probes.rdma.probe import RdmaProbe
from netprof.probes.sampled.probe import SampledFlowProbe
from netprof.probes.stacks.probe import StacksProbe
from netprof.probes.threads.probe import ThreadProbe

PROBES: tuple[type[Probe], ...] = (
    FlowProbe,
    NicProbe,
    RdmaProbe,
    MarkProbe,
    NcclNetworkProbe,
    RasProbe,
    HostProbe,
    ProcessProbe,
    ThreadProbe,
    StacksProbe,
    KinetoProbe,
    GpuProbe,
)
"""In the order in which they are opened, attached and drained.

Flows come first: what is on the wire while the others attach is seen, and they learn of a flow from its row. GPUs come
last, after profiles of the job itself: their ends may take seconds.
"""

WITHOUT_PROGRAMS: tuple[type[Probe], ...] = (
    SampledFlowProbe,
    NicProbe,
    RdmaProbe,
    RasProbe,
    HostProbe,
    KinetoProbe,
    GpuProbe,
)
"""What is left where no BPF program may be loaded."""
