"""The command line. Commands raise; only `main` prints an error and chooses the exit code."""

from netprof.cli.main import main

__all__ = ["main"]
