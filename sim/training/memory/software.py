"""Buffers of a rank's software: workspaces, and gradients that nothing reads."""

from collections.abc import Iterable
from dataclasses import dataclass

from ringside.sim.compute.kept import Kept
from ringside.sim.training.layers import RankLayer
from ringside.sim.workload.devices import MIB

CUBLAS, CUBLAS_HOPPER = 8.125 * MIB, 32 * MIB
"""Bytes of one of torch's workspaces for cuBLAS, before Hopper and from it on
(aten/src/ATen/cuda/CublasHandlePool.cpp)."""

HANDLES = 2
"""Workspaces for cuBLAS: of the thread that runs forward, and of autograd's."""

OWN, OWN_HOPPER = 4 * MIB, 32 * MIB
"""The same of TransformerEngine (transformer_engine/pytorch/cpp_extensions/gemm.py:40-45)."""

GROUPED = 4
"""Further workspaces of TransformerEngine for products of experts, one per stream (same file:49-66)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What decides the buffers: what the stack keeps, the GPU, size of elements, number of experts.

    Experts are ``grouped`` if their products are one kernel. ``capability`` is 90 for sm_90, None of GPUs
    without CUDA. ``cublas`` are the bytes of one workspace for cuBLAS, None torch's usual. ``scores`` is the
    number that attention writes for a micro-batch, 0 if it writes none.
    """

    kept: Kept
    capability: int | None
    itemsize: int = 2
    local_experts: int = 0
    grouped: bool = True
    cublas: int | None = None
    scores: int = 0

    @property
    def buffered_scores(self) -> int:
        """Bytes of the buffer into which Megatron's own attention multiplies queries and keys.

        From megatron/core/transformer/dot_product_attention.py, ``matmul_input_buffer``, of the
        ``GlobalMemoryBuffer``, which is never freed.
        """
        return self.itemsize * self.scores if self.kept.local else 0

    @property
    def workspaces(self) -> int:
        """Bytes of workspaces for products."""
        if self.capability is None:
            return 0
        hopper = self.capability >= 90
        usual = CUBLAS_HOPPER if hopper else CUBLAS
        nbytes = HANDLES * (usual if self.cublas is None else self.cublas)
        count = 0
        if self.kept.workspaces:
            count = 1 + (GROUPED if self.local_experts and self.grouped else 0)
        elif self.kept.local and self.local_experts:
            count = (
                1  # of the router (megatron/core/transformer/moe/moe_utils.py, RouterGatingLinearFunction)
            )
        nbytes += count * (OWN_HOPPER if hopper else OWN)
        return int(nbytes)

    def dummies(self, layers: Iterable[RankLayer]) -> int:
        """Return the bytes of gradients that nothing reads: one per shape of a layer's products.

        Products add gradients to a buffer, and autograd still expects a tensor
        (transformer_engine/pytorch/module/base.py:134-148).
        """
        if not self.kept.dummies:
            return 0
        shapes = set()
        for layer in layers:
            for tensor in layer.parameters if layer.wrapped else ():
                if tensor.rows and not tensor.name.startswith("router"):
                    shapes.add((tensor.rows, tensor.count // tensor.rows))
            for tensor in layer.experts:
                assert tensor.rows
                shapes.add((tensor.rows // self.local_experts, tensor.count // tensor.rows))
        return self.itemsize * sum(rows * columns for rows, columns in shapes)
