"""Programs of messages only."""

from typing import Any

from tests.sim.program.cases.case import BIG, alike, by_rank, case

by_rank(
    ("proved", "proved"),
    one_sends_one_receives=(lambda d: d.send(BIG, 1), lambda d: d.recv(BIG, 0)),
    parity=(lambda d: (d.send(BIG, 1), d.recv(BIG, 1)), lambda d: (d.recv(BIG, 0), d.send(BIG, 0))),
    chain=(lambda d: d.send(BIG, 1), lambda d: (d.recv(BIG, 0), d.send(BIG, 2)), lambda d: d.recv(BIG, 1)),
)
by_rank(
    ("proved", None), receive_from_anybody=(lambda d: (d.recv(4), d.recv(4)), *[lambda d: d.send(4, 0)] * 2)
)
by_rank(("proved", "hangs"), undersized_message=(lambda d: d.send(4, 1), lambda d: d.recv(8, 0)))
by_rank(
    ("hangs", "hangs"),
    both_send_first_large=(
        lambda d: (d.send(64 * BIG, 1), d.recv(64 * BIG, 1)),
        lambda d: (d.send(64 * BIG, 0), d.recv(64 * BIG, 0)),
    ),
    both_receive_first=(lambda d: (d.recv(4, 1), d.send(4, 1)), lambda d: (d.recv(4, 0), d.send(4, 0))),
    nobody_receives=(lambda d: d.send(BIG, 1), lambda d: None),
    nobody_sends=(lambda d: None, lambda d: d.recv(4, 0)),
    # a stage sends its gradient while the previous one sends the next activation
    one_f_one_b_with_blocking_messages=(
        lambda d: (d.send(64 * BIG, 1), d.send(64 * BIG, 1), d.recv(64 * BIG, 1)),
        lambda d: [(d.recv(64 * BIG, 0), d.send(64 * BIG, 0)) for _ in range(2)],
    ),
)
by_rank(("hangs", None), another_tag=(lambda d: d.send(4, 1, tag=1), lambda d: d.recv(4, 0, tag=2)))
by_rank(
    ("hangs", "unsafe"),
    both_send_first_small=(lambda d: (d.send(4, 1), d.recv(4, 1)), lambda d: (d.send(4, 0), d.recv(4, 0))),
)
by_rank(
    ("hangs", "proved"),
    crossing_tags_blocking=(
        lambda d: (d.send(BIG, 1, tag=1), d.send(BIG, 1, tag=2)),
        lambda d: (d.recv(BIG, 0, tag=2), d.recv(BIG, 0, tag=1)),
    ),
)
by_rank(
    ("hangs", "fails"),
    send_to_nobody=(lambda d: d.send(4, 2), lambda d: None),
    receive_from_nobody=(lambda d: d.recv(4, -1), lambda d: None),
)
by_rank(("fails", "hangs"), oversized_message=(lambda d: d.send(8, 1), lambda d: d.recv(4, 0)))
by_rank(("fails", None), receive_of_nothing_from_anybody=(lambda d: d.send(0, 1), lambda d: d.recv(0)))
alike(
    2,
    ("fails", "fails"),
    send_to_oneself=lambda d: d.send(4, d.get_rank()),
    isend_to_oneself=lambda d: d.isend(4, d.get_rank()),
)
by_rank(("unsafe", "hangs"), nobody_receives_and_nobody_waits=(lambda d: d.isend(BIG, 1), lambda d: None))
by_rank(("unsafe", "proved"), isend_that_nobody_keeps=(lambda d: d.isend(BIG, 1), lambda d: d.recv(BIG, 0)))
by_rank(
    ("unsafe", None),
    irecv_of_too_little_that_nobody_keeps=(lambda d: d.send(8, 1), lambda d: d.irecv(4, 0)),
    receive_from_anybody_then_from_one=(
        lambda d: (d.recv(4), d.recv(4, 1)),
        lambda d: d.send(4, 0),
        lambda d: (d.compute(1.0), d.send(4, 0)),
    ),
    # rank 2 can be first at rank 0 only after its own receive from any source
    receive_from_anybody_behind_another_ones=(
        lambda d: (d.recv(4), d.recv(4, 1)),
        lambda d: d.send(4, 0),
        lambda d: (d.recv(4), d.send(4, 0)),
        lambda d: d.send(4, 2),
    ),
)


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
        [dist.P2POp(dist.isend, BIG, (rank + 1) % ranks), dist.P2POp(dist.irecv, BIG, (rank - 1) % ranks)]
    )
    for work in works:
        work.wait()


@case(4, "hangs", "hangs")
def ring_shift_by_blocking_sends(dist: Any) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dist.send(BIG, (rank + 1) % ranks)
    dist.recv(BIG, (rank - 1) % ranks)


@case(2, "proved", "proved")
def crossing_tags_asynchronous(dist: Any) -> None:
    if dist.get_rank() == 0:
        works = [dist.isend(BIG, 1, tag=1), dist.isend(BIG, 1, tag=2)]
    else:
        works = [dist.irecv(BIG, 0, tag=2), dist.irecv(BIG, 0, tag=1)]
    for work in works:
        work.wait()


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


@case(3, "unsafe")
def named_receive_behind_one_from_anybody(dist: Any) -> None:
    """Either receive may match rank 1's message; if the first does, the other waits for rank 1 forever."""
    if dist.get_rank() == 0:
        for work in [dist.irecv(4), dist.irecv(4, 1)]:
            work.wait()
    else:
        dist.send(4, 0)


@case(2, "unsafe", "proved")
def isend_that_nobody_waits_for(dist: Any) -> None:
    if dist.get_rank() == 0:
        work = dist.isend(BIG, 1)
        assert work
    else:
        dist.compute(0.3)
        dist.recv(BIG, 0)


@case(2, "unsafe", "proved")
def batch_that_nobody_waits_for(dist: Any) -> None:
    other = 1 - dist.get_rank()
    dist.batch_isend_irecv([dist.P2POp(dist.irecv, BIG, other), dist.P2POp(dist.isend, BIG, other)])


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
