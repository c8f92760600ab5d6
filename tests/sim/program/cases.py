"""Programs that end or do not, with each library: what the proof must say, and what really happens."""

from collections.abc import Callable
from typing import Any, NamedTuple

BIG = 1 << 20


class Case(NamedTuple):
    """A program, on how many ranks, and its verdict with Gloo and with NCCL; None where it is not asked."""

    main: Callable[[Any], Any]
    ranks: int
    gloo: str | None
    nccl: str | None


CASES: dict[str, Case] = {}


def case(ranks: int, gloo: str | None, nccl: str | None = None) -> Callable[[Callable[[Any], Any]], Any]:
    """Put a program on the list."""

    def put(main: Callable[[Any], Any]) -> Callable[[Any], Any]:
        CASES[main.__name__] = Case(main, ranks, gloo, nccl)
        return main

    return put


@case(2, "proved", "proved")
def one_sends_one_receives(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(BIG, 1)
    else:
        dist.recv(BIG, 0)


@case(2, "hangs", "unsafe")
def both_send_first_small(dist: Any) -> None:
    other = 1 - dist.get_rank()
    dist.send(4, other)
    dist.recv(4, other)


@case(2, "hangs", "hangs")
def both_send_first_large(dist: Any) -> None:
    other = 1 - dist.get_rank()
    dist.send(64 * BIG, other)
    dist.recv(64 * BIG, other)


@case(2, "hangs", "hangs")
def both_receive_first(dist: Any) -> None:
    other = 1 - dist.get_rank()
    dist.recv(4, other)
    dist.send(4, other)


@case(2, "proved", "proved")
def parity(dist: Any) -> None:
    rank = dist.get_rank()
    if rank % 2:
        dist.recv(BIG, 1 - rank)
        dist.send(BIG, 1 - rank)
    else:
        dist.send(BIG, 1 - rank)
        dist.recv(BIG, 1 - rank)


@case(2, "proved", "hangs")
def isend_both_then_recv(dist: Any) -> None:
    other = 1 - dist.get_rank()
    work = dist.isend(BIG, other)
    dist.recv(BIG, other)
    work.wait()


@case(2, "proved", "hangs")
def isend_irecv_in_one_order(dist: Any) -> None:
    other = 1 - dist.get_rank()
    works = [dist.isend(BIG, other), dist.irecv(BIG, other)]
    for work in works:
        work.wait()


@case(2, "proved", "proved")
def isend_irecv_in_opposite_orders(dist: Any) -> None:
    rank = dist.get_rank()
    calls = [dist.isend, dist.irecv] if rank else [dist.irecv, dist.isend]
    works = [call(BIG, 1 - rank) for call in calls]
    for work in works:
        work.wait()


@case(4, "proved", "proved")
def batched_ring_shift(dist: Any) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, BIG, (rank + 1) % ranks),
            dist.P2POp(dist.irecv, BIG, (rank - 1) % ranks),
        ]
    )
    for work in works:
        work.wait()


@case(4, "hangs", "hangs")
def ring_shift_by_blocking_sends(dist: Any) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dist.send(BIG, (rank + 1) % ranks)
    dist.recv(BIG, (rank - 1) % ranks)


@case(3, "proved", "proved")
def chain(dist: Any) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank:
        dist.recv(BIG, rank - 1)
    if rank < ranks - 1:
        dist.send(BIG, rank + 1)


@case(2, "hangs", "hangs")
def nobody_receives(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(BIG, 1)


@case(2, "unsafe", "hangs")
def nobody_receives_and_nobody_waits(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.isend(BIG, 1)


@case(2, "hangs", "hangs")
def nobody_sends(dist: Any) -> None:
    if dist.get_rank() == 1:
        dist.recv(4, 0)


@case(2, "hangs")
def another_tag(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(4, 1, tag=1)
    else:
        dist.recv(4, 0, tag=2)


@case(2, "proved", "proved")
def crossing_tags_asynchronous(dist: Any) -> None:
    if dist.get_rank() == 0:
        works = [dist.isend(BIG, 1, tag=1), dist.isend(BIG, 1, tag=2)]
    else:
        works = [dist.irecv(BIG, 0, tag=2), dist.irecv(BIG, 0, tag=1)]
    for work in works:
        work.wait()


@case(2, "hangs", "proved")
def crossing_tags_blocking(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(BIG, 1, tag=1)
        dist.send(BIG, 1, tag=2)
    else:
        dist.recv(BIG, 0, tag=2)
        dist.recv(BIG, 0, tag=1)


@case(2, "fails", "hangs")
def oversized_message(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(8, 1)
    else:
        dist.recv(4, 0)


@case(2, "proved", "hangs")
def undersized_message(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(4, 1)
    else:
        dist.recv(8, 0)


@case(2, "fails", "fails")
def send_to_oneself(dist: Any) -> None:
    dist.send(4, dist.get_rank())


@case(2, "fails", "fails")
def isend_to_oneself(dist: Any) -> None:
    dist.isend(4, dist.get_rank())


@case(3, "proved")
def receive_from_anybody(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.recv(4)
        dist.recv(4)
    else:
        dist.send(4, 0)


@case(3, "unsafe")
def receive_from_anybody_then_from_one(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.recv(4)
        dist.recv(4, 1)
    else:
        if dist.get_rank() == 2:
            dist.compute(1.0)
        dist.send(4, 0)


@case(3, "proved", "proved")
def all_reduce(dist: Any) -> None:
    dist.all_reduce(BIG)


@case(3, "hangs", "hangs")
def all_reduce_that_one_skips(dist: Any) -> None:
    if dist.get_rank() != 1:
        dist.all_reduce(BIG)


@case(3, "hangs", "hangs")
def one_calls_twice(dist: Any) -> None:
    dist.all_reduce(BIG)
    if dist.get_rank() == 0:
        dist.all_reduce(BIG)


@case(2, "hangs", "hangs")
def different_collectives(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.all_reduce(BIG)
    else:
        dist.broadcast(BIG, 0)


@case(2, "hangs", "hangs")
def different_roots(dist: Any) -> None:
    dist.broadcast(BIG, dist.get_rank())
    dist.barrier()


@case(2, "hangs", "hangs")
def send_before_and_after_a_barrier(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(4, 1)
        dist.barrier()
    else:
        dist.barrier()
        dist.recv(4, 0)


@case(2, "proved", "proved")
def message_beside_an_all_reduce(dist: Any) -> None:
    rank = dist.get_rank()
    work = dist.isend(BIG, 1) if rank == 0 else dist.irecv(BIG, 0)
    dist.all_reduce(BIG)
    work.wait()


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


@case(2, "proved", "proved")
def asynchronous_calls_in_one_order(dist: Any) -> None:
    works = [dist.all_reduce(BIG, async_op=True) for _ in range(5)]
    for work in reversed(works):
        work.wait()


@case(2, "hangs", "hangs")
def asynchronous_calls_of_different_kinds_in_different_orders(dist: Any) -> None:
    calls = [dist.all_reduce, dist.all_gather]
    for work in [call(BIG, async_op=True) for call in (calls if dist.get_rank() else reversed(calls))]:
        work.wait()


@case(4, "unsafe", "hangs")
def broadcast_that_the_root_need_not_wait_for(dist: Any) -> None:
    """Rank 3 hears from the root by way of rank 2 or 1: the root leaves before it has come."""
    rank = dist.get_rank()
    if rank == 3:
        dist.recv(4, 0)
    dist.broadcast(4, 0)
    if rank == 0:
        dist.send(4, 3)


@case(2, "hangs", "hangs")
def broadcast_whose_receiver_waits_for_the_root(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.broadcast(4, 0)
        dist.send(4, 1)
    else:
        dist.recv(4, 0)
        dist.broadcast(4, 0)


@case(3, "unsafe", None)
def gather_that_a_sender_leaves_early(dist: Any) -> None:
    """Rank 1 has given its part to the root and goes on, while rank 2 has not come."""
    rank = dist.get_rank()
    if rank == 2:
        dist.recv(4, 1)
    dist.gather(4, 0)
    if rank == 1:
        dist.send(4, 2)


@case(3, "proved", "fails")
def monitored_barrier(dist: Any) -> None:
    dist.monitored_barrier()


@case(2, "fails", "fails")
def peer_that_is_no_member(dist: Any) -> None:
    group = dist.new_group([0])
    if dist.get_rank() == 0:
        dist.send(4, 1, group=group)


@case(2, "proved", "proved")
def objects(dist: Any) -> None:
    dist.all_gather_object(1000)
    dist.broadcast_object_list(100, 0)


@case(4, "proved", "proved")
def mesh_of_two_dimensions(dist: Any) -> None:
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    dist.all_reduce(BIG, group=mesh.get_group("tp"))
    dist.all_reduce(BIG, group=mesh.get_group("dp"))


@case(4, "proved", "proved")
def every_collective(dist: Any) -> None:
    dist.all_reduce(BIG)
    dist.broadcast(BIG, 1)
    dist.reduce(BIG, 2)
    dist.gather(BIG, 0)
    dist.scatter(BIG, 3)
    dist.all_gather(BIG)
    dist.all_gather_into_tensor(BIG)
    dist.reduce_scatter(BIG)
    dist.reduce_scatter_tensor(BIG)
    dist.all_to_all_single(BIG)
    dist.barrier()


@case(4, "proved", "proved")
def subgroups(dist: Any) -> None:
    own, _ = dist.new_subgroups(2)
    dist.all_reduce(BIG, group=own)


@case(3, "proved", "proved")
def pipeline(dist: Any) -> None:
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    for _ in range(4):
        if rank:
            dist.recv(BIG, rank - 1)
        dist.compute(1e-3)
        if rank < last:
            dist.send(BIG, rank + 1)
    for _ in range(4):
        if rank < last:
            dist.recv(BIG, rank + 1)
        dist.compute(2e-3)
        if rank:
            dist.send(BIG, rank - 1)


@case(2, "hangs", "hangs")
def one_f_one_b_with_blocking_messages(dist: Any) -> None:
    """The stage that follows sends its gradient while the one before sends the next activation."""
    rank = dist.get_rank()
    for step in range(2):
        if rank == 0:
            dist.send(64 * BIG, 1)
            if step:
                dist.recv(64 * BIG, 1)
        else:
            dist.recv(64 * BIG, 0)
            dist.send(64 * BIG, 0)


@case(2, "hangs", "hangs")
def call_then_message_in_opposite_orders(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.all_reduce(4)
        dist.send(4, 1)
    else:
        dist.recv(4, 0)
        dist.all_reduce(4)


@case(2, "proved", "proved")
def halo_exchange(dist: Any) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for _ in range(3):
        messages = []
        for neighbour in (rank - 1, rank + 1):
            if 0 <= neighbour < ranks:
                messages.append(dist.P2POp(dist.isend, BIG, neighbour))
                messages.append(dist.P2POp(dist.irecv, BIG, neighbour))
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        dist.compute(1e-3)


@case(2, "fails", "hangs")
def all_reduce_of_unequal_sizes(dist: Any) -> None:
    dist.all_reduce(BIG * (1 + dist.get_rank()))


@case(3, "fails", "hangs")
def all_gather_of_unequal_sizes(dist: Any) -> None:
    dist.all_gather(BIG * (1 + dist.get_rank()))


@case(3, "fails", "hangs")
def all_to_all_of_unequal_sizes(dist: Any) -> None:
    dist.all_to_all_single(3 * BIG * (1 + dist.get_rank()))


@case(2, "fails", "hangs")
def broadcast_into_too_little_room(dist: Any) -> None:
    dist.broadcast(BIG * (2 - dist.get_rank()), 0)


@case(2, "unsafe", "hangs")
def broadcast_into_too_much_room(dist: Any) -> None:
    dist.broadcast(BIG * (1 + dist.get_rank()), 0)


@case(3, "unsafe", "hangs")
def gather_of_less_than_there_is_room_for(dist: Any) -> None:
    dist.gather(BIG * (3 - dist.get_rank()), 0)


@case(3, "fails", "hangs")
def gather_of_more_than_there_is_room_for(dist: Any) -> None:
    dist.gather(BIG * (1 + dist.get_rank()), 0)


@case(2, "hangs", "fails")
def send_to_nobody(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(4, 2)


@case(2, "hangs", "fails")
def receive_from_nobody(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.recv(4, -1)


@case(3, "fails", "fails")
def message_outside_of_a_group(dist: Any) -> None:
    group = dist.new_group([0, 1])
    if dist.get_rank() == 0:
        dist.send(4, 2, group=group)


@case(2, "proved", "proved")
def all_to_all_of_unequal_parts(dist: Any) -> None:
    rank = dist.get_rank()
    to, back = ([4 * BIG, BIG], [4 * BIG, 512]) if rank == 0 else ([512, 0], [BIG, 0])
    dist.all_to_all_single(sum(to), back, to)


@case(2, "fails", "hangs")
def all_to_all_of_a_part_that_is_too_large(dist: Any) -> None:
    to, back = ([8, 8], [8, 8]) if dist.get_rank() == 0 else ([8, 8], [4, 8])
    dist.all_to_all_single(16, back, to)


@case(3, "hangs", "hangs")
def all_to_all_of_unequal_parts_that_one_skips(dist: Any) -> None:
    if dist.get_rank() < 2:
        dist.all_to_all_single(12, [4, 4, 4], [4, 4, 4])


@case(2, "fails", "fails")
def all_to_all_of_too_few_parts(dist: Any) -> None:
    dist.all_to_all_single(8, [8], [8])


@case(3, "unsafe")
def named_receive_behind_one_from_anybody(dist: Any) -> None:
    """Either may take what comes from rank 1; if it is the first, the other one waits for rank 1 in vain."""
    if dist.get_rank() == 0:
        for work in [dist.irecv(4), dist.irecv(4, 1)]:
            work.wait()
    else:
        dist.send(4, 0)


@case(3, "proved")
def named_receive_that_loses_nothing_to_one_from_anybody(dist: Any) -> None:
    """Both receives are there before rank 1 sends, and so the one that names it is first."""
    rank = dist.get_rank()
    works = [dist.irecv(4), dist.irecv(4, 1)] if rank == 0 else []
    dist.barrier()
    if rank == 0:
        works[1].wait()
        dist.send(4, 2)
        works[0].wait()
    elif rank == 1:
        dist.send(4, 0)
    else:
        dist.recv(4, 0)
        dist.send(4, 0)


@case(4, "unsafe")
def receive_from_anybody_behind_another_ones(dist: Any) -> None:
    """Rank 2 can be first at rank 0 only once it has received from anybody itself."""
    rank = dist.get_rank()
    if rank == 0:
        dist.recv(4)
        dist.recv(4, 1)
    elif rank == 2:
        dist.recv(4)
        dist.send(4, 0)
    else:
        dist.send(4, 0 if rank == 1 else 2)


@case(2, "fails")
def receive_of_nothing_from_anybody(dist: Any) -> None:
    dist.recv(0) if dist.get_rank() else dist.send(0, 1)


@case(2, "unsafe", "proved")
def isend_that_nobody_keeps(dist: Any) -> None:
    dist.recv(BIG, 0) if dist.get_rank() else dist.isend(BIG, 1)


@case(2, "unsafe", "proved")
def isend_that_nobody_waits_for(dist: Any) -> None:
    if dist.get_rank() == 0:
        work = dist.isend(BIG, 1)
        assert work
    else:
        dist.compute(0.3)
        dist.recv(BIG, 0)


@case(2, "unsafe", "proved")
def irecv_that_nobody_keeps(dist: Any) -> None:
    """What comes for it blocks all that comes behind it from the same rank."""
    if dist.get_rank() == 0:
        dist.send(4, 1)
    else:
        dist.irecv(4, 0)
    dist.barrier()


@case(2, "unsafe")
def irecv_of_too_little_that_nobody_keeps(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(8, 1)
    else:
        dist.irecv(4, 0)


@case(2, "unsafe", "proved")
def batch_that_nobody_waits_for(dist: Any) -> None:
    other = 1 - dist.get_rank()
    dist.batch_isend_irecv([dist.P2POp(dist.irecv, BIG, other), dist.P2POp(dist.isend, BIG, other)])


@case(3, "proved", "proved")
def collectives_that_nobody_keeps(dist: Any) -> None:
    for _ in range(5):
        dist.all_reduce(BIG, async_op=True)


@case(2, "proved", "hangs")
def synchronize_which_waits_for_nothing_of_gloos(dist: Any) -> None:
    if dist.get_rank() == 0:
        work = dist.irecv(4, 1)
        dist.synchronize()
        dist.send(4, 1)
        work.wait()
    else:
        dist.recv(4, 0)
        dist.send(4, 0)


@case(2, "hangs", "unsafe")
def barrier_that_meets_an_all_reduce(dist: Any) -> None:
    dist.barrier() if dist.get_rank() else dist.all_reduce(4)


@case(2, "hangs", "hangs")
def barrier_that_meets_a_larger_all_reduce(dist: Any) -> None:
    dist.barrier() if dist.get_rank() else dist.all_reduce(BIG)


@case(2, "hangs", "hangs")
def barrier_behind_what_never_ends(dist: Any) -> None:
    """Gloo's barrier waits for all that its group has under way, though nobody else does."""
    if dist.get_rank() == 0:
        dist.all_reduce(4, async_op=True)
    else:
        dist.all_gather(4, async_op=True)
    dist.barrier()


@case(2, "hangs", "hangs")
def all_to_all_of_unequal_parts_in_another_order(dist: Any) -> None:
    calls = [
        lambda: dist.all_to_all_single(96, [48, 48], [48, 48], async_op=True),
        lambda: dist.all_reduce(96, async_op=True),
    ]
    for work in [call() for call in (calls if dist.get_rank() else calls[::-1])]:
        work.wait()


@case(3, "unsafe")
def all_to_all_of_equal_parts_and_of_lists(dist: Any) -> None:
    dist.all_to_all_single(96) if dist.get_rank() else dist.all_to_all_single(96, [32] * 3, [32] * 3)


@case(2, "proved", "proved")
def all_to_all_in_a_group_of_one(dist: Any) -> None:
    group = dist.new_group([0])
    if dist.get_rank() == 0:
        dist.all_to_all_single(8, [8], [8], group=group)


@case(2, "fails", "fails")
def all_to_all_with_too_little_room_for_ones_own(dist: Any) -> None:
    sizes = ([8, 8], [4, 8]) if dist.get_rank() == 0 else ([8, 8], [8, 8])
    dist.all_to_all_single(16, sizes[1], sizes[0])


@case(2, "unsafe", "hangs")
def reduce_scatter_that_meets_all_reduces(dist: Any) -> None:
    """Gloo reduces each part of a reduce_scatter by itself."""
    if dist.get_rank() == 0:
        dist.reduce_scatter(96)
    else:
        dist.all_reduce(48)
        dist.all_reduce(48)


@case(3, "unsafe", "hangs")
def reduce_scatter_tensor_that_meets_an_all_reduce(dist: Any) -> None:
    dist.all_reduce(96) if dist.get_rank() else dist.reduce_scatter_tensor(96)


@case(2, "unsafe")
def all_reduce_by_different_reductions(dist: Any) -> None:
    dist.all_reduce(BIG, op="max" if dist.get_rank() else "sum")


@case(2, "fails", "fails")
def broadcast_without_a_root(dist: Any) -> None:
    dist.broadcast(4)


@case(2, "fails", "fails")
def reduce_without_a_root(dist: Any) -> None:
    dist.reduce(4)


@case(3, "fails", "fails")
def gather_to_rank_0_which_is_no_member(dist: Any) -> None:
    group = dist.new_group([1, 2])
    if dist.get_rank():
        dist.gather(4, group=group)


@case(3, "unsafe")
def reduction_of_nothing_that_one_skips(dist: Any) -> None:
    """Gloo returns at once where there is nothing to move."""
    if dist.get_rank():
        for call in (dist.all_reduce, dist.all_gather, dist.reduce_scatter_tensor):
            call(0)


@case(2, "hangs")
def broadcast_of_nothing_that_one_skips(dist: Any) -> None:
    if dist.get_rank():
        dist.broadcast(0, 0)


@case(2, "unsafe")
def different_collectives_of_nothing(dist: Any) -> None:
    dist.all_reduce(0) if dist.get_rank() else dist.all_gather(0)


@case(3, "fails")
def all_reduce_of_something_and_of_nothing(dist: Any) -> None:
    """Really it hangs: nothing too large comes to anybody."""
    dist.all_reduce(48 if dist.get_rank() else 0)


@case(4, "fails", "hangs")
def scatter_of_too_much_where_one_calls_another(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.all_gather(480)
    else:
        dist.scatter(480 if dist.get_rank() == 3 else 48, src=3)


@case(2, "unsafe")
def monitored_barrier_whose_message_another_receive_may_take(dist: Any) -> None:
    """Gloo's tags of it count the calls of its group: here they are 0 and 1."""
    if dist.get_rank() == 0:
        work = dist.irecv(8)
        dist.monitored_barrier()
        work.wait()
    else:
        dist.monitored_barrier()
        dist.send(8, 0)
