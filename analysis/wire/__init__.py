"""Bytes over time: the wire table folded into lanes of bins."""
