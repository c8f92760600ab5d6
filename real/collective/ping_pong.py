"""Ping-pong: one message back and forth between two ranks, all pairs at once."""

import torch.distributed as dist

from ringside.real.collective.buffers import Buffers


class PingPong:
    """One rank's part: the even rank of a pair sends its block, the odd one answers with its own, in turn.

    Pairs are ranks 0 and 1, 2 and 3, and so on; the last of an odd number of ranks does nothing. All receives
    are posted before the first message, so no message waits until its receiver is ready, except the first,
    which meets the same conditions as a collective's first message.
    """

    MESSAGES = 4
    """One-way messages of one run, in sequence."""

    def __init__(self, rank: int, ranks: int, buffers: Buffers) -> None:
        self._side = rank % 2
        self._peer = rank ^ 1
        self._alone = self._peer >= ranks
        self._buffers = buffers

    def prepare(self) -> None:
        """Restore the rank's contribution; not timed."""
        self._buffers.reset()

    def run(self) -> None:
        """Carry out the rank's part once."""
        if self._alone:
            return
        own, other = self._buffers.block(self._side), self._buffers.block(1 - self._side)
        receives = [dist.irecv(other, self._peer) for _ in range(self.MESSAGES // 2)]
        sends = []
        for receive in receives:
            assert receive is not None
            if self._side == 0:
                sends.append(dist.isend(own, self._peer))
            receive.wait()
            if self._side == 1:
                sends.append(dist.isend(own, self._peer))
        for send in sends:
            assert send is not None
            send.wait()

    def collect(self) -> None:
        """Do nothing: the result is in the buffers already."""
