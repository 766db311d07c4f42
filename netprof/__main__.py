"""`python -m netprof`."""

import os
import sys

if __name__ == "__main__":
    # Python looks for modules in the current folder first, which may be another user's: only for a netprof found there.
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)) and sys.path[0] != here:
        del sys.path[0]
    from netprof.cli import main

    main()
