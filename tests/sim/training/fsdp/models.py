"""Models on FSDP's ranks, and their programs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.libraries.rules import RULES
from ringside.sim.program import Call, Operation, Program
from ringside.sim.program.groups import TimedGroup, play_in_group
from ringside.sim.program.simulate import Simulation
from ringside.sim.training.flat_shard import FlatPolicy, FlatShard
from ringside.sim.training.fsdp_policy import FullyShardPolicy
from ringside.sim.training.fully_shard import FullyShard
from ringside.sim.training.layers import Kernels, RankLayer
from ringside.sim.training.memory.optimizers import find_optimizer
from ringside.sim.training.mesh import Communicators, Mesh
from ringside.sim.training.stage import RankList, Stage
from ringside.sim.workload.workload import Tensor

KINDS = {"all_gather": "AG", "reduce_scatter": "RS", "all_reduce": "AR"}


def tensor(name: str, rows: int, columns: int = 1) -> Tensor:
    return Tensor(name, rows * columns, rows=rows)


def layer(
    name: str, *tensors: Tensor, forward: float = 1.0, backward: float = 2.0, wrapped: bool = True
) -> RankLayer:
    return RankLayer(
        name=name, parameters=tensors, forward=(Kernels(forward),), backward=(Kernels(backward),),
        kept=(("activations", 100),), wrapped=wrapped,
    )  # fmt: skip


def language_model(*, words: int = 10, ends: bool = False) -> list[RankLayer]:
    """Return three blocks of one square weight between an embedding and a head."""
    blocks = [layer(f"b{number}", tensor("weight", 8, 8)) for number in range(3)]
    embedding = layer("emb", tensor("weight", words, 8), forward=0.25, backward=0.5, wrapped=ends)
    head = layer("head", tensor("weight", words, 8), forward=0.25, backward=0.5, wrapped=ends)
    return [embedding, *blocks, head]


def program(
    layers: Sequence[RankLayer],
    policy: FullyShardPolicy | FlatPolicy,
    mesh: Mesh,
    *,
    micro_batches: int = 1,
    optimizer: str = "adam",
    optimizer_s: float = 0.0,
    clips: bool = False,
    library: str = "nccl",
) -> Program:
    """Return a step of all ranks of a mesh: the micro-batches in turn, then the optimizer."""
    rules = RULES[library]
    communicators = Communicators(mesh, library, workers=rules.workers)
    made: dict[int, list[Operation]] = {}

    def operations(number: int) -> list[Operation]:
        if number not in made:
            rank = RankList(number, communicators, blocks=not rules.on_stream)
            sharing = sharing_of(rank, layers, policy)
            stage = Stage(rank, layers, sharing)
            sharing.hold(find_optimizer(optimizer))
            stage.pass_all(micro_batches)
            sharing.after_step()
            if clips:
                sharing.clip()
            sharing.update(optimizer_s)
            made[number] = rank.operations
        return made[number]

    return Program("a model", mesh.ranks, operations, role=lambda _: 0)


def sharing_of(
    rank: RankList, layers: Sequence[RankLayer], policy: FullyShardPolicy | FlatPolicy
) -> FullyShard | FlatShard:
    return (FlatShard if isinstance(policy, FlatPolicy) else FullyShard)(rank, layers, policy)  # type: ignore[arg-type]


def driven(
    policy: FullyShardPolicy,
    layers: Sequence[RankLayer],
    *,
    micro_batches: int = 3,
    split: bool = False,
    library: str = "nccl",
) -> Program:
    """Return one stage of two ranks: gather, all forwards, all backwards, free, sum."""
    communicators = Communicators(Mesh(shard=2), library, 1)
    layers = [replace(one, input_gradient=(Kernels(1.0),), weight_gradient=(Kernels(1.0),)) for one in layers]
    lists = []
    for number in range(2):
        rank = RankList(number, communicators, blocks=library == "gloo")
        sharing = FullyShard(rank, layers, policy, inputs_need_gradient=True, defers=True)
        stage = Stage(rank, layers, sharing)
        sharing.unshard()
        for micro_batch in range(micro_batches):
            stage.forward(micro_batch)
        for micro_batch in range(micro_batches):
            last = micro_batch == micro_batches - 1
            if split:
                stage.input_gradient(micro_batch)
                stage.weight_gradient(micro_batch, last=last)
            else:
                stage.backward(micro_batch, last=last)
        sharing.reshard()
        sharing.after_step()
        sharing.update(0.0)
        lists.append(rank.operations)
    return Program("a stage", 2, lambda rank: lists[rank])


def calls(program: Program, rank: int = 0) -> list[Call]:
    return [one.action for one in program.operations(rank) if isinstance(one.action, Call)]


def labels(program: Program, rank: int = 0) -> list[str]:
    """Return the collectives of a rank, in order: kind, unit, elements."""
    found = []
    for one in program.operations(rank):
        if isinstance(one.action, Call):
            collective = one.action.collective
            elements = collective.nbytes // ITEMSIZE[collective.dtype or "int8"]
            found.append(f"{KINDS[collective.kind]} {one.name.split()[-1]} {elements}")
    return found


@dataclass(frozen=True)
class Played:
    """A simulated step of one rank."""

    simulation: Simulation

    @property
    def step_s(self) -> float:
        return self.simulation.makespan_s

    def moment(self, name: str, which: int = 0) -> tuple[float, float]:
        """Return when the operation of that name began with all its ranks, and ended."""
        operations = self.simulation.operations[0]
        places = [place for place, one in enumerate(operations) if one.name == name]
        place = places[which]
        begins = (
            self.simulation.start if isinstance(operations[place].action, Call) else self.simulation.begin
        )
        return begins[0][place], self.simulation.end[0][place]

    def pools(self) -> dict[str, list[tuple[float, int]]]:
        """Return the bytes of each pool after each change, in order of time and then of the list."""
        changes: list[tuple[float, int, bool, str, int]] = []
        for place, one in enumerate(self.simulation.operations[0]):
            for pool, nbytes in one.memory:
                moments = self.simulation.begin if nbytes > 0 else self.simulation.end
                changes.append((moments[0][place], place, nbytes < 0, pool, nbytes))
        held: dict[str, list[tuple[float, int]]] = {}
        for moment, _, _, pool, nbytes in sorted(changes):
            before = held.setdefault(pool, [])
            before.append((moment, (before[-1][1] if before else 0) + nbytes))
        return held


def played(program: Program, seconds_per_byte: float = 0.0, latency: float = 0.0) -> Played:
    """Play the step with a time per byte of collectives, one rank for all."""

    def time(collective: Collective, /) -> float:
        return latency + seconds_per_byte * collective.nbytes

    group = TimedGroup(program.ranks, time)
    return Played(play_in_group(program, group, roles=[0] * program.ranks))
