"""Which frameworks a process has loaded, told by the files that it has mapped and the patterns of the tables."""

from __future__ import annotations

import re
from collections.abc import Iterable

from netprof.probes.frameworks import Framework
from netprof.probes.frameworks.table import file_names
from netprof.probes.job import procfs


class LoadedFrameworks:
    """Looks for the libraries of `frameworks` in processes; those of one family are one."""

    def __init__(self, frameworks: Iterable[Framework]) -> None:
        names: dict[str, dict[bytes, None]] = {}  # of files, by family
        for framework in frameworks:
            names.setdefault(framework.family or framework.name, {})[file_names(framework.library)] = None
        self._families = tuple(names)
        groups = b"|".join(b"(" + b"|".join(each) + b")" for each in names.values())
        self._paths = re.compile(rb"/(?:" + groups + rb")(?: \(deleted\))?$", re.MULTILINE)

    def of(self, pid: int) -> tuple[str, ...]:
        """Return the families whose libraries process `pid` has mapped; () if it cannot be read."""
        try:
            found = procfs.mapped(pid, self._paths)
        except OSError:
            return ()
        return tuple(family for group, family in enumerate(self._families, start=1) if group in found)
