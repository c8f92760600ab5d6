"""The mesh of a layout: which ranks share what."""

from math import gcd

from ringside.sim.training.layout import Layout, LayoutError, divisors, listed
from ringside.sim.training.mesh import Mesh
from ringside.sim.training.strategies import COPIES


def mesh_of(layout: Layout, ranks: int, machine: int) -> Mesh:
    """Return the mesh of ``ranks`` ranks, ``machine`` on each machine."""
    near = layout.tp * layout.cp
    data, rest = divmod(ranks, near * layout.pp)
    if rest:
        raise LayoutError(
            f"{ranks} ranks do not divide by {layout.degrees}; write "
            f"degrees whose product is one of {listed(divisors(ranks))}"
        )
    if machine % layout.tp and layout.tp % machine:
        raise LayoutError(
            f"groups of `tp` {layout.tp} ranks straddle machines of {machine} unevenly; "
            f"write one of {listed(divisors(machine))}, or a multiple of {machine}"
        )
    if machine % near and near % machine:
        raise LayoutError(
            f"groups of `tp` {layout.tp} times `cp` {layout.cp} ranks straddle machines of "
            f"{machine} unevenly; write degrees whose product is one of "
            f"{listed(divisors(machine))}, or a multiple of {machine}"
        )
    if layout.strategy == "data_parallel" and ranks > machine:
        raise LayoutError(
            f"data_parallel is one process, and {ranks} ranks are on machines of {machine}; write -g "
            f"{machine}, or `strategy` ddp"
        )
    etp = layout.tp if layout.etp is None else layout.etp
    alike = _ranks_with_the_same(layout, etp, data * near, machine)
    if layout.strategy in COPIES:
        return Mesh(
            tensor=layout.tp, context=layout.cp, replicate=data, pipeline=layout.pp,
            expert=layout.ep, expert_tensor=etp,
        )  # fmt: skip
    shard = data
    if layout.strategy == "hsdp":
        shard = _shard(layout, data, machine)
    elif layout.shard is not None:
        shard = layout.shard
        if data % shard:
            raise LayoutError(
                f"`shard` {shard} does not divide {data} data-parallel ranks; write one of "
                f"{listed(divisors(data))}"
            )
    instances = data // shard
    if (layout.ep, etp) != (1, layout.tp) and alike % instances:
        raise LayoutError(
            f"`shard` {shard} makes {instances} instances, which do not divide the {alike} ranks "
            f"with the same experts; write `shard` {data // gcd(instances, alike)}"
        )
    return Mesh(
        tensor=layout.tp, context=layout.cp, shard=shard, replicate=data // shard,
        pipeline=layout.pp, expert=layout.ep, expert_tensor=etp,
    )  # fmt: skip


def _ranks_with_the_same(layout: Layout, etp: int, stage: int, machine: int) -> int:
    """Return how many of a stage's ranks have the same experts, ``etp`` sharing each.

    Raise LayoutError for groups that do not divide, or straddle machines unevenly.
    """
    groups, rest = divmod(stage, etp)
    if rest:
        raise LayoutError(
            f"`etp` {etp} does not divide the {stage} ranks of a stage; write one of `etp` "
            f"{listed(divisors(stage))}"
        )
    together = layout.ep * etp
    fitting = [
        count for count in divisors(groups) if machine % (count * etp) == 0 or count * etp % machine == 0
    ]
    if groups % layout.ep:
        among = f"the {groups} data-parallel ranks{', those of `cp` among them' if layout.cp > 1 else ''}"
        if etp != layout.tp:
            among = f"the {groups} groups of `etp` {etp} ranks of a stage"
        raise LayoutError(f"`ep` {layout.ep} does not divide {among}; write one of `ep` {listed(fitting)}")
    if machine % together and together % machine:
        raise LayoutError(
            f"groups of `ep` {layout.ep} times `{'tp' if layout.etp is None else 'etp'}` {etp} ranks "
            f"straddle machines of {machine} unevenly; write one of `ep` {listed(fitting)}"
        )
    return groups // layout.ep


def _shard(layout: Layout, data: int, machine: int) -> int:
    fitting = [count for count in divisors(data) if 1 < count < data]
    whole = "ddp" if data == 1 else "fsdp"
    advice = f"write one of `shard` {listed(fitting)}" if fitting else f"write `strategy` {whole}"
    shard = layout.shard
    if shard is None:
        near = layout.tp * layout.cp
        shard = machine // near if machine % near == 0 else 0
        if not (1 < shard < data and data % shard == 0):
            raise LayoutError(
                f"HSDP has no sharding group left: {data} data-parallel ranks, {machine} ranks a machine "
                f"and `tp` {layout.tp}; {advice}"
            )
    if data % shard or shard == data or shard == 1:
        raise LayoutError(
            f"`shard` {shard} must divide {data} data-parallel ranks, and be more than 1 and fewer than "
            f"all; {advice}"
        )
    return shard
