"""RDMA ports as sysfs shows them: which there are, whose names their counters have, and how fast they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from netprof.model import LineRate
from netprof.probes.kernel.procfile import text_of
from netprof.probes.kernel.rtnetlink import device_name
from netprof.probes.rdma.drivers import DRIVERS, Driver
from netprof.schema import LinkState

SYSFS = Path("/sys")
_HARDWARE = "hw_counters"
_ACTIVE = "4:"  # IB_PORT_ACTIVE


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device; `folder` is its own in sysfs."""

    device: str
    number: int
    folder: Path

    @property
    def name(self) -> str:
        """What `rdma link` calls it."""
        return f"{self.device}/{self.number}"

    def file(self, name: str) -> Path | None:
        """Return the file of a counter: the port's, or else the device's; None where there is none."""
        of_port = self.folder / name
        if of_port.exists():
            return of_port
        of_device = self.folder.parent.parent / name
        return of_device if name.startswith(_HARDWARE) and of_device.exists() else None

    @property
    def lifespan(self) -> Path | None:
        """For how many milliseconds the kernel hands out the same values of `hw_counters`, as a file."""
        return self.file(f"{_HARDWARE}/lifespan")

    def driver(self) -> Driver | None:
        """Return whose names the counters have; None where they are unknown."""
        return next((driver for driver in DRIVERS if self.file(driver.sign) is not None), None)

    def condition(self) -> tuple[LinkState, LineRate]:
        """Return whether the port is up, and its line rate."""
        if not self.folder.exists():
            return LinkState.GONE, LineRate(None, "unknown: there is no such port any more")
        state = LinkState.UP if text_of(self.folder / "state").strip().startswith(_ACTIVE) else LinkState.DOWN
        rate = text_of(self.folder / "rate").strip()
        gigabits = re.match(r"(\d+(?:\.\d+)?) Gb/sec", rate)
        if gigabits is None or float(gigabits[1]) == 0:
            return state, LineRate(None, "unknown: the port says none")
        return state, LineRate(float(gigabits[1]) * 1e9, f"the port's rate: {rate}")

    @property
    def network_device(self) -> str:
        """The network device that it shares its wire with; "" where it is none."""
        return text_of(self.folder / "gid_attrs" / "ndevs" / "0").strip()

    @property
    def is_ethernet(self) -> bool:
        """Whether its packets are RoCE's, which is UDP."""
        return text_of(self.folder / "link_layer").strip() == "Ethernet"


def ports_of(device: str, sysfs: Path) -> list[Port]:
    """Return the ports of an RDMA device; none where it is gone."""
    folder = sysfs / "class" / "infiniband" / device / "ports"
    numbers = sorted(int(entry.name) for entry in _entries(folder) if entry.name.isdecimal())
    return [Port(device, number, folder / str(number)) for number in numbers]


def device_of_uverbs(name: str, sysfs: Path) -> str:
    """Return the RDMA device that a file of /dev/infiniband is of; "" where nothing says it."""
    return device_name(text_of(sysfs / "class" / "infiniband_verbs" / name / "ibdev").strip().encode())


def any_device(sysfs: Path) -> bool:
    """Tell whether this machine has an RDMA device."""
    return bool(_entries(sysfs / "class" / "infiniband"))


def number_in(text: bytes) -> int:
    """Return the number that a file of sysfs holds. Raises ValueError where that is none."""
    if not text.strip().isdigit():
        raise ValueError("it holds no number")
    return int(text)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
