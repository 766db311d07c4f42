"""Is the network the bottleneck of a running training job, and if not, what does the link wait for?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netprof.version import __version__

if TYPE_CHECKING:
    from os import PathLike

    from netprof.api import Recording

__all__ = ["__version__", "load"]


def load(path: str | PathLike[str], *others: str | PathLike[str]) -> Recording:
    """Open a trace that `netprof attach` or `netprof run` made, for a notebook: its tables as pandas DataFrames.

    Of a job on many hosts, name the traces of all, or a folder of them. Raises TraceError when `path` is no trace, is
    damaged beyond its end, or comes from a newer netprof.
    """
    from netprof.api import Recording  # what the command line does not need is not imported for it

    return Recording(path, *others)
