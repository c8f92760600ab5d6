"""A recorded job as a `Program`: every rank of the job does what the recorded rank that stands for it does.

A lane of a rank is a stream or a group's own. Groups are the same parts of their partitions, peers have the
same places in a group. The steps of ranks that are alike differ in nothing else.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.libraries.rules import RULES
from ringside.sim.program.operations import (
    Action,
    Call,
    Compute,
    Group,
    Operation,
    Program,
    Recv,
    Send,
    Together,
    Wait,
)
from ringside.sim.recorded.host import PostedBy, Shape
from ringside.sim.recorded.job import (
    GroupCall,
    HostWait,
    JobFileError,
    Operator,
    PeerMessage,
    RecordedJob,
    RecordedRank,
)
from ringside.sim.recorded.sound import check_job, title

Price = Callable[[Operator], float]
"""Seconds of an operator."""

PAIR = "pair "
"""The begin of the name of a communicator of two ranks."""


def dimension(group: Group) -> str:
    """Return the recorded name of a group, or of the one that a pair is of."""
    return group.name.partition(" of ")[2] if group.name.startswith(PAIR) else group.name


def free(_: Operator) -> float:
    """Return no time: communication alone."""
    return 0.0


def _numbered(roles: Iterable[Hashable]) -> list[int]:
    """Return the roles as numbers from 0, in the order of their first ranks."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(role, len(numbers)) for role in roles]


@dataclass(frozen=True, slots=True)
class Playing:
    """Makes the operations of a job's ranks by a library's rules; operators take ``factor`` x ``price``.

    The host of each rank takes ``factor`` x ``launch_s`` for every entry that it posts.
    """

    job: RecordedJob
    price: Price = free
    library: str = "nccl"
    factor: float = 1.0
    launch_s: float = 0.0
    _groups: dict[tuple[str, int], Group] = field(init=False, repr=False, default_factory=dict)
    _parts: dict[str, dict[int, int]] = field(init=False, repr=False, default_factory=dict)
    _shapes: dict[int, Shape] = field(init=False, repr=False, default_factory=dict)
    _made: dict[int, list[Operation]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        check_job(self.job)
        for group in self.job.groups:
            of = {rank: number for number, part in enumerate(group.partition) for rank in part}
            self._parts[group.name] = of

    def program(self) -> Program:
        """Return the job's step, with its ranks' roles."""
        return Program(title(self.job), self.job.ranks, self.operations, role=self._roles().__getitem__)

    def _roles(self) -> list[int]:
        """Return a number for each rank, equal for those that do the same with ranks that do the same.

        Alike ranks begin with one role, but for the roots of calls. Roles are then split until the groups and
        the peers of all ranks of a role have the same roles.
        """
        calls: dict[int, list[GroupCall]] = {}
        messages: dict[int, list[PeerMessage]] = {}
        for one in self.job.recorded:
            calls[one.rank] = [action for action in one.actions if isinstance(action, GroupCall)]
            messages[one.rank] = [action for action in one.actions if isinstance(action, PeerMessage)]
        stands = self.job.representatives
        names = {rank: sorted({call.group for call in own}) for rank, own in calls.items()}
        rooted = {rank: [call for call in own if call.root is not None] for rank, own in calls.items()}
        groups = [[self.group(name, rank) for name in names[stands[rank]]] for rank in range(self.job.ranks)]
        peers = [
            [self._peer(stands[rank], rank, message) for message in messages[stands[rank]]]
            for rank in range(self.job.ranks)
        ]
        roles = _numbered(
            (stands[rank], *(self._root(stands[rank], rank, call) == rank for call in rooted[stands[rank]]))
            for rank in range(self.job.ranks)
        )
        while True:
            mixes = {
                group: tuple(sorted(Counter(roles[rank] for rank in group.ranks).items()))
                for group in dict.fromkeys(group for own in groups for group in own)
            }
            finer = _numbered(
                (
                    roles[rank],
                    tuple(mixes[group] for group in groups[rank]),
                    tuple(roles[peer] for peer in peers[rank]),
                )
                for rank in range(self.job.ranks)
            )
            if max(finer) == max(roles):
                return roles
            roles = finer

    def operations(self, rank: int) -> Sequence[Operation]:
        """Return the operations of a rank."""
        if rank not in self._made:
            shape = self.shape(self.job.representatives[rank])
            actions = [self._action(shape.recorded, rank, action) for action in shape.recorded.actions]
            self._made[rank] = [
                _with_action(one, actions, numbers)
                for one, numbers in zip(shape.operations, shape.actions, strict=True)
            ]
        return self._made[rank]

    def shape(self, recorded: int) -> Shape:
        """Return what the ranks alike to a recorded one share."""
        if recorded not in self._shapes:
            (one,) = (one for one in self.job.recorded if one.rank == recorded)
            host = PostedBy(RULES[self.library].on_stream, self.launch_s * self.factor, self._least_s)
            self._shapes[recorded] = host.shape(one)
        return self._shapes[recorded]

    def _least_s(self, action: object) -> float:
        """Return the seconds that an action takes its lane at least."""
        return self.price(action) * self.factor if isinstance(action, Operator) else 0.0

    def _action(
        self, recorded: RecordedRank, rank: int, action: Operator | GroupCall | PeerMessage | HostWait
    ) -> Action:
        match action:
            case Operator():
                return Compute(self.price(action) * self.factor)
            case GroupCall():
                group = self.group(action.group, rank)
                if len(group.ranks) == 1:
                    return Compute(0.0)  # which exchanges nothing
                root = group.ranks.index(self._root(recorded.rank, rank, action))
                dtype = action.dtype if action.dtype in ITEMSIZE else None
                collective = Collective(
                    action.collective, len(group.ranks), action.nbytes, root=root, dtype=dtype,
                    redop=action.redop,
                )  # fmt: skip
                return Call(group, action.name, collective)
            case PeerMessage():
                kind = Send if action.is_send else Recv
                peer, group = self._peer(recorded.rank, rank, action), self.group(action.group, rank)
                if not group.rules.on_stream:
                    return kind(group, peer, action.nbytes, action.tag)
                # ProcessGroupNCCL ignores tags, and has a communicator for each pair without a batch
                return kind(
                    group if action.batch is not None else self._pair(group, rank, peer), peer, action.nbytes
                )
            case HostWait():
                return Wait()

    def _root(self, recorded: int, rank: int, call: GroupCall) -> int:
        """Return the root of a call of a rank, at the same place in its group as the recorded rank's."""
        place = self.group(call.group, recorded).ranks.index(call.root) if call.root is not None else 0
        return self.group(call.group, rank).ranks[place]

    def group(self, name: str, rank: int) -> Group:
        """Return a rank's group of that name."""
        part = self._parts[name].get(rank)
        if part is None:
            raise JobFileError(
                f"{title(self.job)}: rank {rank} does what rank {self.job.representatives[rank]} does, but "
                f"is in no group {name}; record rank {rank} too"
            )
        if (name, part) not in self._groups:
            (whole,) = (group for group in self.job.groups if group.name == name)
            rules = RULES[self.library]
            self._groups[name, part] = Group(name, whole.partition[part], rules.name, rules.workers)
        return self._groups[name, part]

    def _pair(self, group: Group, rank: int, peer: int) -> Group:
        low, high = sorted((rank, peer))
        name = f"{PAIR}{low}:{high} of {group.name}"
        if (name, 0) not in self._groups:
            self._groups[name, 0] = replace(group, name=name, ranks=(low, high))
        return self._groups[name, 0]

    def _peer(self, recorded: int, rank: int, message: PeerMessage) -> int:
        """Return a message's peer: at the same place in its group, if there are several of that name.

        A script may name neighbours of a mesh by their ranks in the group of all: there the place is that in
        the smallest group of both ranks.
        """
        if rank == recorded:
            return message.peer
        both = [
            (len(self.group(name, recorded).ranks), name)
            for name, of in self._parts.items()
            if of.get(message.peer) == of.get(recorded, -1) and rank in of
        ]
        alone = max(self._parts[message.group].values()) == 0
        name = min(both)[1] if alone else message.group
        place = self.group(name, recorded).ranks.index(message.peer)
        ranks = self.group(name, rank).ranks
        if place >= len(ranks):
            raise JobFileError(
                f"{title(self.job)}: rank {rank} does what rank {recorded} does, but its group {name} has "
                f"no place {place}; record rank {rank} too"
            )
        return ranks[place]


def _with_action(one: Operation, actions: Sequence[Action], numbers: tuple[int, ...]) -> Operation:
    """Return an operation with its action, or with its messages together."""
    if not numbers:
        return one
    if len(numbers) == 1:
        return Operation(actions[numbers[0]], *one[1:])
    parts = tuple(part for number in numbers if isinstance(part := actions[number], Send | Recv))
    return Operation(Together(parts[0].group, parts), *one[1:])
