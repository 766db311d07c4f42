"""The `settings` table: what was set last, by namespace and device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netprof.analysis.tables.columns import int64_column, text_column
from netprof.analysis.tables.flow_table import LinkKey

_DIGITS = 15


@dataclass(frozen=True)
class Settings:
    """What is set, by device (of a namespace as a whole, a device without a name) and name."""

    values: Mapping[tuple[LinkKey, str], str] = field(default_factory=dict)

    def of(self, link: LinkKey, name: str) -> str:
        """Return what is set of a device; "" where nothing tells."""
        return self.values.get((link, name), "")

    def number(self, link: LinkKey, name: str) -> int:
        """Return what is set of a device as a number; 0 where nothing tells, or what is none."""
        value = self.of(link, name)
        return int(value) if value.isascii() and value.isdecimal() and len(value) <= _DIGITS else 0

    def devices(self, netns: int) -> list[LinkKey]:
        """Return the devices of a namespace that have addresses."""
        return [link for link, name in self.values if link.netns == netns and name == "addresses"]

    def addresses(self, netns: int) -> tuple[str, ...]:
        """Return all addresses of a namespace, with their prefixes."""
        return tuple(each for link in self.devices(netns) for each in self.of(link, "addresses").split())


def read_settings(table: Any) -> Settings:
    """Return the settings of the table (Arrow, DataFrame or mapping), rows in any order; the last of each holds."""
    netns, since_ns = (int64_column(table, name) for name in ("netns", "since_ns"))
    device, name, value = (text_column(table, each) for each in ("device", "name", "value"))
    return Settings(
        {
            (LinkKey(int(netns[row]), device[row]), name[row]): value[row]
            for row in np.argsort(since_ns, kind="stable").tolist()
        }
    )
