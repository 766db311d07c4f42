"""The page on rights (docs/privileges.md), written from what is promised and from what netprof says of itself."""

from __future__ import annotations

from netprof.probes.kernel.rights import CAPABILITIES
from rights.cells import ENVIRONMENTS, PRIVILEGES, RECORDED, SAMPLED, WHOSE, Cell

_HEAD = """\
# What may be recorded with which rights

*Recorded*: every packet of the job and every mark of its framework. *Sampled*: no program may be loaded into the
kernel, so netprof asks TCP a hundred times a second what the job's sockets have moved; bytes are right, times are to
20 ms, iterations are inferred from the bytes, and the report says what is missing and how to get it. *Exit 3*: the
process may not be looked at; the error names what is missing.

This page is printed by `tests/rights --markdown`, and `tests/rights` tries all of it.
"""


def document() -> str:
    """Return the page."""
    return f"{_HEAD}\n{_capabilities()}\n{_matrix()}"


def _capabilities() -> str:
    lines = ["| capability | for what | without it |", "|---|---|---|"]
    lines += [f"| {each.name} | to {each.purpose} | {each.otherwise} |" for each in CAPABILITIES]
    return "\n".join([*lines, ""])


def _matrix() -> str:
    lines = [f"| capabilities | whose process | {' | '.join(ENVIRONMENTS)} |", "|---|---|" + "---|" * len(ENVIRONMENTS)]
    for privilege in PRIVILEGES:
        for whose in WHOSE:
            cells = [_word(Cell(privilege, whose, environment)) for environment in ENVIRONMENTS]
            lines.append(f"| {privilege} | {whose} | {' | '.join(cells)} |")
    about = (
        "\n*container*: PID, mount and network namespaces of its own, with the process inside. *user namespace*: as "
        "root of one.\n*no bpf()*: a filter of system calls forbids it.\n"
    )
    return "\n".join([*lines, about])


def _word(cell: Cell) -> str:
    return cell.expected if cell.expected in (RECORDED, SAMPLED) else cell.expected.replace("CAP_", "")
