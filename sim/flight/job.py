"""A job as its dumps show it: groups, their members, and what each member has called."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ringside.sim.flight.dump import HIDE_MESSAGES, Dump, FlightCall
from ringside.sim.flight.file import FlightError
from ringside.sim.flight.kinds import members_of

WORLD = "0"
"""The name of the group of all ranks."""

MAX_JOB = 65_536

Key = tuple[str, tuple[int, ...]]
"""A group: its name, and its members where the dumps have them. PyTorch gives some groups one name."""


@dataclass(frozen=True)
class FlightGroup:
    """A process group; ``ranks`` are known members, and ``is_whole`` says whether these are all.

    ``calls`` are each rank's collectives by number. ``messages`` are the calls of both sides, by sender,
    receiver and whether they are in a batch: without ``device_id`` the others have their own communicators.
    """

    name: str
    desc: str
    ranks: tuple[int, ...]
    is_whole: bool
    calls: Mapping[int, Mapping[int, FlightCall]]
    messages: Mapping[tuple[int, int, bool], tuple[Sequence[FlightCall], Sequence[FlightCall]]]

    @property
    def title(self) -> str:
        """The group as sentences name it."""
        described = self.desc not in ("", "undefined")
        return f"group {self.name} ({self.desc})" if described else f"group {self.name}"

    def last(self, rank: int) -> int:
        """Return the number of a rank's last call, 0 without any."""
        return self._last.get(rank, 0)

    @cached_property
    def _last(self) -> dict[int, int]:
        return {rank: max(calls) for rank, calls in self.calls.items()}

    @cached_property
    def open(self) -> tuple[int, ...]:
        """The numbers from the first call that has not ended on some member, as far as all buffers reach."""
        pending = [
            number for calls in self.calls.values() for number, call in calls.items() if not call.has_ended
        ]
        if not pending:
            return ()
        least = max(min(pending), *(min(calls) for calls in self.calls.values()))
        return tuple(sorted({number for calls in self.calls.values() for number in calls if number >= least}))


class FlightJob:
    """A job of ``ranks`` ranks whose ``dumps`` are known by rank."""

    def __init__(self, dumps: Mapping[int, Dump], ranks: int | None = None) -> None:
        self.dumps = dumps
        self.calls = {rank: tuple(_whole_batches(dump.entries)) for rank, dump in dumps.items()}
        self.ranks = self._count(ranks)
        self._keys = self._named()
        self.groups = {key: self._group(key) for key in sorted(set(self._keys.values()), key=_by_number)}
        self.library = next((call.library for calls in self.calls.values() for call in calls), "nccl")
        self.hides_messages = self.library in HIDE_MESSAGES

    @property
    def missing(self) -> list[int]:
        """Ranks without a dump."""
        return [rank for rank in range(self.ranks) if rank not in self.dumps]

    def pending(self, rank: int) -> list[FlightCall]:
        """Return a rank's calls that have not ended, oldest first."""
        return [call for call in self.calls.get(rank, ()) if not call.has_ended]

    def last(self, rank: int) -> FlightCall | None:
        """Return a rank's last call."""
        calls = self.calls.get(rank)
        return calls[-1] if calls else None

    def group_of(self, rank: int, call: FlightCall) -> FlightGroup:
        """Return the group of a rank's call."""
        return self.groups[self._keys[rank, call.process_group[0]]]

    def _count(self, ranks: int | None) -> int:
        least = 1 + max(self.dumps)
        for rank, dump in self.dumps.items():
            for config in dump.pg_config.values():
                least = max(least, 1 + max(config.ranks, default=0))
            for call in self.calls[rank]:
                least = max(least, members_of(call)) if call.process_group[0] == WORLD else least
        if ranks is not None and ranks < least:
            raise FlightError(
                f"{ranks} ranks, but the dumps are of {least}; write -g {least}, or leave it out"
            )
        if (ranks or least) > MAX_JOB:
            raise FlightError(f"{ranks or least:,} ranks; dumps of up to {MAX_JOB:,} ranks are read")
        return ranks or least

    def _named(self) -> dict[tuple[int, str], Key]:
        """Return the group that each rank means by a name: by its members where the rank's dump has them.

        A rank that has not used the group yet does not know them; then the only ones that others know hold.
        """
        known: dict[tuple[int, str], tuple[int, ...]] = {}
        members: dict[str, set[tuple[int, ...]]] = defaultdict(set)
        for rank, dump in self.dumps.items():
            for name, config in dump.pg_config.items():
                if name not in ("", WORLD) and config.ranks:
                    known[rank, name] = tuple(sorted(set(config.ranks)))
                    members[name].add(known[rank, name])
        keys = {(rank, WORLD): (WORLD, tuple(range(self.ranks))) for rank in self.dumps}
        for rank, calls in self.calls.items():
            for name in {call.process_group[0] for call in calls} - {WORLD}:
                own = known.get((rank, name))
                others = [one for one in members[name] if rank in one]
                keys[rank, name] = (name, own or (others[0] if len(others) == 1 else ()))
        return keys

    def _group(self, key: Key) -> FlightGroup:
        name, members = key
        desc = "default_pg" if name == WORLD else ""
        calls: dict[int, dict[int, FlightCall]] = defaultdict(dict)
        messages: dict[tuple[int, int, bool], tuple[list[FlightCall], list[FlightCall]]] = {}
        for rank, own in self.calls.items():
            for call in own:
                if self._keys.get((rank, call.process_group[0])) != key:
                    continue
                desc = call.process_group[1]
                if not call.is_p2p:
                    calls[rank][call.collective_seq_id] = call
                elif call.places is not None and max(call.places) < len(members):
                    sender, receiver = (members[place] for place in call.places)
                    both = messages.setdefault((sender, receiver, call.in_batch), ([], []))
                    both[0 if call.name.startswith("send") else 1].append(call)
        alike = [one for one, _ in set(self._keys.values()) if one == name]
        title = f"{name} of ranks {', '.join(map(str, members[:4]))}{' ...' * (len(members) > 4)}"
        ranks = tuple(sorted({*members, *calls}))
        return FlightGroup(
            title if len(alike) > 1 else name, desc, ranks, bool(members), dict(calls), messages
        )


def _by_number(key: Key) -> tuple[bool, int, Key]:
    name = key[0]
    return (False, int(name), key) if name.isascii() and name.isdigit() and len(name) < 9 else (True, 0, key)


def _whole_batches(entries: Sequence[FlightCall]) -> Iterator[FlightCall]:
    """Return the calls with the state of their batch: PyTorch updates only the entry that ends a batch.

    A batch of messages gives its messages, with the state of its end (ProcessGroupNCCL::endCoalescing).
    """
    batches: dict[tuple[object, ...], list[FlightCall]] = defaultdict(list)
    for call in entries:
        batches[_batch(call)].append(call)
    for call in entries:
        batch = batches[_batch(call)]
        *parts, end = batch
        if not parts or not _ends_batch(end):
            yield call
        elif end.is_p2p and call is not end:
            frames = call.frames or end.frames
            yield replace(call, state=end.state, retired=end.retired, frames=frames, in_batch=True)
        elif not end.is_p2p and call is end:
            yield _joined(parts, end)


def _batch(call: FlightCall) -> tuple[object, ...]:
    return call.process_group, call.is_p2p, call.p2p_seq_id if call.is_p2p else call.collective_seq_id


def _ends_batch(call: FlightCall) -> bool:
    return call.name.endswith("coalesced") and not call.input_sizes


def _joined(parts: Sequence[FlightCall], end: FlightCall) -> FlightCall:
    """Return a batch of collectives as one call of all their bytes."""
    names = {part.profiling_name for part in parts}
    return replace(
        end,
        profiling_name=names.pop() if len(names) == 1 else end.profiling_name,
        input_sizes=tuple(one for part in parts for one in part.input_sizes),
        input_dtypes=tuple(one for part in parts for one in part.input_dtypes),
        output_sizes=tuple(one for part in parts for one in part.output_sizes),
        output_dtypes=tuple(one for part in parts for one in part.output_dtypes),
    )
