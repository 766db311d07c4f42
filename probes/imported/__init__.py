"""Measurements that somebody else took, as rows of a trace."""
