"""Programs of collectives on all ranks, and of collectives beside messages."""

from typing import Any

from tests.sim.program.cases.case import BIG, case


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
    """Rank 3 gets the data through rank 2 or 1, so the root leaves before rank 3 arrives."""
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
    """Rank 1 continues after sending its part to the root, before rank 2 arrives."""
    rank = dist.get_rank()
    if rank == 2:
        dist.recv(4, 1)
    dist.gather(4, 0)
    if rank == 1:
        dist.send(4, 2)


@case(3, "proved", "fails")
def monitored_barrier(dist: Any) -> None:
    dist.monitored_barrier()


@case(2, "proved", "proved")
def objects(dist: Any) -> None:
    dist.all_gather_object(1000)
    dist.broadcast_object_list(100, 0)


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


@case(2, "hangs", "hangs")
def call_then_message_in_opposite_orders(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.all_reduce(4)
        dist.send(4, 1)
    else:
        dist.recv(4, 0)
        dist.all_reduce(4)


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


@case(3, "proved")
def named_receive_that_loses_nothing_to_one_from_anybody(dist: Any) -> None:
    """Both receives are posted before rank 1 sends, so the one that names it is first."""
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


@case(2, "unsafe", "proved")
def irecv_that_nobody_keeps(dist: Any) -> None:
    """Its message blocks all later ones from the same rank."""
    if dist.get_rank() == 0:
        dist.send(4, 1)
    else:
        dist.irecv(4, 0)
    dist.barrier()


@case(3, "proved", "proved")
def collectives_that_nobody_keeps(dist: Any) -> None:
    for _ in range(5):
        dist.all_reduce(BIG, async_op=True)


@case(2, "hangs", "unsafe")
def barrier_that_meets_an_all_reduce(dist: Any) -> None:
    dist.barrier() if dist.get_rank() else dist.all_reduce(4)


@case(2, "hangs", "hangs")
def barrier_that_meets_a_larger_all_reduce(dist: Any) -> None:
    dist.barrier() if dist.get_rank() else dist.all_reduce(BIG)


@case(2, "hangs", "hangs")
def barrier_behind_what_never_ends(dist: Any) -> None:
    """Gloo's barrier waits for all operations of its group under way, although no other rank does."""
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


@case(2, "fails", "fails")
def all_to_all_with_too_little_room_for_ones_own(dist: Any) -> None:
    sizes = ([8, 8], [4, 8]) if dist.get_rank() == 0 else ([8, 8], [8, 8])
    dist.all_to_all_single(16, sizes[1], sizes[0])


@case(2, "unsafe", "hangs")
def reduce_scatter_that_meets_all_reduces(dist: Any) -> None:
    """Gloo reduces each part of a reduce_scatter separately."""
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


@case(3, "unsafe")
def reduction_of_nothing_that_one_skips(dist: Any) -> None:
    """Gloo returns at once without data."""
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
    """On real Gloo it hangs: no rank receives too much."""
    dist.all_reduce(48 if dist.get_rank() else 0)


@case(4, "fails", "hangs")
def scatter_of_too_much_where_one_calls_another(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.all_gather(480)
    else:
        dist.scatter(480 if dist.get_rank() == 3 else 48, src=3)


@case(2, "unsafe")
def monitored_barrier_whose_message_another_receive_may_take(dist: Any) -> None:
    """Its tags in Gloo are the call numbers of its group, here 0 and 1."""
    if dist.get_rank() == 0:
        work = dist.irecv(8)
        dist.monitored_barrier()
        work.wait()
    else:
        dist.monitored_barrier()
        dist.send(8, 0)
