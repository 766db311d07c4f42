"""Everything that a recording measures. A new measurement is a folder beside this file, and a line here."""

from netprof.probes.flow.probe import FlowProbe
from netprof.probes.gpu.probe import GpuProbe
from netprof.probes.host.probe import HostProbe
from netprof.probes.marks.probe import MarkProbe
from netprof.probes.nic.probe import NicProbe
from netprof.probes.probe import Probe

PROBES: tuple[type[Probe], ...] = (FlowProbe, NicProbe, MarkProbe, HostProbe, GpuProbe)
"""In the order in which they are opened, attached and drained.

Flows come first: what is on the wire while the others attach is seen, and they learn of a flow from its row. GPUs come
last: their end may take seconds.
"""
