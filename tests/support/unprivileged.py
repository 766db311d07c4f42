"""A user without rights, to run programs as: what netprof says to such a one is tried and not made up."""

import tempfile
from pathlib import Path

NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    # May read files and nothing else: Python and netprof can lie in a folder that only root may read, as root's home.
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
)
"""Prefix of a command; needs root."""


def let_through(folder: Path) -> None:
    """Let every user through to a folder below that of temporary files: pytest's own are root's alone."""
    top = Path(tempfile.gettempdir())
    for each in (folder, *folder.parents):
        if each != top and each.is_relative_to(top):
            each.chmod(each.stat().st_mode | 0o111)
