"""Stacks of the rank that the others wait for: Python, native and the kernel's."""
