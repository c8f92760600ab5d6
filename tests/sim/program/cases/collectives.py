"""Programs of collectives on all ranks, and of collectives beside messages."""

from typing import Any

from tests.sim.program.cases.case import BIG, alike, by_rank, case

alike(3, ("proved", "proved"), all_reduce=lambda d: d.all_reduce(BIG))
by_rank(
    ("proved", "proved"),
    all_to_all_of_unequal_parts=(
        lambda d: d.all_to_all_single(5 * BIG, [4 * BIG, 512], [4 * BIG, BIG]),
        lambda d: d.all_to_all_single(512, [BIG, 0], [512, 0]),
    ),
)
alike(2, ("proved", "proved"), objects=lambda d: (d.all_gather_object(1000), d.broadcast_object_list(100, 0)))
alike(3, ("proved", "fails"), monitored_barrier=lambda d: d.monitored_barrier())
alike(
    3,
    ("hangs", "hangs"),
    all_reduce_that_one_skips=lambda d: d.get_rank() != 1 and d.all_reduce(BIG),
    one_calls_twice=lambda d: (d.all_reduce(BIG), d.get_rank() == 0 and d.all_reduce(BIG)),
    all_to_all_of_unequal_parts_that_one_skips=(
        lambda d: d.get_rank() < 2 and d.all_to_all_single(12, [4, 4, 4], [4, 4, 4])
    ),
)
alike(2, ("hangs", "hangs"), different_roots=lambda d: (d.broadcast(BIG, d.get_rank()), d.barrier()))
by_rank(
    ("hangs", "hangs"),
    different_collectives=(lambda d: d.all_reduce(BIG), lambda d: d.broadcast(BIG, 0)),
    send_before_and_after_a_barrier=(
        lambda d: (d.send(4, 1), d.barrier()),
        lambda d: (d.barrier(), d.recv(4, 0)),
    ),
    broadcast_whose_receiver_waits_for_the_root=(
        lambda d: (d.broadcast(4, 0), d.send(4, 1)),
        lambda d: (d.recv(4, 0), d.broadcast(4, 0)),
    ),
    barrier_that_meets_a_larger_all_reduce=(lambda d: d.all_reduce(BIG), lambda d: d.barrier()),
)
by_rank(
    ("hangs", "unsafe"), barrier_that_meets_an_all_reduce=(lambda d: d.all_reduce(4), lambda d: d.barrier())
)
by_rank(("hangs", None), broadcast_of_nothing_that_one_skips=(lambda d: None, lambda d: d.broadcast(0, 0)))
alike(
    2,
    ("fails", "hangs"),
    all_reduce_of_unequal_sizes=lambda d: d.all_reduce(BIG * (1 + d.get_rank())),
    broadcast_into_too_little_room=lambda d: d.broadcast(BIG * (2 - d.get_rank()), 0),
)
alike(
    3,
    ("fails", "hangs"),
    all_gather_of_unequal_sizes=lambda d: d.all_gather(BIG * (1 + d.get_rank())),
    all_to_all_of_unequal_sizes=lambda d: d.all_to_all_single(3 * BIG * (1 + d.get_rank())),
    gather_of_more_than_there_is_room_for=lambda d: d.gather(BIG * (1 + d.get_rank()), 0),
)
by_rank(
    ("fails", "hangs"),
    all_to_all_of_a_part_that_is_too_large=(
        lambda d: d.all_to_all_single(16, [8, 8], [8, 8]),
        lambda d: d.all_to_all_single(16, [4, 8], [8, 8]),
    ),
    scatter_of_too_much_where_one_calls_another=(
        lambda d: d.all_gather(480),
        *[lambda d: d.scatter(48, src=3)] * 2,
        lambda d: d.scatter(480, src=3),
    ),
)
# on real Gloo it hangs: no rank receives too much
alike(
    3,
    ("fails", None),
    all_reduce_of_something_and_of_nothing=lambda d: d.all_reduce(48 if d.get_rank() else 0),
)
alike(
    2,
    ("fails", "fails"),
    all_to_all_of_too_few_parts=lambda d: d.all_to_all_single(8, [8], [8]),
    broadcast_without_a_root=lambda d: d.broadcast(4),
    reduce_without_a_root=lambda d: d.reduce(4),
)
by_rank(
    ("fails", "fails"),
    all_to_all_with_too_little_room_for_ones_own=(
        lambda d: d.all_to_all_single(16, [4, 8], [8, 8]),
        lambda d: d.all_to_all_single(16, [8, 8], [8, 8]),
    ),
)
alike(2, ("unsafe", "hangs"), broadcast_into_too_much_room=lambda d: d.broadcast(BIG * (1 + d.get_rank()), 0))
alike(
    3,
    ("unsafe", "hangs"),
    gather_of_less_than_there_is_room_for=lambda d: d.gather(BIG * (3 - d.get_rank()), 0),
)
by_rank(
    ("unsafe", "hangs"),
    reduce_scatter_tensor_that_meets_an_all_reduce=(
        lambda d: d.reduce_scatter_tensor(96),
        *[lambda d: d.all_reduce(96)] * 2,
    ),
    # Gloo reduces each part of a reduce_scatter separately
    reduce_scatter_that_meets_all_reduces=(
        lambda d: d.reduce_scatter(96),
        lambda d: (d.all_reduce(48), d.all_reduce(48)),
    ),
    # rank 3 gets the data through rank 2 or 1, so the root leaves before rank 3 arrives
    broadcast_that_the_root_need_not_wait_for=(
        lambda d: (d.broadcast(4, 0), d.send(4, 3)),
        *[lambda d: d.broadcast(4, 0)] * 2,
        lambda d: (d.recv(4, 0), d.broadcast(4, 0)),
    ),
)
alike(
    2,
    ("unsafe", None),
    all_reduce_by_different_reductions=lambda d: d.all_reduce(BIG, op="max" if d.get_rank() else "sum"),
)
by_rank(
    ("unsafe", None),
    different_collectives_of_nothing=(lambda d: d.all_gather(0), lambda d: d.all_reduce(0)),
    all_to_all_of_equal_parts_and_of_lists=(
        lambda d: d.all_to_all_single(96, [32] * 3, [32] * 3),
        *[lambda d: d.all_to_all_single(96)] * 2,
    ),
    # rank 1 continues after sending its part to the root, before rank 2 arrives
    gather_that_a_sender_leaves_early=(
        lambda d: d.gather(4, 0),
        lambda d: (d.gather(4, 0), d.send(4, 2)),
        lambda d: (d.recv(4, 1), d.gather(4, 0)),
    ),
)


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
def reduction_of_nothing_that_one_skips(dist: Any) -> None:
    """Gloo returns at once without data."""
    if dist.get_rank():
        for call in (dist.all_reduce, dist.all_gather, dist.reduce_scatter_tensor):
            call(0)


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


@case(3, "proved", "proved")
def collectives_that_nobody_keeps(dist: Any) -> None:
    for _ in range(5):
        dist.all_reduce(BIG, async_op=True)
