"""Programs of groups of some of the ranks."""

from typing import Any

from tests.sim.program.cases.case import BIG, case


@case(4, "proved", "proved")
def groups_of_two(dist: Any) -> None:
    first, second = dist.new_group([0, 1]), dist.new_group([2, 3])
    dist.all_reduce(BIG, group=first if dist.get_rank() < 2 else second)
    dist.all_reduce(BIG)


@case(4, "hangs", "hangs")
def member_skips_its_groups_call(dist: Any) -> None:
    group = dist.new_group([0, 1, 2])
    if dist.get_rank() in (0, 1):
        dist.all_reduce(BIG, group=group)


@case(3, "proved", "proved")
def who_is_no_member_calls_in_vain(dist: Any) -> None:
    group = dist.new_group([0, 1])
    dist.all_reduce(BIG, group=group)


@case(3, "unsafe", "unsafe")
def new_group_that_an_outsider_skips(dist: Any) -> None:
    if dist.get_rank() != 2:
        group = dist.new_group([0, 1])
        dist.all_reduce(BIG, group=group)


@case(3, "hangs", "hangs")
def new_group_that_an_outsider_skips_then_another(dist: Any) -> None:
    if dist.get_rank() != 2:
        dist.new_group([0, 1])
    group = dist.new_group([1, 2])
    dist.all_reduce(4, group=group)


@case(2, "hangs", "hangs")
def new_group_that_a_member_skips(dist: Any) -> None:
    if dist.get_rank() == 0:
        group = dist.new_group([0, 1])
        dist.all_reduce(4, group=group)


@case(3, "proved", "proved")
def local_new_group(dist: Any) -> None:
    if dist.get_rank() < 2:
        group = dist.new_group([0, 1], use_local_synchronization=True)
        dist.all_reduce(BIG, group=group)


@case(2, "hangs", "hangs")
def two_groups_in_different_orders_blocking(dist: Any) -> None:
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    for group in groups if dist.get_rank() else reversed(groups):
        dist.all_reduce(BIG, group=group)


@case(2, "proved", "unsafe")
def two_groups_in_different_orders_asynchronous(dist: Any) -> None:
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    for group in groups:
        dist.all_reduce(4, group=group)
    order = groups if dist.get_rank() else list(reversed(groups))
    for work in [dist.all_reduce(BIG, group=group, async_op=True) for group in order]:
        work.wait()


@case(2, "fails", "fails")
def peer_that_is_no_member(dist: Any) -> None:
    group = dist.new_group([0])
    if dist.get_rank() == 0:
        dist.send(4, 1, group=group)


@case(4, "proved", "proved")
def mesh_of_two_dimensions(dist: Any) -> None:
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    dist.all_reduce(BIG, group=mesh.get_group("tp"))
    dist.all_reduce(BIG, group=mesh.get_group("dp"))


@case(4, "proved", "proved")
def subgroups(dist: Any) -> None:
    own, _ = dist.new_subgroups(2)
    dist.all_reduce(BIG, group=own)


@case(3, "fails", "fails")
def message_outside_of_a_group(dist: Any) -> None:
    group = dist.new_group([0, 1])
    if dist.get_rank() == 0:
        dist.send(4, 2, group=group)


@case(2, "proved", "proved")
def all_to_all_in_a_group_of_one(dist: Any) -> None:
    group = dist.new_group([0])
    if dist.get_rank() == 0:
        dist.all_to_all_single(8, [8], [8], group=group)


@case(3, "fails", "fails")
def gather_to_rank_0_which_is_no_member(dist: Any) -> None:
    group = dist.new_group([1, 2])
    if dist.get_rank():
        dist.gather(4, group=group)
