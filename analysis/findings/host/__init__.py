"""Hosts, their counters and GPUs."""
