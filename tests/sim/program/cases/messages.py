"""Programs of messages only."""

from typing import Any

from tests.sim.program.cases.case import BIG, case


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
    """A stage sends its gradient while the previous one sends the next activation."""
    rank = dist.get_rank()
    for step in range(2):
        if rank == 0:
            dist.send(64 * BIG, 1)
            if step:
                dist.recv(64 * BIG, 1)
        else:
            dist.recv(64 * BIG, 0)
            dist.send(64 * BIG, 0)


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


@case(2, "hangs", "fails")
def send_to_nobody(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.send(4, 2)


@case(2, "hangs", "fails")
def receive_from_nobody(dist: Any) -> None:
    if dist.get_rank() == 0:
        dist.recv(4, -1)


@case(3, "unsafe")
def named_receive_behind_one_from_anybody(dist: Any) -> None:
    """Either receive may match rank 1's message; if the first does, the other waits for rank 1 forever."""
    if dist.get_rank() == 0:
        for work in [dist.irecv(4), dist.irecv(4, 1)]:
            work.wait()
    else:
        dist.send(4, 0)


@case(4, "unsafe")
def receive_from_anybody_behind_another_ones(dist: Any) -> None:
    """Rank 2 can be first at rank 0 only after its own receive from any source."""
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
