"""`python -m netprof`."""

from netprof.cli import main

if __name__ == "__main__":
    main()
