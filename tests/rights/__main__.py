"""The matrix as a program: tries all cells, prints the table, and says where it is not as promised.

PYTHONPATH=tests python tests/rights [--markdown]
"""

from __future__ import annotations

import argparse

import rights
from rights.cells import ENVIRONMENTS, PRIVILEGES, WHOSE, Cell, every_cell, tried
from rights.words import document


def main() -> None:
    parser = argparse.ArgumentParser(description=rights.__doc__)
    parser.add_argument("--markdown", action="store_true", help="print docs/privileges.md, and try nothing")
    if parser.parse_args().markdown:
        print(document(), end="")
        return
    found = {}
    wrong = 0
    for cell in every_cell():
        found[cell] = tried(cell)
        if found[cell] != cell.expected:
            wrong += 1
            print(f"{cell}: expected {cell.expected}, found {found[cell]}", flush=True)
    for privilege in PRIVILEGES:
        for whose in WHOSE:
            row = [found[Cell(privilege, whose, environment)] for environment in ENVIRONMENTS]
            print(f"{privilege:42} {whose:10} " + " | ".join(row))
    print(f"{len(found)} cells, {wrong} not as promised")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
