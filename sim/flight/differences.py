"""Members of a group that call different things, or pass messages of different sizes."""

from collections import Counter
from collections.abc import Iterator, Set

from ringside.sim.flight.dump import FlightCall
from ringside.sim.flight.finding import DIFFERENT, Finding, named, placed, verb
from ringside.sim.flight.job import FlightGroup, FlightJob
from ringside.sim.flight.kinds import common_of, nbytes_of
from ringside.sim.flight.waits import incomplete


def differences(job: FlightJob) -> Iterator[tuple[int, Finding]]:
    """Return each group's first difference in a call that has not ended, with the time of the call."""
    awaited = [(one.group.name, rank) for one in incomplete(job) for rank in one.missing]
    for group in job.groups.values():
        elsewhere = {rank for name, rank in awaited if name != group.name}
        yield from _of_collectives(group, elsewhere)
        yield from _of_messages(group)


def _of_collectives(group: FlightGroup, elsewhere: Set[int]) -> Iterator[tuple[int, Finding]]:
    """Blame the minority; between equal sides the ranks that others wait for ``elsewhere``, or else both."""
    for number in group.open:
        calls = {rank: calls[number] for rank, calls in group.calls.items() if number in calls}
        looks = {rank: common_of(call) for rank, call in calls.items()}
        counts = Counter(looks.values()).most_common()
        if len(counts) > 1:
            usual = counts[0][0]
            guilty = sorted(rank for rank in calls if looks[rank] != usual)
            if counts[0][1] == counts[1][1]:
                absent = sorted(elsewhere & calls.keys())
                is_one_side = len({looks[rank] for rank in absent}) == 1
                guilty = absent if is_one_side else sorted(calls)
            odd = sorted(rank for rank in calls if looks[rank] == looks[guilty[0]])
            rest = sorted(calls.keys() - odd)
            since = min(call.time_created_ns for call in calls.values())
            yield since, _finding(group, number, calls, (odd, rest), tuple(guilty))
            return


def _finding(
    group: FlightGroup, number: int, calls: dict[int, FlightCall],
    sides: tuple[list[int], list[int]], guilty: tuple[int, ...],
) -> Finding:  # fmt: skip
    odd, rest = sides
    first, second = calls[odd[0]], calls[rest[0]]
    sentence = (
        f"{named(odd)} {verb(odd, 'call')} {_sized(first)} as call {number} of {group.title}, where "
        f"{named(rest)} {verb(rest, 'call')} {_sized(second)} and {verb(rest, 'wait')}"
    )
    return Finding(DIFFERENT, guilty, tuple(rest), group.name, number, first.name, first.where, sentence)


def _sized(call: FlightCall) -> str:
    types = "/".join(dict.fromkeys(call.input_dtypes))
    name, _, place = placed(call).partition(" (")
    size = f" of {nbytes_of(call):,} bytes ({types})" if call.input_sizes and types else ""
    return f"{name}{size}" + (f" ({place}" if place else "")


def _of_messages(group: FlightGroup) -> Iterator[tuple[int, Finding]]:
    for (sender, receiver, _), (sends, receives) in group.messages.items():
        for number, (send, receive) in enumerate(zip(sends, receives, strict=False), 1):
            sizes = nbytes_of(send), nbytes_of(receive)
            if sizes[0] == sizes[1] or (send.has_ended and receive.has_ended):
                continue
            sentence = (
                f"rank {sender} sends {sizes[0]:,} bytes to rank {receiver}"
                f"{_line(send)}, which receives {sizes[1]:,}{_line(receive)}: "
                f"message {number} of that pair in {group.title}"
            )
            both = (sender, receiver)
            finding = Finding(
                DIFFERENT, both, both, group.name, number, send.name, send.where, sentence, is_message=True
            )
            yield send.time_created_ns, finding
            break


def _line(call: FlightCall) -> str:
    return f" ({call.where})" if call.where else ""
