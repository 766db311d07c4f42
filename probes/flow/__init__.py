"""The flow probe: every flow's bytes in time bins, counted in the kernel."""
