"""By which device a flow is received, as its namespace says it."""

import os
import socket
from pathlib import Path

from netprof.probes.flow.devices import FlowDevices
from netprof.schema import RECEIVE

GONE = 1 << 22  # no pid is so large


def test_a_device_that_a_flow_of_an_ended_process_could_not_name_is_named_by_the_next() -> None:
    netns = Path("/proc/self/ns/net").stat().st_ino
    flow = {"netns": netns, "receive_interface": socket.if_nametoindex("lo"), "pid": GONE}
    devices = FlowDevices(8)
    assert devices.name(flow, RECEIVE) == ""
    assert devices.name(flow | {"pid": os.getpid()}, RECEIVE) == "lo"
    assert devices.name(flow, RECEIVE) == "lo", "known from then on"
