"""Iterations and their phases."""
