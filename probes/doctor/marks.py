"""The part of the diagnosis that is about the frameworks' functions: which of them the job's libraries have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from netprof.errors import NetprofError
from netprof.model import Target
from netprof.probes.doctor.check import DoctorCheck, Status, verdict
from netprof.probes.frameworks import FRAMEWORKS
from netprof.probes.frameworks.table import Framework
from netprof.probes.marks.libraries import Library, Mapping, executable_mappings, matches, open_library
from netprof.probes.marks.plan import Cost, Plan, Row, count_functions, number_rows, plan_library
from netprof.probes.marks.probe import MarkProbe
from netprof.probes.marks.reading import ReadingTime
from netprof.probes.marks.uprobes import MULTI

_AREA = "target"
_SHOWN = 3
_REMEDY = "use a version of the library that netprof knows; without marks, iterations are inferred from the traffic"


def check_attaching() -> Iterator[DoctorCheck]:
    """Say whether the kernel attaches to all functions of a process at once."""
    try:
        with MarkProbe() as probe:
            multi, method, costs = probe.method == MULTI, probe.method, probe.costs.all()
    except NetprofError:
        return  # said of the probe
    detail = f"functions of the job attach {'all at once' if multi else 'one by one'} ({method})"
    remedy = "a kernel with uprobe_multi (Linux has it since 6.10) starts and stops faster"
    yield verdict(multi, "user", "uprobes", detail, remedy, Status.LIMITED)
    if costs:
        each = ", ".join(f"{name} {hit_ns / 1000:.1f}" for name, hit_ns in costs.items())
        detail = f"at least, in µs, by a function's first instruction; tried on netprof itself: {each}"
        yield DoctorCheck("user", "cost of a mark", Status.INFO, detail)


def check_marks(targets: Sequence[Target]) -> Iterator[DoctorCheck]:
    """Say for every library of a known framework that the job has mapped which functions can be probed there.

    Two copies of a library are two libraries; ranks that map the same file are looked at once.
    """
    with ExitStack() as stack:
        try:
            cost_ns: Cost = stack.enter_context(MarkProbe()).costs.ns
        except NetprofError:  # said of the probe
            cost_ns = dict[str, float]().get
        yield from _of_targets(targets, cost_ns)


def _of_targets(targets: Sequence[Target], cost_ns: Cost) -> Iterator[DoctorCheck]:
    rows = number_rows(FRAMEWORKS)
    files, seen, time = {framework.library for framework in FRAMEWORKS}, set(), ReadingTime()
    for target in targets:
        try:
            mappings = executable_mappings(target.pid)
        except NetprofError:  # ended, or not to be looked at: another check says so
            continue
        for mapping in mappings:
            named = {library for library in files if matches(mapping, library)}
            wanted = [row for row in rows if row.framework.library in named]
            if wanted and (mapping.device, mapping.inode) not in seen:
                seen.add((mapping.device, mapping.inode))
                yield from _of_library(target.pid, mapping, wanted, cost_ns, time)


def _of_library(
    pid: int, mapping: Mapping, rows: Sequence[Row], cost_ns: Cost, time: ReadingTime
) -> Iterator[DoctorCheck]:
    try:
        library = open_library(pid, mapping)
    except NetprofError as error:
        yield DoctorCheck(_AREA, f"marks in {mapping.basename}", Status.LIMITED, error.message, error.hint)
        return
    with library:
        for framework in dict.fromkeys(row.framework for row in rows):
            of_framework = [row for row in rows if row.framework is framework]
            with time.for_one() as until_s:
                plan = plan_library(library, of_framework, cost_ns, until_s)
            yield _of_framework(library, framework, of_framework, plan)


def _of_framework(library: Library, framework: Framework, rows: Sequence[Row], plan: Plan) -> DoctorCheck:
    there, wanted = count_functions(rows, plan.places)
    detail = f"{there} of {wanted} functions found in {library.name}"
    if not plan.skipped:
        detail += f"; {wanted - there} came with later versions" if there < wanted else ""
        return DoctorCheck(_AREA, f"marks of {framework.name}", Status.OK, detail)
    detail += f": {'; '.join(skipped.reason for skipped in plan.skipped[:_SHOWN])}"
    detail += f"; and {len(plan.skipped) - _SHOWN} more" if len(plan.skipped) > _SHOWN else ""
    return DoctorCheck(_AREA, f"marks of {framework.name}", Status.LIMITED, detail, _REMEDY)
