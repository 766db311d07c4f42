"""Jobs that stand, and ranks that ended."""
