"""Flows: what they moved, how they behave, and whether it adds up to what TCP says."""
