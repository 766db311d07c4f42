"""What a recording may do here: load programs into the kernel, or only ask it what anybody may ask."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace

from netprof.errors import NotPermittedError
from netprof.model import Target
from netprof.probes.doctor.capabilities import require_recording
from netprof.probes.measurements import PROBES, WITHOUT_PROGRAMS
from netprof.probes.sampled.probe import BIN_NS
from netprof.session.options import RecordingOptions
from netprof.session.recorder import Recorder


@dataclass(frozen=True)
class Rights:
    """`refused` says why no program may be loaded, and what to do about it; None where they may."""

    refused: NotPermittedError | None

    @classmethod
    def here(cls) -> Rights:
        """Find out what is allowed, by trying. Raises NotPermittedError where nothing is: this is not Linux."""
        try:
            require_recording()
        except NotPermittedError as error:
            if platform.system() != "Linux":
                raise
            return cls(error)
        return cls(None)

    def recorder(self, targets: Sequence[Target], options: RecordingOptions, command: Sequence[str]) -> Recorder:
        """Return a recorder that does what is allowed. Raises what it raises."""
        if self.refused is None:
            return Recorder(targets, options, command, PROBES)
        coarse = replace(options, bin_ns=max(options.bin_ns, BIN_NS))
        return Recorder(targets, coarse, command, WITHOUT_PROGRAMS, refused=self.refused)
