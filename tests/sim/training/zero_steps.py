"""Steps of sharded optimizers, and what of them tests look at."""

from collections import Counter
from dataclasses import replace

from ringside.sim.compute.prices import StackOnGpu, prices_on
from ringside.sim.program import Call, Operation
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layers import Kernels, RankLayer
from ringside.sim.training.layout import Layout
from ringside.sim.training.layout_mesh import mesh_of
from ringside.sim.training.memory.optimizers import find_optimizer
from ringside.sim.training.mesh import Communicators, Mesh
from ringside.sim.training.program import Writing
from ringside.sim.training.stage import RankList, Stage
from ringside.sim.training.tensor.decoder import decoder_on_rank
from ringside.sim.workload.decoder import DECODERS, Decoder
from ringside.sim.workload.devices import device
from ringside.sim.workload.workload import Tensor

ADAM = find_optimizer("adam")
GPU = device("a100")
SMALL = replace(
    DECODERS["llama2-7b"], layers=4, width=1024, heads=8, key_value_heads=8, hidden=2048, vocabulary=8192
)


def made(layers: int = 3, count: int = 1000) -> list[RankLayer]:
    """Return layers of one module each, of one second forward and two backward."""
    return [
        RankLayer(
            name=f"layer {number}", parameters=(Tensor("weight", count, "bfloat16"),),
            forward=(Kernels(1.0),), backward=(Kernels(2.0),),
        )
        for number in range(layers)
    ]  # fmt: skip


def rank(ranks: int = 4, **mesh: int) -> RankList:
    return RankList(0, Communicators(Mesh(**(mesh or {"shard": ranks}))))


def calls(operations: list[Operation]) -> list[tuple[str, int]]:
    """Return kind and bytes of all collectives, in order."""
    actions = [operation.action for operation in operations]
    return [(one.collective.kind, one.collective.nbytes) for one in actions if isinstance(one, Call)]


def step(sharing: object, own: RankList, layers: list[RankLayer], micro_batches: int = 1) -> list[Operation]:
    """Return a whole step."""
    stage = Stage(own, layers, sharing)  # type: ignore[arg-type]
    sharing.hold(ADAM)  # type: ignore[attr-defined]
    stage.pass_all(micro_batches)
    stage.sharing.after_step()
    sharing.update(1.0)  # type: ignore[attr-defined]
    return own.operations


def job(strategy: str, *, decoder: Decoder = SMALL, batch: int = 4, ranks: int = 8, **words: int) -> Writing:
    layout = Layout(strategy=strategy, **words)  # type: ignore[arg-type]
    model = decoder_on_rank(decoder, layout, StackOnGpu(prices_on(GPU, "bf16")), "float32")
    return Writing(
        ParallelJob(
            model=model, layout=layout, mesh=mesh_of(layout, ranks, 8), batch=batch, optimizer=ADAM,
            precision="bfloat16", costs=Costs(memory_bandwidth=GPU.streaming),
        )
    )  # fmt: skip


def sent(writing: Writing, number: int = 0) -> Counter[str]:
    """Return the bytes by kind."""
    found: Counter[str] = Counter()
    for kind, nbytes in calls(list(writing.operations(number))):
        found[kind] += nbytes
    return found


def pools(writing: Writing, number: int = 0) -> dict[str, int]:
    """Return the bytes allocated by the end of the first operation and not freed by the last."""
    left: Counter[str] = Counter()
    for operation in writing.operations(number):
        for pool, nbytes in operation.memory:
            left[pool] += nbytes
    return {pool: nbytes for pool, nbytes in left.items() if nbytes}
