"""The oldest measurement of a network: one message to and fro between two ranks, all pairs at once."""

import torch.distributed as dist

from ringside.real.collective.buffers import Buffers


class PingPong:
    """One rank's part: the even rank of a pair sends its block, the odd one answers with its own, in turn.

    Ranks 0 and 1 are a pair, 2 and 3, and so on; the last of an odd number looks on. All receives are
    posted before the first message, so that a message does not wait until its receiver is ready for
    it, save the first, which stands for what a collective's first one meets.
    """

    MESSAGES = 4
    """One-way messages of one run, one after another."""

    def __init__(self, rank: int, ranks: int, buffers: Buffers) -> None:
        self._side = rank % 2
        self._peer = rank ^ 1
        self._alone = self._peer >= ranks
        self._buffers = buffers

    def prepare(self) -> None:
        """Put the rank's contribution back; not timed."""
        self._buffers.reset()

    def run(self) -> None:
        """Carry out the rank's part once, to the end."""
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
        """Bring the result to the buffers; it is there already."""
