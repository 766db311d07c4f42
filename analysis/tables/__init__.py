"""The trace's tables as columns, and sets of time."""
