"""Totals that only grow: the account of a recording that goes on, concluded piece by piece and added up."""
