"""Where the program begins: `netprof`, and `python -m netprof`."""

import os
import sys


def start() -> None:
    """Import the command line and run it. Until that catches signals, ctrl-C ends the program without a traceback."""
    import signal  # not before the current folder is out of the path

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from netprof.cli import main

    main()


if __name__ == "__main__":
    # Python looks for modules in the current folder first, which may be another user's: only for a netprof found there.
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)) and sys.path[0] != here:
        del sys.path[0]
    start()
