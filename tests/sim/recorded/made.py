"""Recorded jobs for tests: of Ringside's own programs, and by hand in the shape of a decoder under FSDP."""

from collections import defaultdict

from ringside.sim.program import Call, Compute, Group, Operation, Program, Recv, Send, Together, Wait
from ringside.sim.recorded.job import (
    Action,
    Entry,
    GroupCall,
    HostWait,
    Operator,
    PeerMessage,
    RecordedGroup,
    RecordedJob,
    RecordedRank,
    Shaped,
)


def timed(seconds: float) -> Operator:
    """Return an operator that `seconds_of` prices."""
    return Operator("seconds", options=(("seconds", seconds),))


def seconds_of(operator: Operator) -> float:
    return float(dict(operator.options)["seconds"])


class Recording:
    """One rank's entries as they are posted."""

    def __init__(self, rank: int, alike: tuple[int, ...] | None = None) -> None:
        self.rank = rank
        self.alike = (rank,) if alike is None else alike
        self.actions: dict[Action, int] = {}
        self.entries: list[Entry] = []
        self.held: dict[str, int] = {}

    def post(
        self,
        action: Action,
        lane: str = "compute",
        after: tuple[int, ...] = (),
        memory: tuple[tuple[str, int], ...] = (),
    ) -> int:
        number = self.actions.setdefault(action, len(self.actions))
        self.entries.append(Entry(number, lane, tuple(sorted(set(after))), memory))
        return len(self.entries) - 1

    def done(self) -> RecordedRank:
        return RecordedRank(self.rank, self.alike, tuple(self.actions), tuple(self.entries), self.held)


def job_of(recorded: list[RecordedRank], groups: list[RecordedGroup], **more) -> RecordedJob:
    ranks = sum(len(one.alike) for one in recorded)
    settings = {"command": ("train.py",), "ranks": ranks, "per_node": 8, "torch": "2.13.0", **more}
    return RecordedJob(groups=tuple(groups), recorded=tuple(recorded), **settings)


def recorded_of(program: Program, roles: tuple[int, ...], held=lambda rank: {}) -> RecordedJob:
    """Return a program as a recording of its representatives would have it, waits of streams as ``after``."""
    alike = defaultdict(list)
    for rank, stands in enumerate(roles):
        alike[stands].append(rank)
    parts: dict[str, list[tuple[int, ...]]] = {}
    for rank in range(program.ranks):
        for one in program.operations(rank):
            group = getattr(one.action, "group", None)
            if group and group.ranks not in parts.setdefault(kind(group), []):
                parts[kind(group)].append(group.ranks)
    recorded = []
    for rank, others in alike.items():
        recording = Recording(rank, tuple(others))
        recording.held = dict(held(rank))
        _fill(recording, program.operations(rank))
        recorded.append(recording.done())
    groups = [RecordedGroup(name, tuple(partition)) for name, partition in parts.items()]
    return job_of(recorded, groups)


def kind(group: Group) -> str:
    """Return a group's name without its number: the partition's."""
    return group.name.rpartition(" ")[0] or group.name


def _fill(recording: Recording, operations: list[Operation]) -> None:
    place: dict[int, tuple[int, ...]] = {}
    waits: dict[str, tuple[int, ...]] = defaultdict(tuple)
    last: dict[str, tuple[int, ...]] = {}
    for number, one in enumerate(operations):
        after = tuple(earlier for before in one.after for earlier in place[before])
        if isinstance(one.action, Wait) and not one.holds:
            waits[one.lane] += after
            place[number] = (*waits[one.lane], *last.get(one.lane, ()))
            continue
        actions = list(_actions(one, number))
        lane = one.lane or (f"group {kind(one.action.group)}" if hasattr(one.action, "group") else "host")
        after += waits.pop(lane, ())
        posted = [recording.post(action, lane, after, one.memory) for action in actions]
        place[number] = last[lane] = (posted[-1],)


def _actions(one: Operation, number: int):
    match one.action:
        case Compute(seconds):
            yield timed(seconds)
        case Call(group, name, collective):
            root = group.ranks[collective.root] if collective.kind in ("broadcast", "reduce") else None
            yield GroupCall(
                kind(group),
                name,
                collective.kind,
                collective.nbytes,
                collective.dtype or "uint8",
                collective.redop,
                root,
                one.lane is not None,
            )
        case Together(_, parts):
            yield from (_message(part, number) for part in parts)
        case Send() | Recv():
            yield _message(one.action, None)
        case Wait():
            yield HostWait(one.name)


def _message(part: Send | Recv, batch: int | None) -> PeerMessage:
    return PeerMessage(
        kind(part.group), part.peer, part.nbytes, isinstance(part, Send), tag=part.tag, batch=batch
    )


def decoder(
    ranks: int = 64,
    tp: int = 1,
    layers: int = 32,
    width: int = 4096,
    hidden: int = 14336,
    tokens: int = 8192,
    per_layer: int = 150,
) -> RecordedJob:
    """Return a step like torchtitan's on FSDP2, with gathers and reductions on streams."""
    one = Recording(0, tuple(range(ranks)))
    grouped = ranks // tp
    nbytes = 2 * (4 * width * width // 1 + 3 * width * hidden) // tp
    one.held = {"parameters": 2 * nbytes * layers // grouped, "optimizer": 4 * nbytes * layers // grouped}
    mm = [
        Operator("aten.mm", (Shaped((tokens, width), "bfloat16"), Shaped((width, n // tp), "bfloat16")),
                 (Shaped((tokens, n // tp), "bfloat16"),))
        for n in (width, width, width, width, hidden, hidden, hidden)
    ]  # fmt: skip
    x = Shaped((1, tokens, width), "bfloat16")
    small = [Operator(f"aten.{name}", (x, x), (x,)) for name in ("add", "mul", "silu", "_to_copy", "pow")]
    qkv = Shaped((1, 32 // tp, tokens, width // 32), "bfloat16")
    flash = Operator("aten._scaled_dot_product_flash_attention", (qkv,) * 3, (qkv,), (("is_causal", True),))
    back = Operator(
        "aten._scaled_dot_product_flash_attention_backward", (qkv,) * 6, (qkv,) * 3, (("is_causal", True),)
    )

    def compute(backward: bool, gathered: int, last: int) -> None:
        repeats = 2 if backward else 1
        ops = [op for op in mm for _ in range(repeats)] + [back if backward else flash]
        count = per_layer * repeats // 3
        ops += [small[n % len(small)] for n in range(count - len(ops))]
        for number, op in enumerate(ops):
            if number == 0:
                one.post(op, after=(gathered,), memory=(("activations", x.nbytes * (-4 if backward else 4)),))
            else:
                one.post(op)
            if tp > 1 and number in (8, 16):
                one.post(GroupCall("tp", "all_reduce", "all_reduce", x.nbytes, "bfloat16"))

    gather = GroupCall("dp", "all_gather_into_tensor", "all_gather", nbytes, "bfloat16")
    reduce_ = GroupCall("dp", "reduce_scatter_tensor", "reduce_scatter", 2 * nbytes, "float32", redop="avg")
    copy = Operator(
        "aten.split_with_sizes_copy",
        (Shaped((nbytes // 2,), "bfloat16"),),
        (Shaped((nbytes // 2,), "bfloat16"),),
    )

    def fetch() -> int:
        return one.post(gather, "gather", memory=(("gathered", nbytes),))

    for backward in (False, True):
        upcoming = fetch()
        for layer in range(layers):
            copied = one.post(copy, after=(upcoming,))
            upcoming = fetch() if layer + 1 < layers else copied
            compute(backward, copied, layer)
            freed = one.post(small[0], memory=(("gathered", -nbytes),))
            if backward:
                one.post(reduce_, "reduce", after=(freed,), memory=(("gradients", 2 * nbytes // grouped),))
    one.post(
        Operator("aten._foreach_norm", (Shaped((nbytes * layers // grouped // 2,), "float32"),)),
        after=(len(one.entries) - 1,),
    )
    one.post(GroupCall("dp", "all_reduce", "all_reduce", 4, "float32"))
    one.post(HostWait("item"))
    shard = Shaped((nbytes * layers // grouped // 2,), "float32")
    one.post(
        Operator("aten._fused_adamw_", (shard,) * 4, (shard,) * 3),
        memory=(("gradients", -2 * nbytes // grouped * layers),),
    )
    groups = [
        RecordedGroup("world", (tuple(range(ranks)),)),
        RecordedGroup("dp", tuple(tuple(range(t, ranks, tp)) for t in range(tp))),
        RecordedGroup("tp", tuple(tuple(range(f, f + tp)) for f in range(0, ranks, tp))),
    ]
    return job_of([one.done()], groups, samples=ranks)
