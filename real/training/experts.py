"""Experts and context parallelism of real training, by torch's own means."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental._context_parallel import _attention as rings
from torch.nn import functional

from ringside.real.training.job import ExpertLayers, Sleeping, TrainingJob
from ringside.real.training.sleeping import SimulatedDevice, SleepBackward
from ringside.sim.training.tensor.context import BALANCED, UNMASKED


class Dispatched:
    """A rank's part in a job whose model has experts."""

    def __init__(self, job: TrainingJob, device: SimulatedDevice) -> None:
        model = job.model
        assert isinstance(model, ExpertLayers)
        mesh = init_device_mesh(
            "cpu", (job.mesh.expert_data, job.expert), mesh_dim_names=("expert_data", "expert")
        )
        self._alike = mesh["expert_data"].get_group()
        self._module = nn.Sequential(
            *(ExpertLayer(model, mesh["expert"].get_group(), device) for _ in range(model.layers))
        )
        self._inputs = [torch.ones(model.rows, model.hidden) for _ in range(job.micro_batches)]
        for inputs in self._inputs:
            inputs.requires_grad_()

    def step(self) -> None:
        """Pass all micro-batches, then sum gradients."""
        for inputs in self._inputs:
            self._module(inputs).mean().backward()
        layers: Any = self._module
        _sum([layer.router.weight for layer in layers], None)
        if dist.get_world_size(self._alike) > 1:
            _sum([one for layer in layers for one in (layer.column, layer.row)], self._alike)

    def forget(self) -> None:
        """Drop all gradients."""
        self._module.zero_grad(set_to_none=True)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The routers and the rank's experts."""
        return list(self._module.parameters())


class ExpertLayer(nn.Module):
    """One layer of `ringside.real.training.job.ExpertLayers` on a rank of a group that shards its experts."""

    def __init__(self, model: ExpertLayers, group: dist.ProcessGroup, device: SimulatedDevice) -> None:
        super().__init__()
        ranks, own = dist.get_world_size(group), dist.get_rank(group)
        self._model, self._group, self._device = model, group, device
        self._each = model.experts // ranks
        self.router = nn.Linear(model.hidden, model.experts, bias=False)
        self.column = nn.Parameter(torch.rand(self._each, model.hidden, model.inner))
        self.row = nn.Parameter(torch.rand(self._each, model.inner, model.hidden))
        self._chosen = torch.tensor(model.choices(own))
        load = model.load(own, ranks)
        self._forward_s, self._backward_s = load * model.forward_s / 2, load * model.backward_s / 2

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value after one layer."""
        model, device = self._model, self._device
        value = SleepBackward.apply(value, device, model.backward_s / 2)  # type: ignore[no-untyped-call]
        chosen = self._chosen.flatten()
        probabilities = self.router(value).softmax(1).gather(1, self._chosen).flatten()
        order = chosen.argsort(stable=True)
        tokens, probabilities = value[order // model.active], probabilities[order]
        device.work(model.forward_s / 2)
        given, taken, received = self._told(chosen)
        tokens = _exchange(tokens, taken, given, self._group)
        probabilities = _exchange(probabilities, taken, given, self._group)
        tokens = SleepBackward.apply(tokens, device, self._backward_s)  # type: ignore[no-untyped-call]
        results = self._passed(tokens, received) * probabilities.unsqueeze(1)
        device.work(self._forward_s)
        results = _exchange(results, given, taken, self._group)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return value + results[back].view(model.rows, model.active, -1).sum(1)

    def _told(self, chosen: torch.Tensor) -> tuple[list[int], list[int], list[list[int]]]:
        """Return the numbers of tokens sent to and received from each rank, and received per own expert."""
        ranks, own = dist.get_world_size(self._group), dist.get_rank(self._group)
        counts = torch.bincount(chosen, minlength=self._model.experts)
        if ranks > 1:
            own_counts, counts = counts, counts.new_empty(ranks * self._model.experts)
            dist.all_gather_into_tensor(counts, own_counts, group=self._group)
        by_rank = counts.view(ranks, ranks, self._each)
        received = by_rank[:, own].tolist()
        return by_rank[own].sum(1).tolist(), [sum(row) for row in received], received

    def _passed(self, tokens: torch.Tensor, received: list[list[int]]) -> torch.Tensor:
        """Return the own experts' results for tokens ordered by sender, then by expert."""
        mine = torch.arange(self._each).repeat(len(received))
        mine = mine.repeat_interleave(torch.tensor(received).flatten())
        order = mine.argsort(stable=True)
        parts = torch.split_with_sizes(tokens[order], torch.bincount(mine, minlength=self._each).tolist())
        made = torch.cat([
            functional.silu(part @ column) @ row
            for part, column, row in zip(parts, self.column, self.row, strict=True)
        ])  # fmt: skip
        return torch.empty_like(made).index_copy(0, order, made)


class _AllToAll(torch.autograd.Function):
    """All-to-all of rows; gradients take the reverse path."""

    @staticmethod
    def forward(
        ctx: Any, value: torch.Tensor, taken: list[int], given: list[int], group: dist.ProcessGroup
    ) -> torch.Tensor:
        ctx.way = given, taken, group
        output = value.new_empty(sum(taken), *value.shape[1:])
        dist.all_to_all_single(output, value.contiguous(), taken, given, group=group)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _exchange(gradients[0], *ctx.way), None, None, None


def _exchange(
    value: torch.Tensor, taken: list[int], given: list[int], group: dist.ProcessGroup
) -> torch.Tensor:
    if dist.get_world_size(group) == 1:
        return value
    output: torch.Tensor = _AllToAll.apply(value, taken, given, group)  # type: ignore[no-untyped-call]
    return output


def _sum(parameters: list[nn.Parameter], group: dist.ProcessGroup | None) -> None:
    """Average the parameters' gradients, as one piece."""
    gradients = [one.grad for one in parameters if one.grad is not None]
    flat = torch.cat([one.flatten() for one in gradients])
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    summed = torch.split_with_sizes(flat, [one.numel() for one in gradients])
    for one, mean in zip(gradients, summed, strict=True):
        one.copy_(mean.view_as(one))


Tensors = tuple[torch.Tensor, ...]


class Kernel(Protocol):
    """Attention of queries with keys, shaped batch x heads x tokens x width, and its gradients."""

    def forward(self, *arguments: Any, **options: Any) -> Tensors:
        """Return the output, and the logarithm of the sum of each row's exponents."""
        ...

    def backward(self, *arguments: Any, **options: Any) -> Tensors:
        """Return the gradients of queries, keys and values."""
        ...


class Computed:
    """The CPU kernel."""

    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Slept:
    """A kernel that sleeps for its share of a layer's scores; the causal mask removes half of these."""

    def __init__(self, model: Sleeping, device: SimulatedDevice) -> None:
        self._model, self._device = model, device

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> Tensors:
        """Return the queries after a sleep."""
        share = self._share(query, key, options["is_causal"])
        self._device.work(self._model.forward_s * share * (1.0 if options["is_causal"] else UNMASKED))
        return query.clone(), query.new_zeros(query.shape[:3])

    def backward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any
    ) -> Tensors:
        """Return the inputs after a sleep."""
        self._device.work(self._model.backward_s * self._share(query, key, options["is_causal"]))
        return query, key, value

    def _share(self, query: torch.Tensor, key: torch.Tensor, causal: bool) -> float:
        heads = query.shape[1] * query.shape[3] / self._model.inner
        scores = query.shape[2] * key.shape[2] * (1 if causal else 2)
        return heads * scores / self._model.rows**2


def attention(kernel: Kernel, group: dist.ProcessGroup | None, method: str) -> Callable[..., torch.Tensor]:
    """Return causal attention over queries, keys and values sharded by tokens over the group's ranks."""
    function = _Ulysses if method == "ulysses" else _Ring

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = function.apply(query, key, value, kernel, group, method)  # type: ignore[no-untyped-call]
        return result

    return attend


class _Ring(torch.autograd.Function):
    """torch's rings, with the tokens balanced or in order, or its gather."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kernel: Kernel, *how: Any
    ) -> torch.Tensor:
        group, method = how
        _choose(method)
        out, rows = rings._templated_ring_attention(
            group, 2, kernel.forward, query, key, value, is_causal=True, dropout_p=0.0
        )
        ctx.save_for_backward(query, key, value, out, rows)
        ctx.how = kernel, group, method
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        kernel, group, method = ctx.how
        _choose(method)
        query, key, value, out, rows = ctx.saved_tensors
        result = rings._templated_ring_attention_backward(
            group, 2, kernel.backward, gradients[0], "grad_out", query, key, value, out, rows, is_causal=True,
            dropout_p=0.0,
        )  # fmt: skip
        return *result[:3], None, None, None


class _Ulysses(torch.autograd.Function):
    """Ulysses: exchange tokens so that each rank has all tokens of some heads, and back."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kernel: Kernel, *how: Any
    ) -> torch.Tensor:
        group, _ = how
        inputs = [_to_heads(one, group) for one in (query, key, value)]
        out, rows = kernel.forward(*inputs, is_causal=True, dropout_p=0.0)
        ctx.save_for_backward(*inputs, out, rows)
        ctx.how = kernel, group
        return _to_tokens(out, group)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        kernel, group = ctx.how
        names = ("query", "key", "value", "out", "logsumexp")
        result = kernel.backward(
            grad_out=_to_heads(gradients[0], group), **dict(zip(names, ctx.saved_tensors, strict=True)),
            is_causal=True, dropout_p=0.0,
        )  # fmt: skip
        return *(_to_tokens(one, group) for one in result), None, None, None


def _choose(method: str) -> None:
    """Set the method by which torch rotates keys and values."""
    rings._cp_options.enable_load_balance = method in BALANCED
    gathers = method == "all-gather"
    rotates = rings._RotateMethod.ALL_GATHER if gathers else rings._RotateMethod.ALL_TO_ALL
    rings._cp_options.rotate_method = rotates


def _to_heads(value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return all tokens of this rank's heads, from some tokens of all heads."""
    sent = torch.cat(value.chunk(group.size(), dim=1))
    return torch.cat(_exchanged(sent, group).chunk(group.size()), dim=2)


def _to_tokens(value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return some tokens of all heads, from all tokens of this rank's heads."""
    sent = torch.cat(value.chunk(group.size(), dim=2))
    return torch.cat(_exchanged(sent, group).chunk(group.size()), dim=1)


def _exchanged(value: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    sent = collectives.all_to_all_single(value.contiguous(), None, None, group)
    result: torch.Tensor = collectives.wait_tensor(sent)  # type: ignore[no-untyped-call]
    return result
