"""Network devices: their counters, and their line rate."""
