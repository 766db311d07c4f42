"""Whose job it is: its processes on this host, their ranks, and which of them live."""
