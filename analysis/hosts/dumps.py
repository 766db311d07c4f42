"""What ranks wrote down of their own collectives, laid beside each other: who is behind, and where they disagree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from netprof.trace.flight import FlightDump, Operation

_NAMED = 6

_Ranks = Mapping[int, Mapping[int, Operation]]
"""The operations of a communicator, by rank and number."""


def disagreements(dumps: Sequence[FlightDump]) -> list[str]:
    """Return a sentence for each communicator in which ranks differ: first those that want different things.

    The k-th operation of a communicator is one on all of its ranks, of one kind. Of each communicator the first one is
    told in which that is not so; and which ranks have not asked for the last one, if others have and wait for it.
    """
    groups: dict[str, dict[int, dict[int, Operation]]] = {}
    for dump in dumps:
        for each in dump.operations:
            groups.setdefault(each.group, {}).setdefault(dump.rank, {})[each.number] = each
    unlike = [found for group, ranks in sorted(groups.items()) for found in _unlike(group, ranks)]
    behind = [found for group, ranks in sorted(groups.items()) for found in _behind(group, ranks)]
    return unlike + behind


def _unlike(group: str, ranks: _Ranks) -> Iterator[str]:
    numbers = sorted({number for own in ranks.values() for number in own})
    for number in numbers:
        asked: dict[tuple[str, str], list[int]] = {}
        for rank, own in sorted(ranks.items()):
            if number in own:
                # What each rank gives to a gather or an all-to-all may be of any size.
                size = own[number].elements if own[number].kind in _EVEN else ""
                asked.setdefault((own[number].kind, size), []).append(rank)
        if len(asked) > 1:
            kinds = len({kind for kind, _ in asked}) > 1
            parts = [
                f"{_names(who)} {'asks' if len(who) == 1 else 'ask'} for {kind}{'' if kinds else f' of {size}'}"
                for (kind, size), who in asked.items()
            ]
            yield f"ranks disagree on operation {number} of group {group}: {', '.join(parts)}"
            return


_EVEN = ("all_reduce", "allreduce", "AllReduce", "broadcast", "Broadcast", "reduce", "Reduce")


def _behind(group: str, ranks: _Ranks) -> Iterator[str]:
    last = {rank: max(own) for rank, own in ranks.items()}
    newest = max(last.values())
    late = sorted(rank for rank, number in last.items() if number < newest)
    waiting = [rank for rank, own in sorted(ranks.items()) if newest in own and not own[newest].done]
    if late and waiting:
        number = min(last[rank] for rank in late) + 1
        kind = next(own[number].kind for own in ranks.values() if number in own) if _known(number, ranks) else "it"
        yield (
            f"{_names(late)} {'has' if len(late) == 1 else 'have'} not asked for operation {number} ({kind}) of group "
            f"{group}, and {_names(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"
        )


def _known(number: int, ranks: _Ranks) -> bool:
    return any(number in own for own in ranks.values())


def _names(ranks: Sequence[int]) -> str:
    named = ", ".join(map(str, ranks[:_NAMED]))
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"
