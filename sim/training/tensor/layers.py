"""A decoder's layers on one rank of a tensor-parallel group."""

from dataclasses import dataclass, replace

from ringside.sim.compute.prices import StackOnGpu
from ringside.sim.training.layers import Kernels, Loss, Pass, RankLayer, work_s
from ringside.sim.training.tensor.activations import Activations
from ringside.sim.training.tensor.context import Attention, ContextParallel
from ringside.sim.training.tensor.costs import KernelCosts, Numerics
from ringside.sim.training.tensor.cut import Cut, Product, TensorParallel
from ringside.sim.training.tensor.dispatch import ExpertParallel
from ringside.sim.training.tensor.experts import Mixture
from ringside.sim.training.tensor.passes import DTYPES, Branch, Columns, PassCosts, exchange, merged
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.workload import Tensor


def rank_layers(
    decoder: Decoder,
    computing: StackOnGpu,
    *,
    micro_batch: int = 1,
    parallel: TensorParallel | None = None,
    context: ContextParallel | None = None,
    numerics: Numerics | None = None,
    experts: ExpertParallel | None = None,
) -> tuple[RankLayer, ...]:
    """Return one rank's part of the decoder: embedding, layers, and head with the loss.

    ``computing`` is how one GPU computes it, ``micro_batch`` counts sequences. All ranks of the
    tensor-parallel group have equal parts; of the context-parallel group this is the busiest rank's. A tied
    embedding stands in the embedding alone: if the head is on another rank, that one has a copy
    (`tied_embedding`).
    """
    if micro_batch < 1:
        raise ValueError(f"a micro-batch of {micro_batch} sequences; write 1 or more")
    numerics = numerics or Numerics()
    stack = computing.stack.launching(layer_norm=decoder.norm == "layer", dropout=numerics.dropout)
    computing = replace(computing, stack=stack)
    making = _Making(
        Cut(decoder, parallel or TensorParallel(), context or ContextParallel()), computing, micro_batch,
        numerics, experts or ExpertParallel(),
    )  # fmt: skip
    alike = {decoder.has_experts(number): number for number in reversed(range(decoder.layers))}
    made = {kind: making.layer(number) for kind, number in alike.items()}
    layers = (
        replace(made[decoder.has_experts(number)], name=f"layer {number}") for number in range(decoder.layers)
    )
    predictions = (making.prediction(number) for number in range(decoder.predicted))
    return (making.embedding(), *layers, *predictions, making.head())


def tied_embedding(decoder: Decoder, parallel: TensorParallel, dtype: str) -> Tensor:
    """Return a rank's embedding; if it is tied, the last stage of a pipeline has a copy."""
    rows = Cut(decoder, parallel).vocabulary
    return Tensor("embedding.weight", rows * decoder.width, dtype, rows=rows)


def replicated_parameters(layers: tuple[RankLayer, ...], *, tokens: bool = True) -> tuple[Tensor, ...]:
    """Return parameters that tensor-parallel ranks replicate: norms, routers, whole products, biases of rows.

    With sequence parallelism each rank uses them on other ``tokens``, so their gradients are summed along
    ``tensor`` after backward. Without, it uses a head's norms on other heads, and only these are summed.
    """
    return tuple(
        tensor
        for layer in layers
        for tensor in layer.parameters
        if tensor.name in _OF_HEADS or (tokens and ("norm" in tensor.name or tensor.name in _COPIED))
    )


_OF_HEADS = {f"head_{name}_norm.{part}" for name in ("query", "key") for part in ("weight", "bias")}

_COPIED = {"output.bias", "down.bias", "positions.weight", "router.weight", "router.correction",
           "query_down.weight", "key_value_down.weight"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Making:
    cut: Cut
    computing: StackOnGpu
    batch: int
    numerics: Numerics
    experts: ExpertParallel

    @property
    def _dtype(self) -> str:
        return self.numerics.dtype or DTYPES[self.computing.itemsize]

    @property
    def _tokens(self) -> int:
        return self.cut.tokens(self.batch)

    @property
    def _costs(self) -> PassCosts:
        return PassCosts(self.computing, self.cut.parallel, self._tokens, self.cut.decoder.width)

    @property
    def _beside(self) -> KernelCosts:
        return KernelCosts(self.cut, self.computing, self.batch, self.numerics)

    @property
    def _activations(self) -> Activations:
        return Activations(
            cut=self.cut, batch=self.batch, numerics=self.numerics, kept=self.computing.stack.kept,
            itemsize=self.computing.itemsize,
        )  # fmt: skip

    def _parameters(self, *products: Product) -> tuple[Tensor, ...]:
        bias, by_input = self.cut.decoder.biases, bool(self.cut.decoder.positions)
        return tuple(
            tensor for one in products for tensor in one.parameters(self._dtype, bias=bias, by_input=by_input)
        )

    def _feed_forward(self, number: int) -> tuple[Branch | Mixture, tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return a layer's branch beside attention: its passes, parameters, and experts' parameters."""
        if self.cut.decoder.has_experts(number):
            mixture = Mixture(self._costs, self.cut, self.experts)
            return mixture, mixture.parameters(self._dtype), mixture.experts(self._dtype)
        up, down = self.cut.feed_forward
        forward_s, backward_s = self._beside.activation
        activation = (Kernels(forward_s),), (Kernels(backward_s),)
        return Branch(Columns(self._costs, up), *activation, down), self._parameters(*up, down), ()

    def layer(self, number: int) -> RankLayer:
        """Return one layer."""
        before, after = self.cut.attention
        proper = self._attention
        turned = self._beside.turned
        attention = Branch(
            Columns(self._costs, before), (Kernels(turned.forward), *proper.forward),
            (*proper.backward, Kernels(turned.backward)), after,
        )  # fmt: skip
        feed_forward, parameters, experts = self._feed_forward(number)
        forward = merged([*attention.forward, *feed_forward.forward])
        routed = feed_forward.routed if isinstance(feed_forward, Mixture) else None
        activations = replace(self._activations, routed=routed)
        attends = (*self._parameters(*before, after), *self.cut.inner_norms(self._dtype))
        norms = tuple(self.cut.norm(name, self._dtype) for name in ("attention_norm", "feed_forward_norm"))
        tensors = (*attends, *parameters, *norms[0], *norms[1])
        if self.cut.decoder.positions:
            tensors = (*norms[0], *attends, *norms[1], *parameters)
        return RankLayer(
            name=f"layer {number}",
            parameters=tensors,
            forward=forward,
            backward=merged([*feed_forward.backward, *attention.backward]),
            input_gradient=merged([*feed_forward.input_gradient, *attention.input_gradient]),
            weight_gradient=merged([*feed_forward.weight_gradient, *attention.weight_gradient]),
            recomputed=self._recomputed(attention, proper, feed_forward),
            kept=tuple(activations.kept_terms.items()),
            recomputed_nbytes=activations.recomputed_nbytes,
            experts=experts,
            forward_nbytes=proper.buffers_nbytes,
            backward_nbytes=proper.buffers_nbytes + activations.backward,
            arrival=_shares(
                [*feed_forward.arrival, self._arrival(norms[1]), *attention.arrival, self._arrival(norms[0])]
            ),
            forward_launch_s=self.computing.stack.launch_s.forward,
            backward_launch_s=self.computing.stack.launch_s.backward,
        )

    def _recomputed(self, attention: Branch, proper: Attention, feed_forward: Branch | Mixture) -> Pass:
        """Return what backward does again of a layer's forward pass."""
        last = feed_forward.forward
        if self.computing.stack.stops_early and isinstance(feed_forward, Branch):
            last = feed_forward.before_row
        if self.numerics.checkpointing != "selective":
            return merged([*attention.forward, *last]) if self.numerics.checkpointing == "full" else ()
        modules, before = self.numerics.recompute, self.cut.attention[0]
        parts: dict[str, Pass] = {"core_attn": proper.forward}
        parts["layernorm"] = (Kernels(2 * self._costs.norm.forward),)
        if self.cut.decoder.latent:
            ups = sum(self._costs.product(one) for one in before if one.cut == "columns")
            parts["mla_up_proj"] = (Kernels(ups + self._beside.turned.forward),)
        if isinstance(feed_forward, Branch):
            parts["mlp"] = last
        elif "moe" in modules:
            parts["moe"] = feed_forward.forward
        else:
            parts["moe_act"] = (Kernels(feed_forward.activation.forward),)
            parts["shared_experts"] = feed_forward.shared_forward
        return merged([part for module in modules for part in parts.get(module, ())])

    def _arrival(self, norm: tuple[Tensor, ...]) -> tuple[tuple[str, ...], float]:
        """Return a norm's tensors, in the order in which autograd finishes their gradients, and seconds."""
        return tuple(tensor.name for tensor in norm), self._costs.norm.backward

    @property
    def _attention(self) -> Attention:
        forward_s, backward_s = self._beside.core
        return Attention(
            context=self.cut.context, roofline=self.computing.roofline, dtype=DTYPES[self.computing.itemsize],
            forward_s=forward_s, backward_s=backward_s,
            query=self._tokens * self.cut.query, key_value=self._tokens * self.cut.key_value,
        )  # fmt: skip

    def embedding(self) -> RankLayer:
        """Return the embedding: a rank looks up its own entries and all ranks sum up."""
        decoder, costs = self.cut.decoder, self._costs
        rows = [tied_embedding(decoder, self.cut.parallel, self._dtype)]
        if decoder.positions:
            count = decoder.positions * decoder.width
            rows.append(Tensor("positions.weight", count, self._dtype, rows=decoder.positions))
        looked_up = self._beside.looked_up(len(rows))
        # learned positions are added before Megatron cuts the sequence
        cut = self.cut.parallel.sequence and not (decoder.positions and self.cut.parallel.style == "megatron")
        gathered = costs.exchange("all_gather") if self.cut.parallel.sequence else ()
        # DTensor makes the gradient of the whole vocabulary on each rank (torch/distributed/tensor/_ops/
        # _embedding_ops.py, PyTorch 2.13, `embedding_dense_backward_strategy`)
        others = self.cut.parallel.degree - 1 if self.cut.parallel.style == "dtensor" else 0
        whole = (others + 1) * rows[0].count * self.computing.itemsize
        return RankLayer(
            name="embedding",
            parameters=tuple(rows),
            forward=(Kernels(looked_up.forward), *costs.exchange("reduce_scatter" if cut else "all_reduce")),
            backward=(*gathered, Kernels(looked_up.backward)),
            input_gradient=gathered,
            weight_gradient=(Kernels(looked_up.backward),),
            kept=tuple(self._activations.embedding.items()),
            backward_nbytes=whole if others else 0,
            unsharded_nbytes=others * rows[0].nbytes,
            wrapped=False,
        )

    def prediction(self, number: int) -> RankLayer:
        """Return a layer that predicts one more token, as Megatron-LM's (multi_token_prediction.py).

        The embedding of a token and what the layer before says of the one before it pass a norm each, and a
        product joins them, whose columns the tensor-parallel ranks gather. A layer like the last follows, and
        a norm of its own. The head does its product with the vocabulary, and its loss.
        """
        cut, costs, dtype = self.cut, self._costs, self._dtype
        width, embedding, layer = cut.decoder.width, self.embedding(), self.layer(cut.decoder.layers - 1)
        product = Product("joined", 2 * width, width // cut.parallel.degree)
        joined = Columns(replace(costs, width=2 * width), (product,))
        gathered = costs.exchange("all_gather")
        back = gathered if cut.parallel.sequence else ()
        norms = (cut.norm(f"{name}_norm", dtype) for name in ("embedding", "hidden", "final"))
        first = merged([*embedding.forward, *joined.forward, *gathered])
        return replace(
            layer,
            name=f"prediction {number}",
            parameters=(
                *(one for norm in norms for one in norm), *product.parameters(dtype, bias=False),
                *layer.parameters,
            ),
            forward=merged([*first, *layer.forward]),
            backward=merged([*layer.backward, *back, *joined.backward, *embedding.backward]),
            input_gradient=merged([*layer.input_gradient, *back, *joined.input_gradient]),
            weight_gradient=merged(
                [*layer.weight_gradient, *(costs.gather(overlaps=True)), Kernels(joined.weights_s),
                 *embedding.backward]
            ),
            # the token's embedding, both norms' outputs, and these side by side
            kept=(*layer.kept, *embedding.kept, ("inputs of the prediction", 5 * self._activations.between)),
            arrival=(),
        )  # fmt: skip

    def head(self) -> RankLayer:
        """Return the last norm, the product with the vocabulary, and the loss, for each predicted token."""
        decoder, cut = self.cut.decoder, self.cut
        times = 1 + decoder.predicted
        product = Product("head", decoder.width, cut.vocabulary)
        columns = Columns(self._costs, (product,))
        loss = self._beside.loss
        weight: tuple[Tensor, ...] = () if decoder.tied else product.parameters(self._dtype, bias=False)
        norm = cut.norm("norm", self._dtype)
        activations = self._activations
        passes = (
            merged([*columns.forward, *self._loss_exchanges(), Kernels(loss.forward)] * times),
            merged([Kernels(loss.backward), *columns.backward] * times),
            merged([Kernels(loss.backward), *columns.input_gradient] * times),
        )
        held = activations.head_forward, activations.head_backward
        return RankLayer(
            name="head",
            parameters=(*norm, *weight),
            forward=passes[0],
            backward=passes[1],
            input_gradient=passes[2],
            weight_gradient=merged(
                [
                    *(self._costs.gather(overlaps=True) if cut.parallel.style == "megatron" else ()),
                    Kernels(columns.weights_s),
                ]
                * times
            ),
            kept=tuple((name, nbytes * times) for name, nbytes in activations.head.items()),
            forward_nbytes=max(held[0], activations.loss_forward),
            backward_nbytes=max(held[1], activations.loss_backward),
            wrapped=False,
            arrival=_shares(
                [(product.arrival, loss.backward + self._costs.gradients(product)), self._arrival(norm)]
            ),
            loss=Loss(
                loss.forward / work_s(passes[0]),
                loss.backward / work_s(passes[1]),
                loss.backward / work_s(passes[2]),
                *held,
            ),
        )

    def _loss_exchanges(self) -> Pass:
        """Return all-reduces of tokens' largest logit, sum of exponents and target, or gathered logits."""
        parallel = self.cut.parallel
        if parallel.degree == 1:
            return ()
        if parallel.gathers_logits:
            nbytes = self._tokens * self.cut.vocabulary * parallel.degree * self.computing.itemsize
            return (exchange(parallel.degree, "all_gather", nbytes, DTYPES[self.computing.itemsize]),)
        return (exchange(parallel.degree, "all_reduce", 4 * self._tokens, "float32"),) * 3


def _shares(finished: list[tuple[tuple[str, ...], float]]) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Return the tensors in backward's order, with seconds as shares of all."""
    total = sum(seconds for _, seconds in finished)
    return tuple((names, seconds / total) for names, seconds in finished)
