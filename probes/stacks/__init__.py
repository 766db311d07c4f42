"""Python stacks of the rank that the others wait for."""
