"""By which device each flow is sent and received, as that changes: rows of table `flow_devices`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netprof.errors import NetprofError
from netprof.probes.kernel.netns import NetworkNamespace
from netprof.probes.kernel.rtnetlink import device_name, device_names
from netprof.schema import TRANSMIT


class FlowDevices:
    """Notices when the kernel's table says that a flow goes by another device.

    The program that sees a packet leave sees its device; the one that sees a packet arrive only the device's number, of
    which the flow's network namespace is asked for the name. A namespace that may not be entered gives none.
    """

    def __init__(self, slots: int) -> None:
        self._known_ns = np.zeros((slots, 2), np.uint64)  # since when the device holds that was told last
        self._names: dict[tuple[int, int], str] = {}

    def changes(self, flows: NDArray[Any], published: NDArray[np.uint32]) -> dict[str, list[Any]]:
        """Return a row for each of the `published` flows (FLOW) and directions of which the device is another."""
        since_ns = flows["since_ns"].copy()
        fresh = (since_ns != self._known_ns[: len(flows)]) & (since_ns > 0) & (published == flows["id"])[:, None]
        rows = []
        for slot, direction in np.argwhere(fresh).tolist():
            flow = flows[slot].copy()
            self._known_ns[slot, direction] = since_ns[slot, direction]
            if device := self.name(flow, direction):
                rows.append((int(flow["id"]), direction, int(since_ns[slot, direction]), device))
        names = ("flow_id", "direction", "since_ns", "device")
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}

    def name(self, flow: Any, direction: int) -> str:
        """Return the device by which a flow (FLOW) is sent or received; "" where none is known."""
        if direction == TRANSMIT:
            return device_name(bytes(flow["device"]).split(b"\0")[0])
        key = int(flow["netns"]), int(flow["receive_interface"])
        if key not in self._names and key[1]:
            self._look(int(flow["pid"]), key)
        return self._names.get(key, "")

    def _look(self, pid: int, wanted: tuple[int, int]) -> None:
        """Ask a namespace for its devices: by way of a process that has ended it fails, of another one it may not."""
        with suppress(NetprofError, OSError), NetworkNamespace.of(pid) as namespace:
            if namespace.inode == wanted[0]:
                names = namespace.run(device_names)
                self._names.update({(wanted[0], index): name for index, name in names.items()})
