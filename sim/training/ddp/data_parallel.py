"""torch.nn.DataParallel: one process and a thread for each GPU of one machine, as GPU 0 sees it.

As in torch/nn/parallel/{data_parallel,replicate,comm}.py and torch/csrc/cuda/comm.cpp (PyTorch 2.13). In
every forward GPU 0 broadcasts all parameters and buffers in chunks of 10 MiB and Python makes new replicas.
Threads run their forward passes, one at a time while they hold the interpreter's lock. Outputs are gathered
on GPU 0. In backward all gradients are summed there, in chunks, once every replica has its own: that is one
node of autograd's graph, so none of it overlaps with backward. Only GPU 0 has an optimizer. Its own replica
uses the parameters themselves.

Models that end with a loss return it with the logits, as those of transformers do, so each replica computes
its own loss, and logits are gathered. Outputs and loss of other models are treated as small, like the classes
of an image; so are inputs copied to the GPUs.
"""

from collections.abc import Iterator, Sequence

from ringside.sim.collective import Collective
from ringside.sim.program import Compute
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.stage import RankList
from ringside.sim.workload.workload import Tensor

CHUNK = 10 * 2**20
"""Bytes of a chunk: ``buffer_size`` of torch.nn.parallel.comm."""

UNREDUCED = "unreduced gradients"
"""The pool of a replica's gradients, until they are summed."""

OUTPUTS = "outputs"
"""The pool of all outputs, gathered on GPU 0."""


class Replica:
    """GPU 0's part, around the passes of a model's layers, whose logits have ``output_nbytes``."""

    def __init__(
        self,
        rank: RankList,
        layers: Sequence[RankLayer],
        buffers: Sequence[Tensor],
        output_nbytes: int,
        costs: Costs,
    ) -> None:
        self._rank = rank
        self._layers = layers
        self._costs = costs
        self._group = rank.communicators.along(rank.rank, "replicate")
        self._parameters = [tensor for layer in layers for tensor in layer.parameters]
        self._buffers = buffers
        self._outputs = len(self._group.ranks) * output_nbytes
        self._threads: int | None = None

    def before_forward(self, layer: int) -> None:
        """Make the replicas before the first layer."""
        if layer == 0:
            self._replicate()

    def after_forward(self, layer: int) -> None:
        """Gather the outputs of the last layer, when all threads are done."""
        if layer == len(self._layers) - 1:
            self._rank.wait(self._threads)
            self._rank.take(OUTPUTS, self._outputs)
            self._exchange("gather", self._outputs, "outputs")

    def before_backward(self, layer: int) -> None:
        """Allocate the layer's gradients."""
        self._rank.take(UNREDUCED, self._layers[layer].nbytes)

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Sum all gradients after the first layer."""
        if layer == 0:
            for nbytes, dtype in reduce_chunks(self._parameters):
                self._copy(nbytes)
                self._exchange("reduce", nbytes, "gradients", dtype)
            self._rank.give(UNREDUCED, sum(tensor.nbytes for tensor in self._parameters))
            self._rank.give(OUTPUTS, self._outputs)

    def after_step(self) -> None:
        """Do nothing."""

    def _replicate(self) -> None:
        """Broadcast everything, while Python sets attributes and calls layers in each replica."""
        operators = len(self._group.ranks) * (len(self._parameters) + len(self._layers))
        if self._costs.operator_s:
            work = Compute(operators * self._costs.operator_s)
            self._threads = self._rank.post(work, "threads under one lock", "host", None, self._rank.last())
        for tensors in (self._parameters, self._buffers):
            for nbytes, dtype in broadcast_chunks(tensors):
                self._copy(nbytes)
                self._exchange("broadcast", nbytes, "parameters", dtype)

    def _exchange(self, kind: str, nbytes: int, what: str, dtype: str | None = None) -> None:
        """Run a collective on the compute stream."""
        if nbytes:
            one = Collective(kind, len(self._group.ranks), nbytes, dtype=dtype)
            self._rank.wait(self._rank.call(self._group, one, f"{kind} of {what}"))

    def _copy(self, nbytes: int) -> None:
        self._rank.compute(2 * nbytes / self._costs.memory_bandwidth, "flatten", "copy")


def broadcast_chunks(tensors: Sequence[Tensor]) -> Iterator[tuple[int, str]]:
    """Return bytes and type of each chunk that is broadcast.

    A chunk closes when another tensor like its last one would fill it (``take_tensors`` in
    torch/csrc/utils/tensor_flatten.cpp).
    """
    filled: dict[str, int] = {}
    for tensor in tensors:
        filled[tensor.dtype] = filled.get(tensor.dtype, 0) + tensor.nbytes
        if filled[tensor.dtype] + tensor.nbytes >= CHUNK:
            yield filled.pop(tensor.dtype), tensor.dtype
    yield from ((nbytes, dtype) for dtype, nbytes in filled.items() if nbytes)


def reduce_chunks(tensors: Sequence[Tensor]) -> Iterator[tuple[int, str]]:
    """Return bytes and type of each chunk that is summed, closed before a tensor that would exceed the limit.

    As ``_take_tensors`` of torch/_utils.py.
    """
    filled: dict[str, int] = {}
    for tensor in tensors:
        before = filled.get(tensor.dtype, 0)
        if before and before + tensor.nbytes > CHUNK:
            yield before, tensor.dtype
            before = 0
        filled[tensor.dtype] = before + tensor.nbytes
    yield from ((nbytes, dtype) for dtype, nbytes in filled.items() if nbytes)
