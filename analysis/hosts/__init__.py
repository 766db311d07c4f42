"""Many hosts: the traces of one job, on one clock, read as one."""
