"""A user without rights, to run programs as: what netprof says to such a one is tried and not made up."""

NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    # May read files and nothing else: Python and netprof can lie in a folder that only root may read, as root's home.
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
)
"""Prefix of a command; needs root."""
